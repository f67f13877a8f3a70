//! What a run promises, row by row of the protocol's "results that need a rule".

use std::convert::Infallible;
use std::fmt::Debug;
use std::io::Error as HandlerError;
use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::join_all;
use lambda_idempotency::record::{Found, Record, Status};
use lambda_idempotency::store::{MemoryStore, Store};
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    Builder, Clock, Crashed, Error, Fingerprint, Idempotency, InFlight, Key, KeyError, MissingKey,
    Omission, Outcome, Verdict,
};
use tokio::time::Instant;

const LEASE: Duration = Duration::from_mins(1);
const MARGIN: Duration = Duration::from_secs(1);

/// An engine in memory, with a clock to set by hand.
struct Bench {
    clock: ManualClock,
    once: Idempotency<MemoryStore>,
}

fn bench() -> Bench {
    bench_with(|builder| builder)
}

fn bench_with(settings: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>) -> Bench {
    let clock = ManualClock::default();
    let builder = Idempotency::builder(MemoryStore::new())
        .namespace("engine")
        .lease(LEASE)
        .skew_margin(MARGIN)
        .clock(clock.clone());
    let once = settings(builder).build().unwrap();
    Bench { clock, once }
}

fn key() -> Key {
    Key::new("charge", "order-1")
}

fn payload() -> Fingerprint {
    Fingerprint::bytes(b"payload")
}

impl Bench {
    async fn run<T>(&self, value: T) -> Result<Outcome<T>, Error<Infallible>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        self.once
            .run(key(), payload(), |_| async { Ok(value) })
            .await
    }

    /// An attempt that is cut off while its handler runs.
    async fn crash(&self) {
        let never = |_| std::future::pending::<Result<i32, Infallible>>();
        let attempt = self.once.run(key(), payload(), never);
        tokio::time::timeout(Duration::from_millis(5), attempt)
            .await
            .expect_err("cut off");
    }

    async fn found(&self) -> Option<Found> {
        let id = self.once.record_id(&key()).unwrap();
        self.once
            .store()
            .load(&id, Instant::now() + LEASE)
            .await
            .unwrap()
    }

    async fn record(&self) -> Record {
        let found = self.found().await.expect("a record");
        *found.content.expect("a readable one")
    }
}

fn value<T: Debug>(outcome: Result<Outcome<T>, Error<Infallible>>) -> T {
    outcome.unwrap().into_inner()
}

#[tokio::test]
async fn falsy_outcomes_replay_exactly() {
    async fn replays<T>(first: T)
    where
        T: Clone + Debug + PartialEq + serde::Serialize + serde::de::DeserializeOwned,
    {
        let bench = bench();
        assert_eq!(
            bench.run(first.clone()).await.unwrap(),
            Outcome::Executed(first.clone())
        );
        let again = bench.once.run(key(), payload(), |_| async {
            Err::<T, _>(HandlerError::other("ran again"))
        });
        let again = again.await.unwrap();
        assert!(again.is_replayed());
        assert_eq!(again.into_inner(), first);
    }
    replays(()).await;
    replays(Option::<i32>::None).await;
    replays(false).await;
    replays(0).await;
    replays(String::new()).await;
    replays(Vec::<i32>::new()).await;
    replays(serde_json::json!({})).await;
    replays(serde_json::Value::Null).await;
}

#[tokio::test]
async fn a_replay_tells_when_and_in_which_attempt_the_request_was_processed() {
    let bench = bench();
    bench.crash().await;
    bench.clock.advance(LEASE + MARGIN);
    bench.run(1).await.unwrap();
    let processed_at = SystemTime::from(bench.clock.now());
    bench.clock.advance(Duration::from_hours(1));

    let Outcome::Replayed(1, replay) = bench.run(2).await.unwrap() else {
        panic!("a replay")
    };
    assert_eq!(replay.processed_at, Some(processed_at));
    assert_eq!(replay.attempt, 2);
}

#[tokio::test]
async fn a_handler_that_changes_its_input_changes_neither_key_nor_fingerprint() {
    let bench = bench();
    let mut body = br#"{"amount":1}"#.to_vec();
    let fingerprint = Fingerprint::json(&body);
    let run = bench.once.run(key(), fingerprint.clone(), |_| async {
        body.clear();
        Ok::<_, Infallible>(1)
    });
    run.await.unwrap();
    assert_eq!(bench.record().await.fingerprint, Some(fingerprint));
}

#[tokio::test]
async fn of_64_requests_at_once_one_runs() {
    let bench = bench();
    let runs = AtomicUsize::new(0);
    let requests = (0..64).map(|_| {
        bench.once.run(key(), payload(), |_| async {
            runs.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(1)
        })
    });
    let outcomes = join_all(requests).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let refused = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Err(Error::InFlight { .. })));
    assert_eq!(refused.count(), 63);
}

#[tokio::test]
async fn a_failed_handler_releases_so_that_a_retry_runs_at_once() {
    let bench = bench();
    let failed = bench.once.run(key(), payload(), |_| async {
        Err::<i32, _>(HandlerError::other("down"))
    });
    assert_eq!(
        failed
            .await
            .unwrap_err()
            .into_handler()
            .unwrap()
            .to_string(),
        "down"
    );
    let record = bench.record().await;
    assert!(record.is_released());
    assert_eq!(record.last_error.as_deref(), Some("std::io::error::Error"));

    let attempt = bench.once.run(key(), payload(), |claim| async move {
        Ok::<_, Infallible>(claim.attempt())
    });
    assert_eq!(value(attempt.await), 2);
    assert_eq!(
        bench.record().await.last_error.as_deref(),
        Some("std::io::error::Error")
    );
}

#[tokio::test]
async fn a_corrected_payload_may_use_the_key_of_a_failed_attempt() {
    let bench = bench();
    let failed = bench.once.run(key(), payload(), |_| async {
        Err::<i32, _>(HandlerError::other("bad amount"))
    });
    failed.await.unwrap_err();
    let corrected = bench
        .once
        .run(key(), Fingerprint::bytes(b"corrected"), |_| async {
            Ok::<_, Infallible>(1)
        });
    assert_eq!(value(corrected.await), 1);
}

#[tokio::test]
async fn a_permanent_failure_is_replayed_for_its_retention() {
    let bench = bench_with(|builder| builder.failure_retention(Duration::from_mins(10)));
    let decline = || {
        let declined = |_| async { Err::<i32, _>(HandlerError::other("declined")) };
        bench
            .once
            .run_with(key(), payload(), declined, |_| Verdict::Fail)
    };
    assert!(matches!(decline().await, Err(Error::Handler(_))));
    assert_eq!(bench.record().await.status, Status::Failed);
    match decline().await {
        Err(Error::Failed(failure)) => assert_eq!(failure.message, "declined"),
        other => panic!("{other:?}"),
    }
    bench.clock.advance(Duration::from_secs(602));
    assert!(
        matches!(decline().await, Err(Error::Handler(_))),
        "it runs again"
    );
}

#[tokio::test]
async fn a_permanent_failure_with_much_to_say_is_still_a_failure() {
    let bench = bench_with(|builder| builder.inline_limit(10));
    for _ in 0..2 {
        let declined = |_| async { Err::<i32, _>(HandlerError::other("x".repeat(100_000))) };
        let run = bench
            .once
            .run_with(key(), payload(), declined, |_| Verdict::Fail)
            .await;
        assert!(
            matches!(run, Err(Error::Handler(_) | Error::Failed(_))),
            "{run:?}"
        );
    }
}

#[tokio::test]
async fn a_waiting_duplicate_leaves_time_for_its_own_reply() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_mins(1))));
    bench.crash().await;
    let soon = bench.clock.now() + Duration::from_millis(300);
    let before = Instant::now();
    let waiting = bench.once.deadline(soon.into());
    let refused = waiting
        .run(key(), payload(), |_| async { Ok::<_, Infallible>(1) })
        .await;
    assert!(matches!(refused, Err(Error::InFlight { .. })));
    assert!(before.elapsed() < Duration::from_millis(300));
}

#[tokio::test]
async fn a_success_that_is_not_final_is_handed_out_and_released() {
    let bench = bench();
    let busy = bench.once.run_with(
        key(),
        payload(),
        |_| async { Ok::<_, Infallible>(503) },
        |_| Verdict::Release,
    );
    assert_eq!(value(busy.await), 503);
    assert_eq!(value(bench.run(200).await), 200);
}

#[tokio::test]
async fn a_panic_releases_and_goes_on() {
    let bench = bench();
    let panicking = bench.once.run(key(), payload(), |_| async {
        panic!("boom");
        #[expect(unreachable_code, reason = "it says what the handler would give")]
        Ok::<i32, Infallible>(0)
    });
    let panic = AssertUnwindSafe(panicking)
        .catch_unwind()
        .await
        .expect_err("the panic goes on");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"boom"));
    assert!(bench.record().await.is_released());
    assert_eq!(value(bench.run(1).await), 1);
}

#[tokio::test]
async fn a_panic_leaves_the_lease_where_a_person_must_look() {
    let bench = bench_with(|builder| builder.crashed(Crashed::Interrupt));
    let panicking = bench.once.run(key(), payload(), |claim| async move {
        assert_eq!(claim.attempt(), 0, "boom");
        Ok::<_, Infallible>(0)
    });
    AssertUnwindSafe(panicking)
        .catch_unwind()
        .await
        .expect_err("the panic goes on");
    assert!(matches!(bench.run(1).await, Err(Error::InFlight { .. })));
    bench.clock.advance(LEASE + MARGIN);
    assert!(matches!(bench.run(1).await, Err(Error::Interrupted { .. })));
}

#[tokio::test]
async fn an_attempt_cut_off_holds_its_lease_and_is_then_taken_over() {
    let bench = bench();
    bench.crash().await;
    let Err(Error::InFlight { retry_after }) = bench.run(1).await else {
        panic!("in flight")
    };
    assert_eq!(retry_after, LEASE + MARGIN);

    bench.clock.advance(
        (LEASE + MARGIN)
            .checked_sub(Duration::from_millis(1))
            .unwrap(),
    );
    assert!(matches!(bench.run(1).await, Err(Error::InFlight { .. })));
    bench.clock.advance(Duration::from_millis(1));
    let attempt = bench.once.run(key(), payload(), |claim| async move {
        Ok::<_, Infallible>(claim.attempt())
    });
    assert_eq!(value(attempt.await), 2);
}

#[tokio::test]
async fn attempts_that_keep_crashing_are_exhausted() {
    let bench = bench_with(|builder| builder.max_attempts(NonZeroU32::new(2).unwrap()));
    for _ in 0..2 {
        bench.crash().await;
        bench.clock.advance(LEASE + MARGIN);
    }
    assert!(matches!(
        bench.run(1).await,
        Err(Error::Exhausted { attempts: 2 })
    ));
}

#[tokio::test]
async fn a_stale_handler_gets_its_successors_outcome_and_stores_nothing() {
    let bench = bench();
    let stale = bench.once.run(key(), payload(), |_| async {
        bench.clock.advance(LEASE + MARGIN);
        assert_eq!(value(bench.run(2).await), 2);
        Ok::<_, Infallible>(1)
    });
    let outcome = stale.await.unwrap();
    assert!(outcome.is_replayed());
    assert_eq!(outcome.into_inner(), 2);
    assert_eq!(value(bench.run(3).await), 2);
}

#[tokio::test]
async fn a_stale_handler_whose_successor_is_at_work_has_lost_its_lease() {
    let bench = bench();
    let stale = bench.once.run(key(), payload(), |_| async {
        bench.clock.advance(LEASE + MARGIN);
        bench.crash().await;
        Ok::<_, Infallible>(1)
    });
    assert!(matches!(stale.await, Err(Error::LeaseLost)));
    let record = bench.record().await;
    assert_eq!((record.status, record.attempt), (Status::InProgress, 2));
}

#[tokio::test]
async fn a_stale_failure_does_not_release_its_successor() {
    let bench = bench();
    let stale = bench.once.run(key(), payload(), |_| async {
        bench.clock.advance(LEASE + MARGIN);
        bench.crash().await;
        Err::<i32, _>(HandlerError::other("late"))
    });
    stale.await.unwrap_err();
    assert!(!bench.record().await.is_released());
}

#[tokio::test]
async fn a_rejected_duplicate_changes_nothing() {
    let bench = bench();
    bench.crash().await;
    let in_progress = bench.found().await;
    bench.run(1).await.unwrap_err();
    let other = bench
        .once
        .run(key(), Fingerprint::bytes(b"other"), |_| async {
            Ok::<_, Infallible>(1)
        });
    assert!(matches!(other.await, Err(Error::Mismatch)));
    assert_eq!(bench.found().await, in_progress);

    bench.clock.advance(LEASE + MARGIN);
    bench.run(1).await.unwrap();
    let completed = bench.found().await;
    bench.run(2).await.unwrap();
    assert_eq!(bench.found().await, completed);
}

#[tokio::test]
async fn a_lease_lasts_until_the_lambda_deadline_plus_the_margin() {
    let bench = bench();
    let deadline = bench.clock.now() + Duration::from_secs(5);
    let once = bench.once.deadline(deadline.into());
    let run = once.run(key(), payload(), |claim| {
        assert_eq!(claim.deadline(), Some(deadline.into()));
        assert_eq!(claim.remaining(), Some(Duration::from_secs(5)));
        async { Ok::<_, Infallible>(bench.record().await.lease.unwrap()) }
            .map(|lease| lease.map(|lease| lease.0))
    });
    assert_eq!(value(run.await), (deadline + MARGIN).0);
}

#[tokio::test]
async fn with_no_time_left_the_handler_does_not_run_and_the_key_is_free() {
    let bench = bench();
    let past = bench.clock.now() - Duration::from_secs(30);
    let once = bench.once.deadline(past.into());
    let late = once.run(key(), payload(), |_| async { Ok::<_, Infallible>(1) });
    assert!(matches!(late.await, Err(Error::TooLate)));
    let record = bench.record().await;
    assert!(
        record.is_released(),
        "its claim had a lease, and was released"
    );
    assert_eq!(value(bench.run(2).await), 2);
}

#[tokio::test]
async fn a_failed_attempt_that_derived_a_key_binds_it_to_its_payload() {
    let bench = bench();
    let failing = |derive: bool| {
        bench.once.run(key(), payload(), move |claim| async move {
            if derive {
                claim.derive_key("stripe");
            }
            Err::<i32, _>(HandlerError::other("timed out"))
        })
    };
    let other = || {
        let other = Fingerprint::bytes(b"other");
        bench
            .once
            .run(key(), other, |_| async { Ok::<_, Infallible>(1) })
    };
    failing(true).await.unwrap_err();
    assert!(matches!(other().await, Err(Error::Mismatch)));
    failing(false).await.unwrap_err();
    assert!(
        matches!(other().await, Err(Error::Mismatch)),
        "a later failure doesn't unbind it"
    );
    assert_eq!(value(bench.run(1).await), 1);
}

#[tokio::test]
async fn a_payload_that_met_a_crash_stays_bound() {
    let bench = bench();
    bench.crash().await;
    bench.clock.advance(LEASE + MARGIN);
    let failed = bench.once.run(key(), payload(), |_| async {
        Err::<i32, _>(HandlerError::other("down"))
    });
    failed.await.unwrap_err();
    let other = bench
        .once
        .run(key(), Fingerprint::bytes(b"other"), |_| async {
            Ok::<_, Infallible>(1)
        });
    assert!(matches!(other.await, Err(Error::Mismatch)));
}

#[tokio::test]
async fn an_outcome_whose_serialisation_panics_is_done_and_never_run_again() {
    struct Explosive;
    impl serde::Serialize for Explosive {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            panic!("boom")
        }
    }
    impl<'de> serde::Deserialize<'de> for Explosive {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            Ok(Self)
        }
    }
    let bench = bench();
    assert!(matches!(
        bench.run(Explosive).await,
        Ok(Outcome::Executed(_))
    ));
    let again = bench.run(Explosive).await;
    assert!(matches!(again, Err(Error::OutcomeOmitted { .. })));
}

#[tokio::test]
async fn a_verdict_that_panics_leaves_the_default() {
    let bench = bench();
    let judge = |_: &Result<i32, Infallible>| panic!("boom");
    let run = bench.once.run_with(
        key(),
        payload(),
        |_| async { Ok::<_, Infallible>(1) },
        judge,
    );
    assert_eq!(value(run.await), 1);
    assert_eq!(value(bench.run(2).await), 1);
}

#[tokio::test]
async fn a_wait_without_limit_is_no_panic() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::MAX)));
    assert_eq!(value(bench.run(1).await), 1);
}

#[tokio::test]
async fn a_record_in_progress_never_expires_before_its_lease() {
    let bench = bench_with(|builder| builder.retention(Duration::from_secs(1)));
    bench.crash().await;
    let record = bench.record().await;
    assert!(record.expiration.to_millis() >= record.lease.unwrap() + MARGIN);
}

#[tokio::test]
async fn an_expired_outcome_counts_as_absent_though_nothing_swept_it() {
    let bench = bench_with(|builder| builder.retention(Duration::from_hours(1)));
    assert_eq!(value(bench.run(1).await), 1);
    bench.clock.advance(Duration::from_hours(1));
    assert_eq!(value(bench.run(2).await), 1, "kept for its retention");
    bench.clock.advance(Duration::from_secs(3));
    let fresh = bench.once.run(key(), payload(), |claim| async move {
        Ok::<_, Infallible>(claim.attempt())
    });
    assert_eq!(value(fresh.await), 1);
}

#[tokio::test]
async fn derived_keys_are_equal_in_every_attempt_and_differ_by_effect() {
    let bench = bench();
    let keys = || async {
        let run = bench.once.run(key(), payload(), |claim| async move {
            Err::<(), _>(HandlerError::other(format!(
                "{} {}",
                claim.derive_key("stripe"),
                claim.derive_key("mail")
            )))
        });
        run.await.unwrap_err().into_handler().unwrap().to_string()
    };
    let first = keys().await;
    assert_eq!(first, keys().await);
    let (stripe, mail) = first.split_once(' ').unwrap();
    assert_ne!(stripe, mail);
}

#[tokio::test]
async fn an_outcome_over_the_inline_limit_is_compressed_and_replays() {
    let bench = bench_with(|builder| builder.inline_limit(10));
    assert_eq!(value(bench.run("x".repeat(5_000)).await).len(), 5_000);
    let again = bench.run(String::new()).await.unwrap();
    assert!(again.is_replayed());
    assert_eq!(again.into_inner(), "x".repeat(5_000));
}

#[tokio::test]
async fn an_outcome_without_a_json_form_is_done_and_never_run_again() {
    let bench = bench();
    let map = || std::collections::HashMap::from([(Some(1), 2), (None, 3)]);
    assert!(matches!(bench.run(map()).await, Ok(Outcome::Executed(_))));
    assert!(matches!(
        bench.run(map()).await,
        Err(Error::OutcomeOmitted {
            reason: Omission::NotSerializable,
            ..
        })
    ));
}

#[tokio::test]
async fn an_outcome_of_another_type_is_an_error_that_quotes_nothing() {
    let bench = bench();
    bench.run("secret".to_owned()).await.unwrap();
    let before = bench.found().await;
    let error = bench.run(7).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable(_)));
    assert!(!error.to_string().contains("secret"), "{error}");
    assert_eq!(bench.found().await, before);
}

#[tokio::test]
async fn a_waiting_duplicate_gets_the_outcome() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_secs(5))));
    let first = bench.once.run(key(), payload(), |_| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok::<_, Infallible>(1)
    });
    let (first, second) = tokio::join!(first, bench.run(2));
    assert_eq!(value(first), 1);
    assert!(second.unwrap().is_replayed());
}

#[tokio::test]
async fn a_waiting_duplicate_runs_when_the_first_fails() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_secs(5))));
    let first = bench.once.run(key(), payload(), |_| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Err::<i32, _>(HandlerError::other("down"))
    });
    let (first, second) = tokio::join!(first, bench.run(2));
    first.unwrap_err();
    assert_eq!(second.unwrap(), Outcome::Executed(2));
}

#[tokio::test]
async fn a_waiting_duplicate_gives_up_at_its_limit() {
    let bench =
        bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_millis(60))));
    bench.crash().await;
    let before = Instant::now();
    assert!(matches!(bench.run(1).await, Err(Error::InFlight { .. })));
    assert!(before.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn a_missing_key_is_refused_or_runs_unprotected() {
    let strict = bench();
    let without = strict
        .once
        .run(None, payload(), |_| async { Ok::<_, Infallible>(1) })
        .await;
    assert!(matches!(without, Err(Error::Key(KeyError::Missing))));

    let lenient = bench_with(|builder| builder.missing_key(MissingKey::RunUnprotected));
    let keys = Arc::new(std::sync::Mutex::new(Vec::new()));
    for _ in 0..2 {
        let keys = Arc::clone(&keys);
        let run = lenient.once.run(None, payload(), |claim| async move {
            assert!(!claim.is_protected());
            keys.lock().unwrap().push(claim.derive_key("stripe"));
            Ok::<_, Infallible>(1)
        });
        assert_eq!(run.await.unwrap(), Outcome::Unprotected(1));
    }
    let keys = keys.lock().unwrap();
    assert_ne!(
        keys[0], keys[1],
        "two requests without a key are two requests"
    );
    assert!(lenient.once.store().is_empty());
}

#[tokio::test]
async fn the_kill_switch_runs_handlers_unprotected_and_keeps_derived_keys() {
    let on = bench();
    let off = bench_with(|builder| builder.disabled(true));
    async fn derived(bench: &Bench) -> String {
        let run = bench.once.run(key(), payload(), |claim| async move {
            Ok::<_, Infallible>(claim.derive_key("stripe"))
        });
        value(run.await)
    }
    let protected = derived(&on).await;
    assert_eq!(derived(&off).await, protected);
    assert_eq!(derived(&off).await, protected);
    assert!(off.once.store().is_empty());
    let unusable = off.once.run(Key::new("charge", ""), payload(), |_| async {
        Ok::<_, Infallible>(1)
    });
    assert_eq!(unusable.await.unwrap(), Outcome::Unprotected(1));
}

#[tokio::test]
async fn a_key_that_cannot_be_used_runs_nothing() {
    let bench = bench();
    let long = "x".repeat(256);
    for token in ["", "a\u{0}b", "line\nbreak", long.as_str()] {
        let run = bench
            .once
            .run(Key::new("charge", token), payload(), |_| async {
                Ok::<_, Infallible>(1)
            });
        assert!(matches!(run.await, Err(Error::Key(_))), "{token:?}");
    }
    assert!(bench.once.store().is_empty());
    let umlauts = bench.once.run(
        Key::new("charge", "Zahlung-ÄÖÜ-支払い"),
        payload(),
        |_| async { Ok::<_, Infallible>(1) },
    );
    assert_eq!(value(umlauts.await), 1);
}
