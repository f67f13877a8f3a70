//! Requests without a key that could be used, and the kill switch.

use lambda_idempotency::AtDeadline;

use super::*;
use crate::secrets::Log;

#[tokio::test(start_paused = true)]
async fn a_missing_key_is_refused_or_runs_unprotected() {
    let strict = bench();
    let without = strict
        .once
        .run(None, payload(), |_| async { Ok::<_, Infallible>(1) })
        .await;
    assert_matches!(without, Err(Error::Key(KeyError::Missing)));

    let (log, _capture) = Log::capture();
    let lenient = bench_with(|builder| builder.on_missing_key(OnMissingKey::RunUnprotected));
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
    assert!(lenient.table.is_empty());
    let log = log.text();
    assert!(
        log.contains("unprotected") && log.contains("no idempotency key"),
        "{log}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_key_that_has_no_time_or_is_ended_is_logged() {
    let (log, _capture) = Log::capture();
    let bench = bench_with(|builder| {
        builder
            .on_missing_key(OnMissingKey::RunUnprotected)
            .settings(|settings| settings.at_deadline = AtDeadline::End)
    });
    for (time, event) in [(Duration::ZERO, "too_late"), (LEASE, "timed_out")] {
        let once = bench.once.deadline((bench.clock.now() + time).into());
        let hangs = |_| std::future::pending::<Result<i32, Infallible>>();
        let ended = once.run(None, payload(), hangs).await.unwrap_err();
        assert_eq!(ended.code(), event);
        let line = format!(r#"event="{event}" operation="" key="#);
        assert_eq!(log.text().matches(&line).count(), 1, "{}", log.text());
    }
}

#[tokio::test(start_paused = true)]
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
    assert!(off.table.is_empty());
    let unusable = attempt(&off.once, Key::new("charge", "")).await;
    assert_eq!(unusable.unwrap(), Outcome::Unprotected(1));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_used_runs_nothing() {
    let bench = bench();
    let long = "x".repeat(256);
    for token in ["", "a\u{0}b", "line\nbreak", long.as_str()] {
        let run = attempt(&bench.once, Key::new("charge", token)).await;
        assert_matches!(run, Err(Error::Key(_)), "{token:?}");
    }
    assert!(bench.table.is_empty());
    let longest = Key::raw("charge", "x".repeat(2_048));
    assert!(bench.once.record_id(&longest).is_ok());
    let umlauts = attempt(&bench.once, Key::new("charge", "Zahlung-ÄÖÜ-支払い")).await;
    assert_eq!(value(umlauts), 1);
}
