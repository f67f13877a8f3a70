//! The requests of a batch, whose outcomes no source asks for.

use tokio::sync::Semaphore;

use super::*;
use crate::engine::Begun;
use crate::engine::settings::InFlight;
use crate::protocol::clock::EpochSeconds;
use crate::protocol::key::RecordId;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Omission, RecordWrite, Status, StoredOutcome};

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
            once.batch(false, 1, None, false)
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

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_knows_hides_nothing() {
    for (is_batch, expected) in [(false, 2), (true, 0)] {
        let once = engine(Replies::default()).claimless();
        let bound = if is_batch {
            once.batch(false, 1, None, false)
        } else {
            once.clone()
        };
        // As a store does whose other transaction is still open.
        let handler = async |claim: crate::Claim| {
            let mut open = Record::new(Status::InProgress, EpochSeconds(i64::MAX / 1_000));
            open.lease = Some(claim.now() + Duration::from_secs(1));
            open.attempt = 0;
            assert!(!claim.unwritten().unwrap().meet(Found::readable(open)));
            Err::<i32, _>("met")
        };
        let met = bound.run(key(), payload(), handler).await;
        assert!(
            matches!(met, Err(Error::InFlight { lease, .. }) if lease.as_secs() == expected),
            "{is_batch}: {met:?}"
        );
    }
}

/// Answers nothing.
struct Silent;

impl Script for Silent {
    async fn write(
        &self,
        _: &MemoryStore,
        _: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        tokio::time::sleep_until(deadline).await;
        Err(StoreError::Timeout)
    }

    async fn load(
        &self,
        _: &MemoryStore,
        _: &RecordId,
        deadline: Instant,
    ) -> Result<Option<Found>, StoreError> {
        tokio::time::sleep_until(deadline).await;
        Err(StoreError::Timeout)
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_before_a_claim_leaves_time_for_the_claim_and_its_release() {
    let clock = TokioClock::start();
    let once = bench(Silent, |builder| builder.clock(clock));
    let end = clock.now() + Duration::from_secs(3);
    let bound = once.deadline(end.into()).batch(false, 1, None, false);
    let began = Instant::now();
    let redelivered = bound.read_first(true);
    let run = redelivered.run(key(), payload(), async |_| Ok::<_, Infallible>(1));
    let ended = run.await;
    assert!(matches!(ended, Err(Error::Store(_))), "{ended:?}");
    assert_eq!(began.elapsed(), Duration::from_millis(2_750));
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_another_attempt_for_as_long_as_it_may_start() {
    let clock = TokioClock::start();
    let once = bench(Replies::default(), |builder| {
        let builder = builder.clock(clock);
        builder.in_flight(InFlight::WaitUpTo(LEASE))
    });
    let Ok(Begun::Run(_elsewhere)) = once.begin(key(), payload()).await else {
        panic!("it is new")
    };
    let began = Instant::now();
    let end = clock.now() + Duration::from_secs(1);
    let may_start = Duration::from_millis(900);
    let places = Arc::new(Semaphore::new(1));
    let permit = Arc::clone(&places).try_acquire_owned().unwrap();
    let place = crate::engine::Place::new(&places, permit, Some(began + may_start), false);
    let bound = once.deadline(end.into()).batch(false, 1, None, false);
    let bound = bound.in_place(place);
    let met = bound.run(key(), payload(), async |_| Ok::<_, Infallible>(1));
    let met = met.await;
    assert!(matches!(met, Err(Error::InFlight { .. })), "{met:?}");
    assert!(began.elapsed() >= may_start, "{:?}", began.elapsed());
}
