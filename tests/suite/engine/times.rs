//! Durations and sizes: those that are set, and the defaults.

use std::iter;

use lambda_idempotency::protocol::record::{
    Ended, Intervention, Owner, RecordWrite, StoredOutcome,
};
use lambda_idempotency::{AtDeadline, EpochMillis, OnStoreUnavailable, StoreError};

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
    assert_matches!(run.await, Err(Error::Handler(_)));
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

const INVOCATION: Duration = Duration::from_secs(2);

/// An engine in an invocation, which ends its work. Some calls get no answer.
fn in_an_invocation(
    settings: impl FnOnce(Builder) -> Builder,
    unanswered: &[(Call, Duration)],
) -> Idempotency {
    let began = Instant::now();
    let bench = bench_with(|builder| {
        let builder = builder.settings(|settings| settings.at_deadline = AtDeadline::End);
        settings(builder.clock(Running { began }))
    });
    for (call, delay) in unanswered {
        bench.store.inject(*call, Fault::Delayed(*delay));
    }
    bench.once.deadline((START + INVOCATION).into())
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_an_answer_is_given_up_and_released_before_the_invocation_ends() {
    for (delay, answered) in [(1_240, 1_240), (1_260, 1_750)] {
        let delayed = [
            (Call::Create, Duration::from_millis(delay)),
            (Call::Release, LEASE),
        ];
        let once = in_an_invocation(|builder| builder, &delayed);
        let began = Instant::now();
        let outcome = attempt(&once, key()).await;
        assert_eq!(outcome.is_ok(), delay == answered, "{delay}: {outcome:?}");
        assert_eq!(began.elapsed(), Duration::from_millis(answered), "{delay}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_leaves_time_to_a_handler_that_runs_unprotected() {
    let policies: [fn(Builder) -> Builder; 2] = [
        |builder| builder.on_store_unavailable(OnStoreUnavailable::FailOpen),
        |builder| builder.observe(true),
    ];
    for policy in policies {
        let once = in_an_invocation(policy, &[(Call::Create, LEASE), (Call::Release, LEASE)]);
        let began = Instant::now();
        let run = once.run(key(), payload(), |_| async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            Ok::<_, Infallible>(1)
        });
        assert_eq!(run.await.unwrap(), Outcome::Unprotected(1));
        assert_eq!(began.elapsed(), Duration::from_millis(1_850));
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_at_the_end_of_its_time_is_answered_although_it_could_not_be_recorded() {
    let once = in_an_invocation(|builder| builder, &[(Call::Complete, LEASE)]);
    let began = Instant::now();
    let run = once.run(key(), payload(), |_| async {
        tokio::time::sleep(Duration::from_millis(1_850)).await;
        Ok::<_, Infallible>(1)
    });
    assert_eq!(run.await.unwrap(), Outcome::Unrecorded(1));
    assert!(began.elapsed() < INVOCATION, "{:?}", began.elapsed());
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
        // It looks each second.
        assert_eq!(jumped.elapsed(), Duration::from_millis(900));
        Ok::<_, Infallible>(1)
    });
    assert_eq!(run.await.unwrap().into_inner(), 1);
}
