//! Renewals that the store refuses to take.

use super::*;
use crate::protocol::record::RecordWrite;

/// Denies each renewal, and notes when it came.
#[derive(Debug)]
struct Denying {
    began: Instant,
    renewals: Mutex<Vec<Duration>>,
}

impl Script for Denying {
    async fn write(
        &self,
        table: &MemoryStore,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        if matches!(write, RecordWrite::Renew(_)) {
            let mut renewals = self.renewals.lock().unwrap();
            renewals.push(self.began.elapsed());
            assert!(renewals.len() < 100, "the engine tries without end");
            return Err(StoreError::Denied("no permission".into()));
        }
        table.write(write, deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_at_once_is_sent_again_in_half_of_the_time_left_and_not_without_pause()
{
    let script = Denying {
        began: Instant::now(),
        renewals: Mutex::default(),
    };
    let lease = Duration::from_secs(30);
    let once = bench(script, |builder| builder.renewed_lease(lease));
    let run = once.run(key(), payload(), async |_| {
        std::future::pending::<Result<i32, Infallible>>().await
    });
    assert!(matches!(run.await, Err(Error::TimedOut)));
    let renewals = once.store.script.renewals.lock().unwrap();
    let millis: Vec<_> = renewals.iter().map(Duration::as_millis).collect();
    // A third of the lease, halves of what is left, a tenth of a second, and a last one at its end.
    let expected = [
        10_000, 20_000, 25_000, 27_500, 28_750, 29_375, 29_688, 29_844, 29_944, 30_000,
    ];
    assert_eq!(millis, expected);
}
