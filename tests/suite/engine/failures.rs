//! The record after a handler that fails or panics, and the retries.

use super::*;
use crate::secrets::Log;

#[tokio::test(start_paused = true)]
async fn a_failed_handler_releases_so_that_a_retry_runs_at_once() {
    let bench = bench();
    let failed = bench.once.run(key(), payload(), |_| async {
        Err::<i32, _>(HandlerError::other("down"))
    });
    let failed = failed.await.unwrap_err();
    assert_matches!(&failed, Error::Handler(error) if error.to_string() == "down");
    let record = bench.record().await;
    assert!(record.is_released());
    assert_eq!(record.last_error.as_deref(), Some("std::io::error::Error"));

    assert_eq!(value(attempt(&bench.once, key()).await), 2);
    assert_eq!(
        bench.record().await.last_error.as_deref(),
        Some("std::io::error::Error")
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_is_logged_unless_another_attempt_holds_the_key() {
    for is_overtaken in [false, true] {
        let (bench, (log, _capture)) = (bench(), Log::capture());
        let failed = bench.once.run(key(), payload(), |_| async {
            if is_overtaken {
                bench.clock.advance(LEASE + MARGIN);
                bench.crash().await;
            }
            Err::<i32, _>(HandlerError::other("down"))
        });
        failed.await.unwrap_err();
        let text = log.text();
        assert_eq!(text.contains("\"released\""), !is_overtaken, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrected_payload_may_use_the_key_of_failed_attempts() {
    for (attempts, is_sent_twice) in [(1, false), (2, false), (1, true)] {
        let bench = bench();
        if is_sent_twice {
            bench.store.inject(Call::Create, Fault::Resent);
        }
        for _ in 0..attempts {
            bench.fails().await;
        }
        let corrected = value(bench.other().await);
        assert_eq!(corrected, 1, "{attempts} {is_sent_twice}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_payload_of_a_crashed_attempt_stays_bound_also_when_the_next_claim_is_sent_twice() {
    for is_sent_twice in [false, true] {
        let bench = bench();
        bench.crash().await;
        bench.clock.advance(LEASE + MARGIN);
        if is_sent_twice {
            bench.store.inject(Call::TakeOver, Fault::Resent);
        }
        bench.fails().await;
        let other = bench.other().await;
        assert_matches!(other, Err(Error::Mismatch), "{is_sent_twice}");
    }
}

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
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
    let record = bench.record().await;
    assert!(record.is_released());
    assert_eq!(record.fingerprint, Some(payload()), "an effect may exist");
    assert_matches!(bench.other().await, Err(Error::Mismatch));
    assert_eq!(value(bench.run(1).await), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_leaves_the_lease_where_an_operator_must_look() {
    let bench = bench_with(|builder| builder.on_crash(OnCrash::Interrupt));
    let panicking = bench.once.run(key(), payload(), |claim| async move {
        assert_eq!(claim.attempt(), 0, "boom");
        Ok::<_, Infallible>(0)
    });
    AssertUnwindSafe(panicking)
        .catch_unwind()
        .await
        .expect_err("the panic goes on");
    assert_matches!(bench.run(1).await, Err(Error::InFlight { .. }));
    bench.clock.advance(LEASE + MARGIN);
    assert_matches!(bench.run(1).await, Err(Error::Interrupted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_that_derived_a_key_binds_it_to_its_payload() {
    let bench = bench();
    let failing = bench.once.run(key(), payload(), |claim| async move {
        claim.derive_key("stripe");
        Err::<i32, _>(HandlerError::other("timed out"))
    });
    failing.await.unwrap_err();
    assert_matches!(bench.other().await, Err(Error::Mismatch));
    bench.fails().await;
    assert_matches!(
        bench.other().await,
        Err(Error::Mismatch),
        "a later failure doesn't unbind it"
    );
    assert_eq!(value(bench.run(1).await), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_whose_serialisation_panics_is_done_and_never_run_again() {
    #[derive(Debug)]
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
    assert_matches!(bench.run(Explosive).await, Ok(Outcome::Executed(_)));
    let again = bench.run(Explosive).await;
    assert_matches!(again, Err(Error::OutcomeOmitted { .. }));
}

#[tokio::test(start_paused = true)]
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

#[tokio::test(start_paused = true)]
async fn an_outcome_without_a_json_form_is_done_and_never_run_again() {
    let bench = bench();
    let map = || std::collections::HashMap::from([(Some(1), 2), (None, 3)]);
    assert_matches!(bench.run(map()).await, Ok(Outcome::Executed(_)));
    assert_matches!(
        bench.run(map()).await,
        Err(Error::OutcomeOmitted {
            reason: Omission::NotSerializable,
            ..
        })
    );
}

/// An error whose text can't be had.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Unspeakable {}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_whose_display_panics_is_stored_under_its_types_name() {
    for verdict in [Verdict::Fail, Verdict::Complete] {
        let bench = bench();
        let fail = || {
            let handler = |_| async { Err::<i32, _>(Unspeakable) };
            let fail = move |_: &Result<i32, Unspeakable>| verdict;
            bench.once.run_with(key(), payload(), handler, fail)
        };
        assert_matches!(fail().await, Err(Error::Handler(Unspeakable)));
        let Err(Error::Failed(failure)) = fail().await else {
            panic!("it is not final: {verdict:?}")
        };
        assert!(failure.message.ends_with("Unspeakable"));
    }
}
