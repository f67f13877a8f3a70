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
    /// Until when the last one is kept.
    until: Mutex<EpochSeconds>,
}

impl Script for Keeping {
    async fn keep(&self, at: At<'_>, outcome: &LargeOutcome) -> Result<Place, StoreError> {
        self.kept.fetch_add(1, Ordering::Relaxed);
        *self.until.lock().unwrap() = outcome.expiration;
        at.table.keep(outcome, at.deadline).await
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
        let record = record(&once).await.unwrap();
        let outcome = record.outcome.unwrap();
        let omitted = StoredOutcome::Omitted(Omission::TooLarge);
        assert_eq!(outcome == omitted, is_batch, "{outcome:?}");
        let kept = once.store.script.kept.load(Ordering::Relaxed);
        assert_eq!(kept, u32::from(!is_batch));
        if !is_batch {
            // By the margin and an hour longer than its record.
            let until = record.expiration.to_millis() + Duration::from_secs(3_601);
            let kept_until = *once.store.script.until.lock().unwrap();
            assert_eq!(kept_until, until.ceil_seconds());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_knows_hides_nothing() {
    for (is_batch, attempt, expected) in [(false, 0, 2), (true, 0, 0), (true, 1, 2)] {
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
            open.attempt = attempt;
            // What a handler that fails has collected keeps no record from counting.
            claim.write(Write::new("a business write")).unwrap();
            assert!(!claim.unwritten().unwrap().meet(Found::readable(open)));
            Err::<i32, _>("met")
        };
        let met = bound.run(key(), payload(), handler).await;
        assert_matches!(
            met,
            Err(Error::InFlight { lease, .. }) if lease.as_secs() == expected,
            "{is_batch} {attempt}"
        );
    }
}

/// Answers nothing.
struct Silent;

impl Script for Silent {
    async fn write(&self, at: At<'_>, _: &RecordWrite) -> Result<Answer, StoreError> {
        tokio::time::sleep_until(at.deadline).await;
        Err(StoreError::Timeout)
    }

    async fn load(&self, at: At<'_>, _: &RecordId) -> Result<Option<Found>, StoreError> {
        tokio::time::sleep_until(at.deadline).await;
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
    assert_matches!(ended, Err(Error::Store(_)));
    assert_eq!(began.elapsed(), Duration::from_millis(2_750));
}

/// Takes its time to read.
struct SlowToRead;

impl Script for SlowToRead {
    async fn load(&self, at: At<'_>, id: &RecordId) -> Result<Option<Found>, StoreError> {
        sleep(Duration::from_secs(2)).await;
        at.table.load(id, at.deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_the_end_of_the_read_before_it() {
    let redelivered = engine(SlowToRead).once.read_first(true);
    let handler = async |claim: crate::Claim| Ok::<_, Infallible>(claim.remaining());
    let left = redelivered.run(key(), payload(), handler).await.unwrap();
    assert_eq!(left.into_inner(), Some(LEASE));
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
    assert_matches!(met, Err(Error::InFlight { .. }));
    assert!(began.elapsed() >= may_start, "{:?}", began.elapsed());
}
