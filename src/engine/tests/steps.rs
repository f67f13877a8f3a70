//! A step whose note comes back when the attempt's time is over.

use super::*;
use crate::journal::StepState;
use crate::record::Amendment;
use crate::step::StepError;

/// The first note takes its time, and is then written.
#[derive(Debug, Default)]
struct SlowNote {
    notes: AtomicU32,
}

const NOTE_TAKES: Duration = Duration::from_millis(400);

impl Script for SlowNote {
    async fn amend(
        &self,
        table: &MemoryStore,
        amendment: &Amendment,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        if self.notes.fetch_add(1, Ordering::Relaxed) == 0 {
            sleep(NOTE_TAKES).await;
        }
        table.amend(amendment, deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_whose_note_comes_too_late_does_not_fire_and_is_taken_back() {
    let once = engine(SlowNote::default());
    let fired = AtomicU32::new(0);
    let run = once.run(key(), payload(), async |claim| {
        sleep(LEASE.saturating_sub(NOTE_TAKES / 2)).await;
        let step = claim.step("charge", |_| async {
            Ok::<_, Infallible>(fired.fetch_add(1, Ordering::Relaxed))
        });
        step.await
    });
    let late = run.await;
    assert!(
        matches!(late, Err(Error::Handler(StepError::OutOfTime))),
        "{late:?}"
    );
    assert_eq!(fired.into_inner(), 0);
    let entry = record(&once).await.unwrap().journal.get("charge").cloned();
    let entry = entry.expect("the note was written");
    assert_eq!(
        (entry.state, entry.last_error.as_deref()),
        (StepState::Failed, Some("out of time"))
    );
}
