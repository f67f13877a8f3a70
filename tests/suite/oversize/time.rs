//! The share of an attempt's time that its large outcome may take; in virtual time.

use lambda_idempotency::testing::{Call, Fault, FaultyStore};
use tokio::time::Instant;

use super::*;
use crate::support::VirtualClock;

const LEASE: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn half_of_the_time_is_left_for_the_completion() {
    let store = FaultyStore::new(MemoryStore::new());
    store.inject(Call::Keep, Fault::Delayed(Duration::from_hours(1)));
    store.inject(Call::Complete, Fault::Delayed(LEASE / 4));
    let began = Instant::now();
    let once = Idempotency::builder(store)
        .namespace("oversize")
        .clock(VirtualClock)
        .lease(LEASE)
        .build()
        .unwrap();
    let run = || {
        once.run(Key::new("export", "1"), None, |_| async {
            Ok::<_, Infallible>(noise(20_000))
        })
    };
    assert!(matches!(run().await, Ok(Outcome::Executed(_))), "recorded");
    assert_eq!(began.elapsed(), LEASE / 2 + LEASE / 4);
    let duplicate = run().await.unwrap_err();
    let Error::OutcomeOmitted { reason, .. } = duplicate else {
        panic!("{duplicate}");
    };
    assert_eq!(reason, Omission::NotKept);
}
