//! Tests what is counted of runs without a claim, and under which name.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::*;
use crate::protocol::record::RecordWrite;
use crate::{OnStoreUnavailable, Verdict};

/// An engine without a claim, whose store commits everything.
fn claimless() -> Bench<Replies> {
    engine(Replies::default().on_commit(|| Ok(Committed::Applied))).claimless()
}

/// Fails unless this is what `counting` adds to the counter, or the histogram, of this name.
async fn assert_counted(name: &str, expected: u64, counting: impl Future<Output = ()>) {
    let recorder: &'static _ = Box::leak(Box::new(DebuggingRecorder::new()));
    let _installed = metrics::set_default_local_recorder(recorder);
    counting.await;
    let counted = recorder.snapshotter().snapshot().into_vec().into_iter();
    let counted = counted.filter(|(key, ..)| key.key().name() == name);
    // Of a histogram, the number of its values.
    let counted = counted.map(|(.., value)| match value {
        DebugValue::Histogram(values) => DebugValue::Counter(values.len() as u64),
        value => value,
    });
    let counted: Vec<_> = counted.collect();
    assert_eq!(counted, [DebugValue::Counter(expected)]);
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_claim_is_one_execution_however_it_ends() {
    let committing = async {
        write(&claimless()).await.unwrap();
    };
    assert_counted("idempotency_executions", 1, committing).await;
    let failing = async { fail(&claimless()).await };
    assert_counted("idempotency_executions", 1, failing).await;
    let dropping = async { drop(claimless().begin(key(), payload()).await) };
    assert_counted("idempotency_executions", 1, dropping).await;
}

/// Each commit meets the record that the table has.
struct Fencing;

impl Script for Fencing {
    async fn commit(&self, at: At<'_>, commit: Commit<'_>) -> Result<Committed, StoreError> {
        let id = &commit.record.unwrap().completion.id;
        at.table.load(id, at.deadline).await.map(Committed::Fenced)
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_runs_without_a_claim_is_a_replay_and_no_execution() {
    for succeeds in [true, false] {
        // The first run has a claim.
        for (name, expected) in [("executions", 1), ("replays", 1), ("failures", 0)] {
            let counting = async {
                let once = engine(Fencing);
                let first = once.run(key(), payload(), async |_| Ok::<_, &str>(1));
                assert_eq!(first.await.unwrap(), Outcome::Executed(1));
                let once = once.claimless();
                let handler = async move |_| succeeds.then_some(1).ok_or("a condition failed");
                let again = once.run(key(), payload(), handler).await;
                assert_matches!(again, Ok(Outcome::Replayed(1, _)));
            };
            assert_counted(&format!("idempotency_{name}"), expected, counting).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_claim_that_ends_without_an_outcome_is_one_failure() {
    let panicking = async {
        let once = claimless();
        let run = once.run(key(), payload(), async |_| -> Result<u8, Infallible> {
            panic!("on purpose")
        });
        let run = std::panic::AssertUnwindSafe(run);
        assert!(futures_util::FutureExt::catch_unwind(run).await.is_err());
    };
    assert_counted("idempotency_failures", 1, panicking).await;
    let failing = async { fail(&claimless()).await };
    assert_counted("idempotency_failures", 1, failing).await;
    let dropping = async { drop(claimless().begin(key(), payload()).await) };
    assert_counted("idempotency_failures", 1, dropping).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_observed_without_a_usable_key_is_one_unprotected_run() {
    for key in [None, Some(Key::new("charge", ""))] {
        let observed = async {
            let once = bench(Replies::default(), |builder| builder.observe(true));
            let run = once.run(key, payload(), async |_| Ok::<_, Infallible>(1));
            assert_eq!(run.await.unwrap(), Outcome::Unprotected(1));
        };
        assert_counted("idempotency_unprotected", 1, observed).await;
    }
}

/// An engine whose store can't be reached.
fn unreachable(policy: OnStoreUnavailable) -> Bench<Replies> {
    let unreachable =
        Replies::default().on_write(|_| Some(Err(StoreError::Unavailable("no route".into()))));
    bench(unreachable, |builder| builder.on_store_unavailable(policy))
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_open_keeps_the_name_of_its_operation() {
    let open = unreachable(OnStoreUnavailable::FailOpen);
    let handler = async |claim: crate::Claim| Ok::<_, Infallible>(claim.operation().to_owned());
    let run = open.run(key(), payload(), handler).await.unwrap();
    assert_eq!(run, Outcome::Unprotected("charge".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_answered_is_a_store_error_also_where_the_run_goes_on() {
    use OnStoreUnavailable::{FailClosed, FailOpen};
    for (policy, goes_on) in [(FailOpen, true), (FailClosed, false)] {
        let unanswered = async {
            let once = unreachable(policy);
            let ran = once.run(key(), payload(), async |_| Ok::<_, Infallible>(1));
            assert_eq!(ran.await.is_ok(), goes_on);
        };
        // The claim, and the release of what may arrive.
        assert_counted("idempotency_store_errors", 2, unanswered).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_could_not_be_stored_is_unrecorded_and_a_permanent_failure_is_not() {
    for result in [Ok(1), Err("declined")] {
        let unstored = async {
            let once = engine(Replies::default().on_write(|write| {
                matches!(write, RecordWrite::Complete(_))
                    .then(|| Err(StoreError::Rejected("no".into())))
            }));
            let judge = |result: &Result<i32, &str>| match result {
                Ok(_) => Verdict::Complete,
                Err(_) => Verdict::Fail,
            };
            let run = once.run_with(key(), payload(), async |_| result, judge);
            assert_eq!(run.await.is_ok(), result.is_ok());
        };
        assert_counted(
            "idempotency_unrecorded",
            u64::from(result.is_ok()),
            unstored,
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_under_a_claim_is_timed() {
    let committing = async {
        let committed = Replies::default().on_commit(|| Ok(Committed::Applied));
        write(&engine(committed)).await.unwrap();
    };
    assert_counted("idempotency_completion_time", 1, committing).await;
}
