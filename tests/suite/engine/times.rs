//! Durations and sizes: those that are set, and the defaults.

use std::iter;

use lambda_idempotency::protocol::record::{
    Ended, Intervention, Owner, RecordWrite, StoredOutcome,
};
use lambda_idempotency::{EpochMillis, StoreError};

use super::*;

fn defaults() -> Bench {
    let mut bench = bench();
    let once = Idempotency::builder(bench.store.clone()).namespace("engine");
    bench.once = once.clock(bench.clock.clone()).build().unwrap();
    bench
}

#[tokio::test(start_paused = true)]
async fn a_claim_may_take_the_store_timeout_and_no_longer() {
    for (delay, runs) in [(2_900, true), (3_100, false)] {
        let bench = bench_with(|builder| {
            builder.settings(|settings| settings.store_timeout = Duration::from_secs(3))
        });
        let delayed = Fault::Delayed(Duration::from_millis(delay));
        bench.store.inject(Call::Create, delayed);
        match bench.run(1).await {
            Ok(Outcome::Executed(1)) => assert!(runs, "{delay}"),
            Err(Error::Store(StoreError::Timeout)) => assert!(!runs, "{delay}"),
            other => panic!("{other:?}"),
        }
    }
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
        steps: iter::once(record.journal.next_keys(bench.clock.now())).collect(),
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
        let run = attempt(&once, key()).await;
        assert_eq!(run.unwrap(), Outcome::Executed(1));
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
async fn a_claim_is_given_up_a_quarter_of_a_second_before_the_invocation_ends() {
    for (delay, runs) in [(1_740, true), (1_760, false)] {
        let bench = bench();
        let delayed = Fault::Delayed(Duration::from_millis(delay));
        bench.store.inject(Call::Create, delayed);
        let end = bench.clock.now() + Duration::from_secs(2);
        let outcome = attempt(&bench.once.deadline(end.into()), key()).await;
        assert_eq!(outcome.is_ok(), runs, "{delay}: {outcome:?}");
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
    let began = Instant::now();
    let bench = bench_with(|builder| builder.clock(Running { began }));
    bench.fails().await;

    // The claim meets the released record late, and takes it over then.
    let delayed = Fault::Delayed(Duration::from_secs(3));
    bench.store.inject(Call::Create, delayed);
    let retried = bench.once.run(key(), payload(), |_| async {
        Ok::<_, Infallible>(bench.record().await.lease.unwrap().0)
    });
    let seen = START + Duration::from_secs(3);
    assert_eq!(value(retried.await), (seen + LEASE + MARGIN).0);
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
