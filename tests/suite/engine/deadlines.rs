//! Deadlines that no invocation of the engine can have, as local emulators send them.

use lambda_idempotency::EpochMillis;

use super::*;
use crate::secrets::Log;
use crate::support::alone;

/// The deadline that `cargo lambda watch` sends with each event.
const OF_CARGO_LAMBDA: EpochMillis = EpochMillis(600_000);

fn warnings(log: &Log) -> usize {
    log.text().matches(r#"event="deadline_unknown""#).count()
}

#[tokio::test(start_paused = true)]
async fn a_deadline_earlier_than_the_engine_is_ignored_and_the_configured_lease_applies() {
    let built_at = bench().clock.now();
    for earlier in [
        EpochMillis(0),
        OF_CARGO_LAMBDA,
        built_at - Duration::from_millis(1),
    ] {
        let bench = bench_with(|builder| builder.clock(ManualClock::at(built_at)));
        let once = bench.once.deadline(earlier.into());
        let run = once.run(key(), payload(), |claim| {
            assert_eq!(claim.deadline(), Some((built_at + LEASE).into()));
            async { Ok::<_, Infallible>(bench.record().await.lease.unwrap().0) }
        });
        assert_eq!(value(run.await), (built_at + LEASE + MARGIN).0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_at_the_engines_construction_is_believed_and_has_passed() {
    let (log, _capture) = Log::capture();
    let bench = bench();
    let once = bench.once.deadline(bench.clock.now().into());
    let late = attempt(&once, key()).await;
    assert_matches!(late, Err(Error::TooLate));
    assert_eq!(warnings(&log), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_just_after_the_engines_construction_is_believed() {
    let (log, _capture) = Log::capture();
    let bench = bench();
    let soon = bench.clock.now() + Duration::from_millis(1);
    let once = bench.once.deadline(soon.into());
    let run = once.run(key(), payload(), |_| async {
        Ok::<_, Infallible>(bench.record().await.lease.unwrap().0)
    });
    assert_eq!(value(run.await), (soon + MARGIN).0);
    assert_eq!(warnings(&log), 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_warns_once_of_unknown_deadlines_and_says_what_it_does() {
    let (log, _capture) = Log::capture();
    let bench = bench();
    for order in 0..3 {
        let once = bench.once.clone().deadline(OF_CARGO_LAMBDA.into());
        let key = Key::new("charge", format!("order-{order}"));
        assert_eq!(value(attempt(&once, key).await), 1);
    }
    assert_eq!(warnings(&log), 1);
    let text = log.text();
    let line = text.lines().find(|line| line.contains("deadline_unknown"));
    let line = line.unwrap();
    for said in [
        "WARN",
        "deadline_ms=600000",
        &format!("built_at_ms={}", bench.clock.now().0),
        "lease_ms=60000",
        "it is ignored, and claims last for the configured lease",
    ] {
        assert!(line.contains(said), "{said} is not in {line}");
    }

    let _ = bench_with(|builder| builder.renewed_lease(Duration::from_secs(30)))
        .once
        .deadline(OF_CARGO_LAMBDA.into());
    assert!(log.text().contains("lease_ms=30000"), "{}", log.text());
    assert_eq!(warnings(&log), 2, "another engine warns for itself");
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_with_an_unknown_deadline_waits_as_long_as_it_may() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_secs(5))));
    let once = bench.once.deadline(OF_CARGO_LAMBDA.into());
    let first = once.run(key(), payload(), |_| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok::<_, Infallible>(1)
    });
    let second = once.run(key(), payload(), |_| async { Ok::<_, Infallible>(2) });
    let (first, second) = tokio::join!(first, second);
    assert_eq!(value(first), 1);
    assert!(second.unwrap().is_replayed());
}

const MISSING: &str = concat!(
    module_path!(),
    "::an_engine_in_lambda_warns_once_of_a_deadline_that_nobody_binds"
);

#[tokio::test(start_paused = true)]
async fn an_engine_in_lambda_warns_once_of_a_deadline_that_nobody_binds() {
    if let Some(child) = alone::child() {
        let (log, _capture) = Log::capture();
        let bench = bench();
        let once = match child.as_str() {
            "bound" => {
                let end = bench.clock.now() + LEASE;
                bench.once.deadline(end.into())
            }
            "zero" => bench.once.deadline(SystemTime::UNIX_EPOCH),
            "watched" => bench.once.deadline(OF_CARGO_LAMBDA.into()),
            "renewed" => bench_with(|builder| builder.renewed_lease(LEASE)).once,
            _ => bench.once.clone(),
        };
        for order in 0..3 {
            let key = Key::new("charge", format!("order-{order}"));
            assert_eq!(value(attempt(&once, key).await), 1);
        }
        let text = log.text();
        let warnings = text.matches(r#"event="deadline_missing""#).count();
        println!("\nwarnings: {warnings}");
        return;
    }
    let name = [("AWS_LAMBDA_FUNCTION_NAME", "charge")];
    let api = [("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")];
    for (child, variables, expected) in [
        ("outside", &[][..], 0),
        ("forgotten", &name, 1),
        ("forgotten", &api, 1),
        ("zero", &name, 1),
        ("bound", &name, 0),
        ("renewed", &name, 0),
        // The other warning has said so.
        ("watched", &name, 0),
    ] {
        let output = alone::run(MISSING, child, variables);
        let printed = String::from_utf8(output.stdout).unwrap();
        let line = format!("warnings: {expected}\n");
        assert!(printed.contains(&line), "{child}: {printed}");
    }
}
