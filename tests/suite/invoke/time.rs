//! A handler whose time is over.

use futures_util::FutureExt;
use lambda_idempotency::InFlight;
use lambda_idempotency::testing::{Call, Fault, FaultyStore};
use tokio::time::Instant;

use super::*;
use crate::metrics::Counted;
use crate::secrets::Log;

on_each_server!(a_handler_that_hangs_is_ended_before_the_deadline_and_a_retry_runs);
async fn a_handler_that_hangs_is_ended_before_the_deadline_and_a_retry_runs(server: Server) {
    let once = builder(server.store().await).build().unwrap();
    let runs = Runs::default();
    let count = runs.clone();
    let function = settle(&once).handler(move |_| {
        let run = count.count();
        async move {
            if run == 1 {
                std::future::pending::<()>().await;
            }
            Ok(run)
        }
    });
    let invocation = TestInvocation::json(&settlement("s-1", 5)).unwrap();
    let began = Instant::now();
    let mut hanging = invocation.clone().event();
    hanging.context.deadline = VirtualClock::deadline(Duration::from_secs(4));
    let ended = function.clone().oneshot(hanging).await.unwrap_err();
    assert_eq!(ended.error_type(), Some("Idempotency.TimedOut"));
    let took = began.elapsed();
    assert!(
        took > Duration::from_secs(3) && took < Duration::from_secs(4),
        "{took:?}"
    );
    assert_eq!(invoke(&function, &settlement("s-1", 5)).await.unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn the_reserve_is_at_most_half_of_the_time() {
    for (reserve, expected) in [(1, 3_000), (30, 2_000)] {
        let function = settle(&engine())
            .settings(|settings| settings.reserve = Some(Duration::from_secs(reserve)));
        let function = function.handler(|_| std::future::pending::<Result<u8, SettleError>>());
        let mut event = TestInvocation::json(&settlement("s-1", 5)).unwrap().event();
        event.context.deadline = VirtualClock::deadline(Duration::from_secs(4));
        let began = Instant::now();
        let ended = function.oneshot(event).await.unwrap_err();
        assert_eq!(ended.error_type(), Some("Idempotency.TimedOut"));
        let took = began.elapsed().as_millis();
        assert!(took.abs_diff(expected) < 100, "{took} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_never_ready_holds_no_key() {
    #[derive(Clone)]
    struct NeverReady {
        fails: bool,
    }
    impl Service<Invocation<Settlement>> for NeverReady {
        type Response = u8;
        type Error = SettleError;
        type Future = std::future::Ready<Result<u8, SettleError>>;
        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), SettleError>> {
            if self.fails {
                return std::task::Poll::Ready(Err(SettleError::Unreachable));
            }
            std::task::Poll::Pending
        }
        fn call(&mut self, _: Invocation<Settlement>) -> Self::Future {
            std::future::ready(Ok(0))
        }
    }
    let once = engine();
    let function = tower::Layer::layer(&settle(&once), NeverReady { fails: false });
    let invocation = TestInvocation::json(&settlement("s-1", 5)).unwrap();
    let event = invocation.timeout(Duration::from_millis(400)).event();
    let ended = function.oneshot(event).await.unwrap_err();
    assert_eq!(ended.error_type(), Some("Idempotency.TooLate"));
    let runs = Runs::default();
    invoke(&settling(&once, &runs), &settlement("s-1", 5))
        .await
        .unwrap();
    assert_eq!(runs.take(), 1);
    // Without a claim, a duplicate gets the answer all the same.
    let server = Server::dynoxide().await;
    let waiting = InFlight::WaitUpTo(Duration::from_secs(1));
    let waiting = builder(server.store().await).in_flight(waiting);
    let once = waiting.build().unwrap().claimless();
    let first = invoke(&settling(&once, &runs), &settlement("s-1", 5)).await;
    let shown = Runs::default();
    let broken = |once: &Idempotency| {
        let shown = shown.clone();
        let layer = settle(once).on_error(move |_, _| {
            shown.count();
        });
        tower::Layer::layer(&layer, NeverReady { fails: true })
    };
    let second = invoke(&broken(&once), &settlement("s-1", 5)).await;
    assert_eq!(second.unwrap(), first.unwrap());
    // The caller of a new one gets the handler's error.
    for once in [once, engine()] {
        let error_type = error_type(&broken(&once), &settlement("s-2", 5)).await;
        assert_eq!(error_type, "Unreachable");
    }
    assert_eq!(shown.take(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_time_is_over_when_its_claim_is_made_does_not_begin() {
    let (log, _capture) = Log::capture();
    let counted = Counted::new();
    let store = FaultyStore::new(MemoryStore::new());
    let once = builder(store.clone()).build().unwrap();
    let runs = Runs::default();
    // A thread that is blocked when the claim is answered, until no handler may begin any more.
    let blocked = async || {
        tokio::time::sleep(Duration::from_millis(8_900)).await;
        tokio::time::advance(Duration::from_millis(700)).now_or_never();
    };
    store.inject(Call::Create, Fault::ReplyDelayed(Duration::from_secs(9)));
    let mut event = TestInvocation::json(&settlement("s-1", 5)).unwrap().event();
    event.context.deadline = VirtualClock::deadline(Duration::from_secs(10));
    let late = settling(&once, &runs).oneshot(event);
    let (late, ()) = tokio::join!(late, blocked());
    let late = late.unwrap_err();
    assert_eq!(late.error_type(), Some("Idempotency.TooLate"));

    store.inject(Call::Create, Fault::ReplyDelayed(Duration::from_secs(9)));
    let deadline = VirtualClock::deadline(Duration::from_secs(10));
    let deadline = std::time::UNIX_EPOCH + Duration::from_millis(deadline);
    let key = lambda_idempotency::Key::new("settle", "s-2");
    let once_more = once.deadline(deadline);
    let run = once_more.run(key, None, |_| {
        runs.count();
        async { Ok::<_, String>(1) }
    });
    let (late, ()) = tokio::join!(run, blocked());
    let late = late.unwrap_err();
    assert_matches!(late, lambda_idempotency::Error::TooLate);
    assert_eq!(runs.take(), 0);
    assert_eq!(counted.take().get("too_late"), Some(&2));
    let log = log.text();
    assert_eq!(log.matches(r#"event="too_late""#).count(), 2, "{log}");
    invoke(&settling(&once, &runs), &settlement("s-1", 5))
        .await
        .unwrap();
    assert_eq!(runs.take(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_behind_a_handler_that_hung_or_panicked_does_not_hold_the_answer_up() {
    const TIME: Duration = Duration::from_secs(4);
    let mut late = Vec::new();
    for (panics, word) in [
        (false, "Idempotency.TimedOut"),
        (true, "Idempotency.Panicked"),
    ] {
        let store = FaultyStore::new(MemoryStore::new());
        let once = builder(store.clone()).build().unwrap();
        let function = settle(&once).handler(move |_| {
            let store = store.clone();
            async move {
                store.inject(Call::Release, Fault::Delayed(Duration::from_hours(1)));
                // Shortly before it is ended.
                tokio::time::sleep(Duration::from_millis(3_750)).await;
                assert!(!panics, "injected");
                std::future::pending::<Result<u32, SettleError>>().await
            }
        });
        let mut event = TestInvocation::json(&settlement("s-1", 5)).unwrap().event();
        event.context.deadline = VirtualClock::deadline(TIME);
        let began = Instant::now();
        let ended = function.oneshot(event).await.unwrap_err();
        assert_eq!(ended.error_type(), Some(word));
        let took = began.elapsed();
        if took >= TIME {
            late.push((word, took));
        }
    }
    assert!(late.is_empty(), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn an_invocation_that_outlives_its_deadline_runs_once_where_it_goes_on() {
    let once =
        builder(MemoryStore::new()).settings(|settings| settings.at_deadline = AtDeadline::GoOn);
    let once = once.build().unwrap();
    let runs = Runs::default();
    let count = runs.clone();
    let function = settle(&once).handler(move |_| {
        let count = count.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(count.count())
        }
    });
    let call = async || {
        let mut event = TestInvocation::json(&settlement("s-1", 5)).unwrap().event();
        event.context.deadline = VirtualClock::deadline(Duration::from_secs(2));
        function.clone().oneshot(event).await
    };
    let again = async {
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        call().await
    };
    let (first, again) = tokio::join!(call(), again);
    let again = again.unwrap_err();
    assert_eq!(again.error_type(), Some("Idempotency.InFlight"));
    assert_eq!(first.unwrap().get(), "1");
    assert_eq!(call().await.unwrap().get(), "1");
    assert_eq!(runs.take(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_is_given_up_before_the_deadline_whatever_goes_on() {
    const TIME: Duration = Duration::from_secs(2);
    for policy in [AtDeadline::GoOn, AtDeadline::End] {
        let once = builder(MemoryStore::new()).settings(|settings| settings.at_deadline = policy);
        let layer = settle(&once.build().unwrap())
            .on_replay(|_, _, _| std::future::pending::<Result<(), SettleError>>())
            .on_rejected(|_, _| std::future::pending::<Result<(), SettleError>>());
        let function = counting(layer, &Runs::default());
        let call = async |payload: &Value| {
            let mut event = TestInvocation::json(payload).unwrap().event();
            event.context.deadline = VirtualClock::deadline(TIME);
            let answered = function.clone().oneshot(event);
            let answered = tokio::time::timeout(TIME, answered).await;
            answered.expect("an answer in time")
        };
        let first = call(&settlement("s-1", 5)).await.unwrap();
        let replayed = call(&settlement("s-1", 5)).await.unwrap();
        assert_eq!(replayed.get(), first.get());
        let rejected = call(&json!("hunter2")).await.unwrap_err();
        assert_eq!(rejected.error_type(), Some("Idempotency.Undecodable"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_invocation_whose_lease_is_not_renewed_is_ended_and_a_retry_runs() {
    let store = FaultyStore::new(MemoryStore::new());
    for _ in 0..100 {
        store.inject(Call::Renew, Fault::RequestLost);
    }
    let once = builder(store)
        .settings(|settings| settings.at_deadline = AtDeadline::GoOn)
        .build()
        .unwrap();
    let runs = Runs::default();
    let count = runs.clone();
    let function = settle(&once).handler(move |_| {
        let count = count.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(count.count())
        }
    });
    let mut event = TestInvocation::json(&settlement("s-1", 5)).unwrap().event();
    event.context.deadline = VirtualClock::deadline(Duration::from_secs(2));
    let ended = function.oneshot(event).await.unwrap_err();
    assert_eq!(ended.error_type(), Some("Idempotency.TimedOut"));
    assert_eq!(runs.take(), 0);
    invoke(&settling(&once, &runs), &settlement("s-1", 5))
        .await
        .unwrap();
    assert_eq!(runs.take(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_may_be_longer_than_any_clock_can_hold() {
    let invocation = TestInvocation::json(&settlement("s-1", 5)).unwrap();
    let event = invocation.timeout(Duration::MAX).event();
    let runs = Runs::default();
    settling(&engine(), &runs).oneshot(event).await.unwrap();
    assert_eq!(runs.take(), 1);
}
