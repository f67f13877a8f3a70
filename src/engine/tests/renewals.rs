//! Renewals that the store refuses to take.

use super::*;
use crate::protocol::record::RecordWrite;

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_at_once_is_sent_again_in_half_of_the_time_left_and_not_without_pause()
{
    let millis = Arc::new(Mutex::new(Vec::new()));
    let (began, sent) = (Instant::now(), Arc::clone(&millis));
    let denying = Replies::default().on_write(move |write| {
        matches!(write, RecordWrite::Renew { .. }).then(|| {
            let mut sent = sent.lock().unwrap();
            sent.push(began.elapsed().as_millis());
            assert!(sent.len() < 100, "the engine tries without end");
            Err(StoreError::Denied("no permission".into()))
        })
    });
    let lease = Duration::from_secs(30);
    let once = bench(denying, |builder| builder.renewed_lease(lease));
    let run = once.run(key(), payload(), async |_| {
        std::future::pending::<Result<i32, Infallible>>().await
    });
    assert_matches!(run.await, Err(Error::TimedOut));
    // A third of the lease, halves of what is left, a tenth of a second, and a last one at its end.
    let expected = [
        10_000, 20_000, 25_000, 27_500, 28_750, 29_375, 29_688, 29_844, 29_944, 30_000,
    ];
    assert_eq!(*millis.lock().unwrap(), expected);
}
