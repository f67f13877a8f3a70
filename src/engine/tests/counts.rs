//! Tests what is counted of runs without a claim, and under which name.

use std::future::Future;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::*;
use crate::Verdict;
use crate::protocol::record::RecordWrite;

/// Commits everything.
#[derive(Debug)]
struct Committing;

impl Script for Committing {
    async fn commit(
        &self,
        _: &MemoryStore,
        _: Commit<'_>,
        _: Instant,
    ) -> Result<Committed, StoreError> {
        Ok(Committed::Applied)
    }
}

/// Returns the counts of this name that `counting` makes.
async fn counted(name: &str, counting: impl Future<Output = ()>) -> Vec<DebugValue> {
    let recorder: &'static _ = Box::leak(Box::new(DebuggingRecorder::new()));
    let _installed = metrics::set_default_local_recorder(recorder);
    counting.await;
    let counted = recorder.snapshotter().snapshot().into_vec().into_iter();
    let counted = counted.filter(|(key, ..)| key.key().name() == name);
    counted.map(|(.., value)| value).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_claim_is_one_execution_whether_it_commits_or_fails() {
    for does_commit in [true, false] {
        let executions = counted("idempotency_executions", async {
            let once = engine(Committing).claimless();
            if does_commit {
                write(&once).await.unwrap();
            } else {
                fail(&once).await;
            }
        });
        let executions = executions.await;
        assert_eq!(
            executions,
            [DebugValue::Counter(1)],
            "commits: {does_commit}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_claim_that_ends_without_an_outcome_is_one_failure() {
    let panics = async |once: &Idempotency| {
        let run = once.run(key(), payload(), async |_| -> Result<u8, Infallible> {
            panic!("on purpose")
        });
        let run = std::panic::AssertUnwindSafe(run);
        assert!(futures_util::FutureExt::catch_unwind(run).await.is_err());
    };
    for panicked in [true, false] {
        let failures = counted("idempotency_failures", async {
            let once = engine(Committing).claimless();
            if panicked {
                panics(&once).await;
            } else {
                fail(&once).await;
            }
        });
        assert_eq!(failures.await, [DebugValue::Counter(1)], "{panicked}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_observed_without_a_usable_key_is_one_unprotected_run() {
    for key in [None, Some(Key::new("charge", ""))] {
        let unprotected = counted("idempotency_unprotected", async {
            let observing = Idempotency::builder(Scripted::new(Committing))
                .namespace("tests")
                .observe(true)
                .build()
                .unwrap();
            let run = observing.run(key, payload(), async |_| Ok::<_, Infallible>(1));
            assert_eq!(run.await.unwrap(), Outcome::Unprotected(1));
        });
        assert_eq!(unprotected.await, [DebugValue::Counter(1)]);
    }
}

/// Can't be reached.
#[derive(Debug)]
struct Unreachable;

impl Script for Unreachable {
    async fn write(
        &self,
        _: &MemoryStore,
        _: &RecordWrite,
        _: Instant,
    ) -> Result<Answer, StoreError> {
        Err(StoreError::Unavailable("no route".into()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_open_keeps_the_name_of_its_operation() {
    let open = Idempotency::builder(Scripted::new(Unreachable))
        .namespace("tests")
        .on_store_unavailable(crate::engine::settings::OnStoreUnavailable::FailOpen)
        .build()
        .unwrap();
    let handler = async |claim: crate::Claim| Ok::<_, Infallible>(claim.operation().to_owned());
    let run = open.run(key(), payload(), handler).await.unwrap();
    assert_eq!(run, Outcome::Unprotected("charge".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_answered_is_a_store_error_also_where_the_run_goes_on() {
    for fails_open in [true, false] {
        let errors = counted("idempotency_store_errors", async {
            let mut once = Idempotency::builder(Scripted::new(Unreachable)).namespace("tests");
            if fails_open {
                once = once.on_store_unavailable(crate::OnStoreUnavailable::FailOpen);
            }
            let once = once.build().unwrap();
            let ran = once.run(key(), payload(), async |_| Ok::<_, Infallible>(1));
            assert_eq!(ran.await.is_ok(), fails_open);
        });
        // The claim, and the release of what may arrive.
        assert_eq!(errors.await, [DebugValue::Counter(2)], "{fails_open}");
    }
}

/// Makes claims, and ends none.
#[derive(Debug)]
struct Endless;

impl Script for Endless {
    async fn write(
        &self,
        table: &MemoryStore,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        match write {
            RecordWrite::Complete(_) => Err(StoreError::Rejected("no".into())),
            _ => table.write(write, deadline).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_could_not_be_stored_is_unrecorded_and_a_permanent_failure_is_not() {
    for result in [Ok(1), Err("declined")] {
        let unrecorded = counted("idempotency_unrecorded", async {
            let once = engine(Endless);
            let judge = |result: &Result<i32, &str>| match result {
                Ok(_) => Verdict::Complete,
                Err(_) => Verdict::Fail,
            };
            let run = once.run_with(key(), payload(), async |_| result, judge);
            assert_eq!(run.await.is_ok(), result.is_ok());
        });
        let expected = DebugValue::Counter(u64::from(result.is_ok()));
        assert_eq!(unrecorded.await, [expected], "{result:?}");
    }
}
