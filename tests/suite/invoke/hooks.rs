//! The hooks: for rejected events, for replays, for errors.

use lambda_idempotency::invoke::Rejection;

use super::*;
use crate::secrets::Log;

type Seen = Arc<Mutex<Vec<(String, Rejection)>>>;

/// A layer whose hook answers each rejected event.
fn answering(once: &Idempotency, seen: &Seen) -> InvokeLayer<Settlement, SettleError> {
    let seen = Arc::clone(seen);
    settle(once)
        .permanent(|error| matches!(error, SettleError::Closed))
        .on_rejected(move |event, why| {
            seen.lock().unwrap().push((event.get().to_owned(), why));
            async move { Ok::<_, SettleError>(json!({ "rejected": why.to_string() })) }
        })
}

#[tokio::test(start_paused = true)]
async fn a_hook_answers_what_no_retry_mends_and_nothing_else() {
    let seen = Seen::default();
    let function = answering(&engine(), &seen).handler(|event| async move {
        match event.payload.amount {
            0 => Err(SettleError::Closed),
            1 => Err(SettleError::Unreachable),
            amount => Ok(amount),
        }
    });
    assert_eq!(invoke(&function, &settlement("s-1", 5)).await.unwrap(), "5");
    for (payload, why) in [
        (json!("hunter2"), "undecodable"),
        (settlement("", 5), "key_missing"),
        (settlement("s-1", 6), "mismatch"),
        (settlement("s-2", 0), "failed"),
        (settlement("s-2", 0), "failed"),
    ] {
        let answer = invoke(&function, &payload).await.unwrap();
        assert_eq!(answer, json!({ "rejected": why }).to_string());
        let (event, rejection) = seen.lock().unwrap().pop().unwrap();
        assert_eq!(event, payload.to_string());
        assert_eq!(rejection.to_string(), why);
    }
    let unreachable = error_type(&function, &settlement("s-3", 1)).await;
    assert_eq!(unreachable, "Unreachable");
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_or_panics_leaves_the_error_as_it_was() {
    for panics in [false, true] {
        let layer = settle(&engine()).on_rejected(move |_, _| async move {
            assert!(!panics, "on purpose");
            Err::<(), _>(SettleError::Unreachable)
        });
        let function = counting(layer, &Runs::default());
        let failed = error_type(&function, &json!("hunter2")).await;
        assert_eq!(failed, "Idempotency.Undecodable");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_hooks_and_stored_failures_have_their_texts_logged_where_the_setting_says_so() {
    for log_errors in [false, true] {
        let (log, _capture) = Log::capture();
        let once = Idempotency::builder(MemoryStore::new()).namespace("bank");
        let once = once
            .settings(|settings| settings.log_errors = log_errors)
            .build()
            .unwrap();
        let layer = settle(&once)
            .on_rejected(|_, _| async { Err::<(), _>("the lot is full") })
            .on_replay(|_, _, _| async { Err::<(), _>("no key to sign with") });
        let function = counting(layer, &Runs::default());
        error_type(&function, &json!("hunter2")).await;
        for _ in ["first", "replay"] {
            invoke(&function, &settlement("s-1", 5)).await.unwrap();
        }
        let answered = settle(&once).permanent(|_| true);
        let answered = answered.on_rejected(|_, _| async { Ok::<_, SettleError>(()) });
        let answered = answered.handler(|_| async { Err::<(), _>(SettleError::Closed) });
        for _ in ["failed", "stored"] {
            invoke(&answered, &settlement("s-2", 5)).await.unwrap();
        }
        let log = log.text();
        assert_eq!(log.matches("\"rejected\"").count(), 2, "{log}");
        // As the handler's error, and as the stored failure.
        let told = log.matches("account closed").count();
        assert_eq!(told, if log_errors { 2 } else { 0 }, "{log}");
        assert_eq!(log.matches("\"hook_failed\"").count(), 2, "{log}");
        for text in ["the lot is full", "no key to sign with"] {
            assert_eq!(log.contains(text), log_errors, "{log}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_changes_replays_and_no_first_answer() {
    let runs = Runs::default();
    let layer = settle(&engine()).on_replay(|event, answer, replay| async move {
        let mut answer: Value = serde_json::from_str(answer.get()).unwrap();
        let event: Value = serde_json::from_str(event.get()).unwrap();
        if event["broken"] == true {
            return Err(SettleError::Unreachable);
        }
        answer["attempt"] = replay.attempt.into();
        Ok(answer)
    });
    let broken = "/broken".parse().unwrap();
    let layer = layer.settings(|settings| settings.fingerprint_without = vec![broken]);
    let function = counting(layer, &runs);
    let first = r#"{"amount":5,"run":1}"#;
    assert_eq!(
        invoke(&function, &settlement("s-1", 5)).await.unwrap(),
        first
    );
    let changed = r#"{"amount":5,"attempt":1,"run":1}"#;
    assert_eq!(
        invoke(&function, &settlement("s-1", 5)).await.unwrap(),
        changed
    );
    let mut broken = settlement("s-1", 5);
    broken["broken"] = json!(true);
    assert_eq!(invoke(&function, &broken).await.unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_shown_each_error_of_the_handler() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shown = Arc::clone(&seen);
    let layer = settle(&engine()).on_error(move |event, error: &SettleError| {
        shown
            .lock()
            .unwrap()
            .push(format!("{error} {}", event.get()));
        panic!("which changes nothing");
    });
    let function = layer.handler(|_| async { Err::<(), _>(SettleError::Unreachable) });
    let payload = settlement("s-1", 5);
    assert_eq!(error_type(&function, &payload).await, "Unreachable");
    let expected = format!("bank unreachable {payload}");
    assert_eq!(*seen.lock().unwrap(), [expected]);
}
