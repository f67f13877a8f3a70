//! Runs in their own tasks, and their callers.

use lambda_idempotency::{AtDeadline, Begun, Disposition, StoreError};
use tokio::sync::Notify;

use super::*;
use crate::secrets::Log;

/// A handler that says when it has begun, and waits to be let go.
#[derive(Clone, Default)]
struct Gate {
    begun: Arc<Notify>,
    open: Arc<Notify>,
}

impl Gate {
    async fn pass<T>(self, value: T) -> Result<T, Infallible> {
        self.begun.notify_one();
        self.open.notified().await;
        Ok(value)
    }
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_goes_on_when_its_caller_has_gone() {
    let bench = bench();
    let gate = Gate::default();
    let handler = gate.clone();
    let run = bench
        .once
        .run_detached(key(), payload(), |_| handler.pass(1));
    tokio::select! {
        _ = run => panic!("it waits"),
        () = gate.begun.notified() => {}
    }
    gate.open.notify_one();
    assert_eq!(bench.once.drain(LEASE).await, 0);
    let retry = bench.run(2).await.unwrap();
    assert!(retry.is_replayed());
    assert_eq!(retry.into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_beyond_the_limit_is_refused_before_its_claim() {
    let bench = bench_with(|builder| {
        builder.settings(|settings| settings.detached_limit = NonZeroU32::MIN)
    });
    let gate = Gate::default();
    let handler = gate.clone();
    let first = bench.once.clone();
    let first = tokio::spawn(async move {
        let run = first.run_detached(Key::new("charge", "order-0"), None, |_| handler.pass(1));
        run.await
    });
    gate.begun.notified().await;
    let run = || {
        let handler = |_| async { Ok::<_, Infallible>(2) };
        bench.once.run_detached(key(), payload(), handler)
    };
    assert_matches!(run().await, Err(Error::Overloaded));
    let id = bench.once.record_id(&key()).unwrap();
    let deadline = Instant::now() + LEASE;
    assert_eq!(bench.once.store().load(&id, deadline).await.unwrap(), None);

    gate.open.notify_one();
    assert_eq!(value(first.await.unwrap()), 1);
    assert_eq!(value(run().await), 2);
}

#[tokio::test(start_paused = true)]
async fn duplicates_that_wait_for_a_detached_run_keep_no_other_request_out() {
    let bench = bench_with(|builder| {
        let two = NonZeroU32::new(2).unwrap();
        builder
            .settings(|settings| settings.detached_limit = two)
            .in_flight(InFlight::WaitUpTo(LEASE))
    });
    let gate = Gate::default();
    let run = |value, gate: Option<Gate>| {
        let once = bench.once.clone();
        tokio::spawn(async move {
            let handler = async move |_| match gate {
                Some(gate) => gate.pass(value).await,
                None => Ok(value),
            };
            once.run_detached(key(), payload(), handler).await
        })
    };
    let mut all = vec![run(1, Some(gate.clone()))];
    gate.begun.notified().await;
    for duplicate in 2..9 {
        all.push(run(duplicate, None));
        // It has met the first one's record.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let other = |_| async { Ok::<_, Infallible>(10) };
    let other = bench
        .once
        .run_detached(Key::new("charge", "another"), None, other);
    assert_eq!(value(other.await), 10);

    gate.open.notify_one();
    for answer in all {
        assert_eq!(value(answer.await.unwrap()), 1);
    }
    assert_eq!(bench.once.drain(LEASE).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_drained_begins_no_detached_run() {
    let bench = bench();
    assert_eq!(bench.once.drain(Duration::ZERO).await, 0);
    let run = bench
        .once
        .run_detached(key(), payload(), |_| async { Ok::<_, Infallible>(1) });
    assert_matches!(run.await, Err(Error::Overloaded));
    // A run of the caller's own still does.
    assert_eq!(value(bench.run(2).await), 2);
}

#[tokio::test(start_paused = true)]
async fn runs_that_draining_leaves_are_logged_with_what_to_do() {
    let (log, _capture) = Log::capture();
    let bench = bench();
    let gates = [Gate::default(), Gate::default()];
    for (name, gate) in ["order-1", "order-2"].into_iter().zip(gates.clone()) {
        let once = bench.once.clone();
        let begun = gate.begun.clone();
        tokio::spawn(async move {
            let run = once.run_detached(Key::new("charge", name), None, |_| gate.pass(1));
            run.await
        });
        begun.notified().await;
    }
    assert_eq!(bench.once.drain(Duration::from_millis(20)).await, 2);
    let log_of_both = log.text();
    for said in [
        r#"event="drain_timed_out""#,
        "left=2",
        "2 runs or endings are left after 20ms",
        "cut off before their outcomes are stored",
        "drain for longer",
    ] {
        assert!(log_of_both.contains(said), "{said} in {log_of_both}");
    }

    for gate in gates {
        gate.open.notify_one();
    }
    assert_eq!(bench.once.drain(LEASE).await, 0);
    assert_eq!(log.text().matches("drain_timed_out").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_gave_up_lets_no_waiter_begin() {
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("engine")
        .in_flight(InFlight::WaitUpTo(LEASE))
        .build()
        .unwrap();
    let Ok(Begun::Run(elsewhere)) = once.begin(key(), None).await else {
        panic!("it is new");
    };
    let waits = tokio::spawn({
        let once = once.clone();
        async move {
            once.run_detached(key(), None, |_| async { Ok::<_, Infallible>(1) })
                .await
        }
    });
    let busy = tokio::spawn({
        let once = once.clone();
        let handler = |_| std::future::pending::<Result<i32, Infallible>>();
        async move {
            once.run_detached(Key::new("charge", "busy"), None, handler)
                .await
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(once.drain(Duration::from_secs(1)).await > 0);
    elsewhere.end(Disposition::Release(None)).await.unwrap();
    let waited = waits.await.unwrap();
    assert_matches!(waited, Err(Error::InFlight { .. }));
    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn the_panic_of_a_detached_handler_reaches_its_caller() {
    let bench = bench();
    let run = bench.once.run_detached(key(), payload(), |_| async {
        std::panic::resume_unwind(Box::new("on purpose"));
        #[allow(unreachable_code, reason = "it gives the handler its type")]
        Ok::<i32, Infallible>(1)
    });
    let panic = AssertUnwindSafe(run).catch_unwind().await.unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    assert!(bench.record().await.is_released());
    assert_eq!(value(bench.run(2).await), 2);
}

#[tokio::test(start_paused = true)]
async fn an_engine_in_an_invocation_spawns_nothing() {
    let bench = bench_with(|once| once.settings(|settings| settings.at_deadline = AtDeadline::End));
    let deadline = bench.clock.now() + LEASE;
    let once = bench.once.deadline(deadline.into());
    let gate = Gate::default();
    let handler = gate.clone();
    let run = once.run_detached(key(), payload(), |_| handler.pass(1));
    tokio::select! {
        _ = run => panic!("it waits"),
        () = gate.begun.notified() => {}
    }
    assert_eq!(once.drain(LEASE).await, 0);
    // The run was dropped with its caller: nobody waits at the gate any more.
    assert_eq!(Arc::strong_count(&gate.open), 1);
}

#[test]
fn a_detached_run_that_the_runtimes_end_cuts_off_is_unrecorded() {
    let bench = bench();
    let gate = Gate::default();
    let handler = gate.clone();
    let once = bench.once.clone();
    let server = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let mut run = Box::pin(once.run_detached(key(), payload(), |_| handler.pass(1)));
    server.block_on(async {
        tokio::select! {
            _ = &mut run => panic!("it waits"),
            () = gate.begun.notified() => {}
        }
    });
    server.shutdown_background();
    let caller = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let error = caller.block_on(run).unwrap_err();
    assert_matches!(error, Error::Unrecorded(StoreError::Unavailable(_)));
}

#[tokio::test(start_paused = true)]
async fn a_detached_duplicate_stops_to_wait_when_its_caller_has_gone() {
    let bench = bench_with(|once| once.in_flight(InFlight::WaitUpTo(LEASE)));
    let gate = Gate::default();
    let handler = gate.clone();
    let first = bench.once.clone();
    let first = tokio::spawn(async move {
        let run = first.run_detached(key(), payload(), |_| handler.pass(1));
        run.await
    });
    gate.begun.notified().await;
    let held = Arc::new(());
    let copy = Arc::clone(&held);
    let handler = move |_| async move {
        drop(copy);
        Ok::<_, Infallible>(2)
    };
    let duplicate = bench.once.run_detached(key(), payload(), handler);
    let waits = tokio::time::timeout(Duration::from_secs(1), duplicate);
    assert!(waits.await.is_err(), "it waits for the first");
    assert_eq!(Arc::strong_count(&held), 2);
    // Between two looks, at most a second and its jitter.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(Arc::strong_count(&held), 1, "it has ended");

    gate.open.notify_one();
    assert_eq!(value(first.await.unwrap()), 1);
}
