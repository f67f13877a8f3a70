//! Journaled steps: an effect that is confirmed never fires again, one that was under way follows its policy.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lambda_idempotency::protocol::journal::{MAX_STEP_RESULT_BYTES, StepState};
use lambda_idempotency::protocol::record::Record;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    Builder, Claim, Error, Fingerprint, Idempotency, Key, Omission, OnCrash, Outcome, PreparedStep,
    Step, StepError, Verdict,
};
use tokio::time::Instant;

use crate::support::crash::kill;

mod faults;
mod interrupted;
mod prepared;
mod transaction;

const ID: &str = "steps#1";
const LEASE: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
enum Provider {
    #[error("timed out")]
    TimedOut,
    #[error("declined")]
    Declined,
}

type Result<T> = std::result::Result<T, StepError<Provider>>;

/// An engine in memory, with a clock to set by hand, and an effect that counts.
struct Bench {
    clock: ManualClock,
    store: MemoryStore,
    once: Idempotency,
    fired: Arc<AtomicUsize>,
}

fn bench() -> Bench {
    bench_with(|builder| builder)
}

fn bench_with(settings: impl FnOnce(Builder) -> Builder) -> Bench {
    let clock = ManualClock::default();
    let store = MemoryStore::new();
    let builder = Idempotency::builder(store.clone())
        .namespace("steps")
        .lease(LEASE)
        .clock(clock.clone());
    Bench {
        clock,
        store,
        once: settings(builder).build().unwrap(),
        fired: Arc::default(),
    }
}

fn key() -> Key {
    Key::new("order", "A-17")
}

fn payload() -> Fingerprint {
    Fingerprint::bytes(b"payload")
}

impl Bench {
    fn fired(&self) -> usize {
        self.fired.load(Ordering::Relaxed)
    }

    /// The effect: it counts, and gives its number.
    fn effect(&self) -> impl Future<Output = std::result::Result<usize, Provider>> + use<> {
        let fired = Arc::clone(&self.fired);
        async move { Ok(fired.fetch_add(1, Ordering::Relaxed) + 1) }
    }

    async fn run<T, Fut>(
        &self,
        handler: impl FnOnce(Claim) -> Fut,
    ) -> std::result::Result<Outcome<T>, Error<StepError<Provider>>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
        Fut: Future<Output = Result<T>>,
    {
        self.once.run(key(), payload(), handler).await
    }

    /// An attempt that dies while the effect of `charge` is under way; its lease is over then.
    async fn die_in_the_step(&self) {
        let attempt = self.run(|claim| async move {
            claim
                .step("charge", |_| async {
                    self.effect().await?;
                    std::future::pending::<std::result::Result<usize, Provider>>().await
                })
                .await
        });
        kill(attempt).await;
        self.clock.advance(LEASE * 2);
    }

    async fn record(&self) -> Record {
        let id = self.once.record_id(&key()).unwrap();
        let found = self
            .once
            .store()
            .load(&id, Instant::now() + LEASE)
            .await
            .unwrap();
        *found.expect("a record").content.expect("a readable one")
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_confirmed_gives_its_result_to_the_next_attempt_and_does_not_fire() {
    let bench = &bench();
    let failed = bench.run(|claim| async move {
        assert_eq!(claim.step("charge", |_| bench.effect()).await?, 1);
        claim
            .step("mail", |_| async { Err::<(), _>(Provider::TimedOut) })
            .await?;
        Ok(0)
    });
    let error = failed.await.unwrap_err();
    assert_matches!(error, Error::Handler(StepError::Effect(Provider::TimedOut)));

    let outcome = bench.run(|claim| async move {
        assert_eq!(claim.attempt(), 2);
        let receipt = claim.step("charge", |_| bench.effect()).await?;
        claim.step("mail", |_| bench.effect()).await?;
        Ok(receipt)
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Executed(1));
    assert_eq!(bench.fired(), 2, "one charge, one mail");
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_attempt_did_is_known_for_the_retention_after_its_failure() {
    let (hour, minutes) = (Duration::from_hours(1), Duration::from_mins);
    let bench = &bench_with(|builder| builder.lease(hour).retention(hour));
    let failed = bench.run(|claim| async move {
        claim.step("charge", |_| bench.effect()).await?;
        bench.clock.advance(minutes(40));
        Err::<usize, _>(StepError::Effect(Provider::TimedOut))
    });
    failed.await.unwrap_err();
    bench.clock.advance(minutes(50));
    let again = bench.run(|claim| async move { claim.step("charge", |_| bench.effect()).await });
    assert_eq!(again.await.unwrap(), Outcome::Executed(1));
    assert_eq!(bench.fired(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_done_before_a_permanent_failure_is_not_repeated_within_the_retention() {
    let (hour, day) = (Duration::from_hours(1), Duration::from_hours(24));
    let bench = &bench_with(|builder| {
        builder
            .settings(|settings| settings.failure_retention = hour)
            .retention(day)
    });
    let attempt = async || {
        let handler = async |claim: Claim| {
            claim.step("charge", |_| bench.effect()).await?;
            Err::<usize, _>(StepError::Effect(Provider::TimedOut))
        };
        let run = bench
            .once
            .run_with(key(), payload(), handler, |_| Verdict::Fail);
        run.await.unwrap_err()
    };
    attempt().await;
    bench.clock.advance(2 * hour);
    let again = attempt().await;
    assert_matches!(again, Error::Failed(_));
    bench.clock.advance(day);
    attempt().await;
    assert_eq!(bench.fired(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_confirmation_does_not_repeat_the_effect() {
    let bench = &bench();
    let attempt = bench.run(|claim| async move {
        claim.step("charge", |_| bench.effect()).await?;
        std::future::pending::<Result<usize>>().await
    });
    kill(attempt).await;
    bench.clock.advance(LEASE * 2);

    let again = bench.run(|claim| async move { claim.step("charge", |_| bench.effect()).await });
    assert_eq!(again.await.unwrap(), Outcome::Executed(1));
    assert_eq!(bench.fired(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_was_under_way_fires_again_with_the_same_key() {
    let bench = &bench();
    bench.die_in_the_step().await;
    let entry = bench.record().await.journal.get("charge").cloned().unwrap();
    assert_eq!((entry.state, entry.tries), (StepState::Pending, 1));

    let outcome = bench.run(|claim| async move {
        let expected = claim.derive_key("charge");
        claim
            .step("charge", |key| async move {
                assert_eq!(key, expected);
                bench.effect().await
            })
            .await
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Executed(2));
    let entry = bench.record().await.journal.get("charge").cloned().unwrap();
    assert_eq!(entry.tries, 2);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_failed_may_be_tried_again_in_the_same_attempt() {
    let bench = &bench();
    let outcome = bench.run(|claim| async move {
        let first = claim
            .step("charge", |_| async { Err::<usize, _>(Provider::TimedOut) })
            .await;
        assert_matches!(first, Err(StepError::Effect(_)));
        claim.step("charge", |_| bench.effect()).await
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Executed(1));
    let entry = bench.record().await.journal.get("charge").cloned().unwrap();
    assert_eq!(entry.tries, 2);
    assert_eq!(entry.state, StepState::Confirmed(Ok("1".into())));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_used_once_in_an_attempt() {
    let bench = &bench();
    let outcome = bench.run(|claim| async move {
        claim.step("charge", |_| bench.effect()).await?;
        let again = claim.step("charge", |_| bench.effect()).await;
        assert_matches!(again, Err(StepError::Repeated { .. }));
        let inner = claim.clone();
        claim
            .step("outer", |_| async move {
                let busy = inner.step("outer", |_| bench.effect()).await;
                assert_matches!(busy, Err(StepError::Repeated { .. }));
                Ok(())
            })
            .await?;
        let bad = claim.step("two words", |_| bench.effect()).await;
        assert_matches!(bad, Err(StepError::Name { .. }));
        Ok(())
    });
    outcome.await.unwrap();
    assert_eq!(bench.fired(), 1);
}

#[tokio::test(start_paused = true)]
async fn steps_run_side_by_side() {
    let bench = &bench();
    let outcome = bench.run(|claim| async move {
        let (one, two) = tokio::join!(
            claim.step("one", |_| bench.effect()),
            claim.step("two", |_| bench.effect()),
        );
        Ok(one? + two?)
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Executed(3));
    assert_eq!(bench.record().await.journal.iter().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_journal_without_room_begins_no_further_step() {
    let bench = &bench();
    let outcome = bench.run(|claim| async move {
        for number in 0..50 {
            claim
                .step(format!("step-{number}"), |_| bench.effect())
                .await?;
        }
        let more = claim.step("one-more", |_| bench.effect()).await;
        assert_matches!(more, Err(StepError::Full { .. }));
        Ok(())
    });
    outcome.await.unwrap();
    assert_eq!(bench.fired(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_large_is_given_once_and_never_brought_about_again() {
    let bench = &bench();
    let large = "x".repeat(MAX_STEP_RESULT_BYTES);
    let given = large.clone();
    let failed = bench.run(|claim| async move {
        let result = claim
            .step("export", |_| async { Ok(given.clone()) })
            .await?;
        assert_eq!(result, given);
        Err::<(), _>(StepError::Effect(Provider::TimedOut))
    });
    failed.await.unwrap_err();

    let again = bench.run(|claim| async move {
        let result: Result<String> = claim
            .step("export", |_| async { panic!("fired again") })
            .await;
        let Err(StepError::ResultOmitted { reason, .. }) = &result else {
            panic!("{result:?}")
        };
        assert_eq!(*reason, Omission::TooLarge);
        Ok(())
    });
    again.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_that_no_longer_decodes_is_an_error_and_the_effect_does_not_fire() {
    let bench = &bench();
    let first = bench.run(|claim| async move {
        claim
            .step("charge", |_| async { Ok("secret".to_owned()) })
            .await?;
        Err::<(), _>(StepError::Effect(Provider::TimedOut))
    });
    first.await.unwrap_err();
    let again = bench.run(|claim| async move {
        let error = claim.step("charge", |_| bench.effect()).await.unwrap_err();
        assert_matches!(error, StepError::Unreadable { .. });
        assert!(!error.to_string().contains("secret"), "{error}");
        Ok(())
    });
    again.await.unwrap();
    assert_eq!(bench.fired(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_succeeded_begins_no_step_and_reports_the_lost_lease() {
    let bench = &bench();
    let stale = bench.run(|claim| async move {
        let charged = claim.step("charge", |_| bench.effect()).await?;
        bench.clock.advance(LEASE * 2);
        let successor = bench.run(|claim| async move {
            assert_eq!(claim.step("charge", |_| bench.effect()).await?, charged);
            Ok(100)
        });
        assert_eq!(successor.await.unwrap(), Outcome::Executed(100));
        // A clock that goes wrong doesn't matter: the fence does.
        bench.clock.set(lambda_idempotency::EpochMillis(0));
        claim.step("mail", |_| bench.effect()).await
    });
    let error = stale.await.unwrap_err();
    assert_matches!(error, Error::LeaseLost);
    assert_eq!(bench.fired(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_time_is_over_begins_no_step() {
    let bench = &bench();
    let late = bench.run(|claim| async move {
        bench.clock.advance(LEASE);
        claim.step("charge", |_| bench.effect()).await
    });
    let error = late.await.unwrap_err();
    assert_matches!(error, Error::Handler(StepError::OutOfTime));
    assert_eq!(bench.fired(), 0);
    assert!(bench.record().await.journal.iter().next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_release_binds_the_payload_once_a_step_was_begun() {
    let bench = &bench();
    let failed = bench.run(|claim| async move {
        claim
            .step("charge", |_| async { Err::<usize, _>(Provider::Declined) })
            .await
    });
    failed.await.unwrap_err();
    let other = Fingerprint::bytes(b"other");
    let refused = bench
        .once
        .run(key(), other, |_| async { Ok::<_, Infallible>(1) })
        .await;
    assert_matches!(refused, Err(Error::Mismatch));
}

#[tokio::test(start_paused = true)]
async fn the_journal_of_an_expired_record_is_forgotten() {
    let bench = &bench_with(|builder| builder.retention(LEASE));
    let first = bench.run(|claim| async move { claim.step("charge", |_| bench.effect()).await });
    assert_eq!(first.await.unwrap(), Outcome::Executed(1));
    bench.clock.advance(LEASE * 3);
    let fresh = bench.run(|claim| async move { claim.step("charge", |_| bench.effect()).await });
    assert_eq!(fresh.await.unwrap(), Outcome::Executed(2));
}

#[tokio::test(start_paused = true)]
async fn without_protection_an_effect_fires_and_nothing_is_recorded() {
    let bench = &bench_with(|builder| builder.disabled(true));
    for run in 1..3 {
        let outcome = bench.run(|claim| async move {
            let number = claim.step("charge", |_| bench.effect()).await?;
            let again = claim.step("charge", |_| bench.effect()).await;
            assert_matches!(
                again,
                Err(StepError::Repeated { .. }),
                "a mistake shows here, too"
            );
            Ok(number)
        });
        assert_eq!(outcome.await.unwrap(), Outcome::Unprotected(run));
    }
    assert!(bench.store.is_empty());
}
