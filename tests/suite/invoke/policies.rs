//! The engine's policies, its claimless form, and its switches.

use lambda_idempotency::{InFlight, OnMissingKey};

use super::*;

#[tokio::test(start_paused = true)]
async fn an_event_without_a_key_runs_unprotected_where_the_policy_says_so() {
    let once = builder(MemoryStore::new()).on_missing_key(OnMissingKey::RunUnprotected);
    let runs = Runs::default();
    let function = settling(&once.build().unwrap(), &runs);
    for run in 1..=2 {
        let answer = invoke(&function, &settlement("", 5)).await.unwrap();
        assert_eq!(answer, json!({ "run": run, "amount": 5 }).to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_protected_the_handler_runs_each_time_whatever_the_key() {
    for is_observing in [false, true] {
        let once = builder(MemoryStore::new());
        let once = if is_observing {
            once.observe(true)
        } else {
            once.disabled(true)
        };
        let once = once.build().unwrap();
        let runs = Runs::default();
        let unkeyed = counting(InvokeLayer::new(once.clone()), &runs);
        let panicking = settle(&once).key(|_: &Settlement| -> String { panic!("on purpose") });
        let schedule = InvokeLayer::scheduler(once.clone());
        let functions = [
            invoke(&settling(&once, &runs), &settlement("s-1", 5)).await,
            invoke(&settling(&once, &runs), &settlement("s-1", 6)).await,
            invoke(&unkeyed, &settlement("s-1", 5)).await,
            invoke(&counting(panicking, &runs), &settlement("s-1", 5)).await,
        ];
        for (position, answer) in functions.into_iter().enumerate() {
            let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
            assert_eq!(answer["run"], position + 1);
        }
        let answer = invoke(&counting(schedule, &runs), &settlement("s-1", 5)).await;
        assert_eq!((answer.unwrap().as_str(), runs.take()), ("null", 5));
    }
}

on_each_server!(in_the_claimless_form_the_second_event_gets_the_answer_of_the_first);
async fn in_the_claimless_form_the_second_event_gets_the_answer_of_the_first(server: Server) {
    let once = builder(server.store().await).build().unwrap().claimless();
    let function = settling(&once, &Runs::default());
    let first = invoke(&function, &settlement("s-1", 5)).await.unwrap();
    assert_eq!(
        invoke(&function, &settlement("s-1", 5)).await.unwrap(),
        first
    );
}

on_each_server!(a_duplicate_may_wait_for_the_answer_of_the_first);
async fn a_duplicate_may_wait_for_the_answer_of_the_first(server: Server) {
    let once = builder(server.store().await);
    let once = once.in_flight(InFlight::WaitUpTo(Duration::from_secs(20)));
    let runs = Runs::default();
    let count = runs.clone();
    let function = settle(&once.build().unwrap()).handler(move |_| {
        let run = count.count();
        async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(run)
        }
    });
    let payload = settlement("s-1", 5);
    let (first, second) = tokio::join!(invoke(&function, &payload), invoke(&function, &payload));
    assert_eq!((first.unwrap(), second.unwrap()), ("1".into(), "1".into()));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_waits_for_another_keeps_no_third_from_the_handler() {
    let once = builder(MemoryStore::new()).in_flight(InFlight::WaitUpTo(Duration::from_secs(20)));
    let settling = tower::service_fn(|event: Invocation<Settlement>| async move {
        tokio::time::sleep(Duration::from_secs(event.payload.amount)).await;
        Ok::<_, SettleError>(event.payload.amount)
    });
    let limited = tower::limit::ConcurrencyLimit::new(settling, 2);
    let function = tower::Layer::layer(&settle(&once.build().unwrap()), limited);
    let (slow, quick) = (settlement("s-1", 9), settlement("s-2", 1));
    let third = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::time::timeout(Duration::from_secs(2), invoke(&function, &quick)).await
    };
    let (first, second, third) =
        tokio::join!(invoke(&function, &slow), invoke(&function, &slow), third);
    assert_eq!((first.unwrap(), second.unwrap()), ("9".into(), "9".into()));
    assert_eq!(third.expect("in time").unwrap(), "1");
}
