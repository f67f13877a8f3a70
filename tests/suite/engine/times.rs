//! Durations and sizes: those that are set, and the defaults.

use lambda_idempotency::protocol::record::{
    Ended, Intervention, Owner, RecordWrite, StoredOutcome,
};
use lambda_idempotency::testing::{Call, Fault, FaultyStore};
use lambda_idempotency::{EpochMillis, StoreError};

use super::*;

fn defaults() -> Bench {
    let clock = ManualClock::default();
    let store = MemoryStore::new();
    let once = Idempotency::builder(store.clone())
        .namespace("engine")
        .clock(clock.clone())
        .build()
        .unwrap();
    Bench { clock, store, once }
}

/// A run whose claim takes the store so long.
async fn claimed_after(
    delay: Duration,
    settings: impl FnOnce(Builder) -> Builder,
) -> Result<Outcome<i32>, Error<Infallible>> {
    let store = FaultyStore::new(MemoryStore::new());
    store.inject(Call::Create, Fault::Delayed(delay));
    let builder = Idempotency::builder(store).namespace("engine");
    let once = settings(builder).build().unwrap();
    once.run(key(), payload(), |_| async { Ok(1) }).await
}

#[tokio::test(start_paused = true)]
async fn a_claim_may_take_the_store_timeout_and_no_longer() {
    let with_three = |builder: Builder| {
        builder.settings(|settings| settings.store_timeout = Duration::from_secs(3))
    };
    let quick = claimed_after(Duration::from_millis(2_900), with_three).await;
    assert_eq!(quick.unwrap(), Outcome::Executed(1));
    let slow = claimed_after(Duration::from_millis(3_100), with_three).await;
    assert!(
        matches!(slow, Err(Error::Store(StoreError::Timeout))),
        "{slow:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn by_default_a_claim_may_take_ten_seconds() {
    let quick = claimed_after(Duration::from_millis(9_900), |builder| builder).await;
    assert_eq!(quick.unwrap(), Outcome::Executed(1));
    let slow = claimed_after(Duration::from_millis(10_100), |builder| builder).await;
    assert!(
        matches!(slow, Err(Error::Store(StoreError::Timeout))),
        "{slow:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn by_default_a_lease_lasts_fifteen_minutes_and_a_second_of_margin() {
    let bench = defaults();
    let run = bench.once.run(key(), payload(), |_| async {
        Ok::<_, Infallible>(bench.record().await.lease.unwrap().0)
    });
    let expected = bench.clock.now() + Duration::from_mins(15) + Duration::from_secs(1);
    assert_eq!(value(run.await), expected.0);
}

#[tokio::test(start_paused = true)]
async fn by_default_a_permanent_failure_is_kept_for_an_hour() {
    assert_kept(&defaults(), Duration::from_hours(1)).await;
}

/// A permanent failure is kept for this time.
async fn assert_kept(bench: &Bench, expected: Duration) {
    let declined = |_| async { Err::<i32, _>(HandlerError::other("declined")) };
    let run = bench
        .once
        .run_with(key(), payload(), declined, |_| Verdict::Fail);
    assert!(matches!(run.await, Err(Error::Handler(_))));
    let expected = (bench.clock.now() + expected).ceil_seconds();
    assert_eq!(bench.record().await.expiration, expected);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_under_new_keys_is_kept_as_long_as_an_outcome() {
    let bench = defaults();
    bench.run(1).await.unwrap();
    let (found, record) = (bench.found().await.unwrap(), bench.record().await);
    let rerun = Intervention {
        id: bench.once.record_id(&key()).unwrap(),
        seen: found.version,
        owner: Owner::random().unwrap(),
        expiration: record.expiration,
        steps: vec![record.journal.next_keys(bench.clock.now())],
        end: Ended::Released { last_error: None },
    };
    let (write, deadline) = (RecordWrite::Intervene(rerun), Instant::now() + LEASE);
    bench.store.write(&write, deadline).await.unwrap();
    assert_kept(&bench, Duration::from_hours(7 * 24)).await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_kept_as_long_as_its_own_operation_says_and_else_for_seven_days() {
    let bench = defaults();
    for (own, expected) in [
        (Duration::from_hours(2), Duration::from_hours(2)),
        (Duration::ZERO, Duration::from_secs(1)),
    ] {
        let once = bench.once.retention(own);
        let run = once.run(key(), payload(), |_| async { Ok::<_, Infallible>(1) });
        assert_eq!(run.await.unwrap(), Outcome::Executed(1));
        let expiration = (bench.clock.now() + expected).ceil_seconds();
        assert_eq!(bench.record().await.expiration, expiration);
        assert!(bench.run(2).await.unwrap().is_replayed());
        bench.clock.advance(expected + Duration::from_secs(3));
    }
    bench.run(3).await.unwrap();
    let expiration = (bench.clock.now() + Duration::from_hours(7 * 24)).ceil_seconds();
    assert_eq!(bench.record().await.expiration, expiration);
}

#[tokio::test(start_paused = true)]
async fn by_default_eight_kibibytes_stay_in_the_record_and_one_more_is_compressed() {
    // A text has two quotes around it in JSON.
    for (length, inline) in [(8 * 1_024 - 2, true), (8 * 1_024 - 1, false)] {
        let bench = defaults();
        bench.run("x".repeat(length)).await.unwrap();
        let outcome = bench.record().await.outcome;
        assert_eq!(
            matches!(outcome, Some(StoredOutcome::Inline(_))),
            inline,
            "{length}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_waits_until_a_quarter_of_a_second_before_its_invocation_ends() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_mins(1))));
    bench.crash().await;
    let end = bench.clock.now() + Duration::from_secs(2);
    let waiting = bench.once.deadline(end.into());
    let began = Instant::now();
    let refused = waiting.run(key(), payload(), |_| async { Ok::<_, Infallible>(1) });
    assert!(matches!(refused.await, Err(Error::InFlight { .. })));
    let waited = began.elapsed();
    // Sleeps end on whole milliseconds.
    let expected = Duration::from_millis(1_750);
    assert!(waited >= expected, "{waited:?}");
    assert!(waited <= expected + Duration::from_millis(5), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_given_up_a_quarter_of_a_second_before_the_invocation_ends() {
    for (delay, runs) in [(1_740, true), (1_760, false)] {
        let clock = ManualClock::default();
        let store = FaultyStore::new(MemoryStore::new());
        store.inject(Call::Create, Fault::Delayed(Duration::from_millis(delay)));
        let once = Idempotency::builder(store).namespace("engine");
        let once = once.clock(clock.clone()).build().unwrap();
        let end = clock.now() + Duration::from_secs(2);
        let once = once.deadline(end.into());
        let outcome = once.run(key(), payload(), |_| async { Ok::<_, Infallible>(1) });
        assert_eq!(outcome.await.is_ok(), runs, "{delay}");
    }
}

/// Tokio's time, from a fixed start.
#[derive(Debug)]
struct Running {
    began: Instant,
}

const START: EpochMillis = EpochMillis(1_700_000_000_000);

impl Clock for Running {
    fn now(&self) -> EpochMillis {
        START + self.began.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_when_the_record_in_its_way_was_seen() {
    let store = FaultyStore::new(MemoryStore::new());
    let clock = Running {
        began: Instant::now(),
    };
    let once = Idempotency::builder(store.clone()).namespace("engine");
    let once = once
        .lease(LEASE)
        .settings(|settings| settings.skew_margin = MARGIN)
        .clock(clock);
    let once = once.build().unwrap();
    let failed = once.run(key(), payload(), |_| async {
        Err::<i32, _>(HandlerError::other("down"))
    });
    failed.await.unwrap_err();

    // The claim meets the released record late, and takes it over then.
    store.inject(Call::Create, Fault::Delayed(Duration::from_secs(3)));
    let id = once.record_id(&key()).unwrap();
    let retried = once.run(key(), payload(), |_| async {
        let deadline = Instant::now() + LEASE;
        let found = store.load(&id, deadline).await.unwrap().expect("a record");
        let record = found.content.expect("a readable one");
        Ok::<_, Infallible>(record.lease.unwrap().0)
    });
    let seen = START + Duration::from_secs(3);
    assert_eq!(value(retried.await), (seen + LEASE + MARGIN).0);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_kept_beside_its_record_may_take_half_of_the_attempts_time() {
    for (delay, kept) in [(28, true), (32, false)] {
        let clock = ManualClock::default();
        let store = FaultyStore::new(MemoryStore::new());
        store.inject(Call::Keep, Fault::Delayed(Duration::from_secs(delay)));
        let once = Idempotency::builder(store).namespace("engine");
        let once = once
            .clock(clock.clone())
            .settings(|settings| settings.inline_limit = 10)
            .lease(LEASE);
        let once = once.build().unwrap();
        let large = || async { Ok::<_, Infallible>("x".repeat(100_000)) };
        once.run(key(), payload(), |_| large()).await.unwrap();
        let again = once.run(key(), payload(), |_| large()).await;
        assert_eq!(again.is_ok(), kept, "{delay}: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_reply_is_taken_back_for_half_a_second_at_most() {
    let store = FaultyStore::new(MemoryStore::new());
    store.inject(Call::Create, Fault::RequestLost);
    store.inject(Call::Release, Fault::Delayed(Duration::from_secs(30)));
    let once = Idempotency::builder(store).namespace("engine");
    let once = once.build().unwrap();
    let began = Instant::now();
    let outcome = once.run(key(), payload(), |_| async { Ok::<_, Infallible>(1) });
    assert!(matches!(outcome.await, Err(Error::Store(_))));
    let taken = began.elapsed();
    assert!(taken >= Duration::from_millis(500), "{taken:?}");
    assert!(taken <= Duration::from_millis(505), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_completion_gets_half_a_second_though_the_time_is_over() {
    for (delay, recorded) in [(490, true), (510, false)] {
        let clock = ManualClock::default();
        let store = FaultyStore::new(MemoryStore::new());
        store.inject(Call::Complete, Fault::Delayed(Duration::from_millis(delay)));
        let once = Idempotency::builder(store).namespace("engine");
        let once = once.clock(clock.clone()).lease(LEASE).build().unwrap();
        let outcome = once.run(key(), payload(), |_| async {
            clock.advance(LEASE);
            Ok::<_, Infallible>(1)
        });
        let expected = if recorded {
            Outcome::Executed(1)
        } else {
            Outcome::Unrecorded(1)
        };
        assert_eq!(outcome.await.unwrap(), expected, "{delay}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_seen_to_be_over_within_a_second_where_the_clock_jumps() {
    let bench = bench();
    let run = bench.once.run(key(), payload(), |claim| async move {
        let over = tokio::spawn(async move { claim.over().await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.clock.advance(LEASE);
        let jumped = Instant::now();
        over.await.unwrap();
        assert!(jumped.elapsed() < Duration::from_secs(1));
        Ok::<_, Infallible>(1)
    });
    assert_eq!(run.await.unwrap().into_inner(), 1);
}
