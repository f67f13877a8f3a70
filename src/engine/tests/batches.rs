//! The requests of a batch, whose outcomes no source asks for.

use super::*;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Omission, StoredOutcome};

/// Counts the outcomes that it is to keep beside their records.
#[derive(Debug, Default)]
struct Keeping {
    kept: AtomicU32,
}

impl Script for Keeping {
    async fn keep(
        &self,
        table: &MemoryStore,
        outcome: &LargeOutcome,
        deadline: Instant,
    ) -> Result<Place, StoreError> {
        self.kept.fetch_add(1, Ordering::Relaxed);
        table.keep(outcome, deadline).await
    }
}

/// Digits that hardly compress.
fn large() -> String {
    let number = |n: u32| (n.wrapping_mul(2_654_435_769) >> 8).to_string();
    (0..20_000).map(number).collect()
}

#[tokio::test(start_paused = true)]
async fn a_large_outcome_is_kept_for_a_request_and_not_for_a_message_of_a_batch() {
    for is_batch in [false, true] {
        let once = engine(Keeping::default());
        let bound = if is_batch {
            once.batch(false, 1, None)
        } else {
            once.clone()
        };
        let done = bound.run(key(), payload(), async |_| Ok::<_, Infallible>(large()));
        assert_eq!(done.await.unwrap().into_inner(), large());
        let outcome = record(&once).await.unwrap().outcome.unwrap();
        let omitted = StoredOutcome::Omitted(Omission::TooLarge);
        assert_eq!(outcome == omitted, is_batch, "{outcome:?}");
        let kept = once.store.script.kept.load(Ordering::Relaxed);
        assert_eq!(kept, u32::from(!is_batch));
    }
}
