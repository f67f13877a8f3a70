//! The errors that the caller gets where there is no answer.

use lambda_idempotency::Selector;

use super::*;
use crate::secrets::Log;

#[tokio::test(start_paused = true)]
async fn the_same_key_with_another_payload_is_a_mismatch() {
    let runs = Runs::default();
    let function = settling(&engine(), &runs);
    invoke(&function, &settlement("s-1", 5)).await.unwrap();
    let mismatch = error_type(&function, &settlement("s-1", 6)).await;
    assert_eq!(
        (mismatch.as_str(), runs.take()),
        ("Idempotency.Mismatch", 1)
    );
}

on_each_server!(an_event_in_flight_elsewhere_fails_and_is_answered_later);
async fn an_event_in_flight_elsewhere_fails_and_is_answered_later(server: Server) {
    let once = builder(server.store().await).build().unwrap();
    let semaphore = || Arc::new(tokio::sync::Semaphore::new(0));
    let (started, gate) = (semaphore(), semaphore());
    let (start, wait) = (Arc::clone(&started), Arc::clone(&gate));
    let function = settle(&once).handler(move |_| {
        let wait = Arc::clone(&wait);
        start.add_permits(1);
        async move {
            wait.acquire().await.unwrap().forget();
            Ok(7)
        }
    });
    let first = tokio::spawn(function.clone().oneshot(event(&settlement("s-1", 5))));
    started.acquire().await.unwrap().forget();
    let again = function.clone().oneshot(event(&settlement("s-1", 5)));
    let in_flight = again.await.unwrap_err();
    assert_eq!(in_flight.error_type(), Some("Idempotency.InFlight"));
    gate.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap().get(), "7");
    assert_eq!(invoke(&function, &settlement("s-1", 5)).await.unwrap(), "7");
}

#[tokio::test(start_paused = true)]
async fn the_handlers_error_keeps_its_own_type_and_a_retry_runs() {
    let runs = Runs::default();
    let count = runs.clone();
    let function = settle(&engine()).handler(move |_| {
        let run = count.count();
        async move {
            if run == 1 {
                Err(SettleError::Unreachable)
            } else {
                Ok(run)
            }
        }
    });
    let failed = failure(&function, &settlement("s-1", 5)).await;
    assert_eq!(failed.error_type, "Unreachable");
    assert_eq!(failed.error_message, "bank unreachable");
    assert_eq!(invoke(&function, &settlement("s-1", 5)).await.unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_stored() {
    let runs = Runs::default();
    let count = runs.clone();
    let is_closed = |error: &SettleError| matches!(error, SettleError::Closed);
    let function = settle(&engine()).permanent(is_closed).handler(move |_| {
        count.count();
        async { Err::<(), _>(SettleError::Closed) }
    });
    assert_eq!(error_type(&function, &settlement("s-1", 5)).await, "Closed");
    let again = failure(&function, &settlement("s-1", 5)).await;
    assert_eq!(again.error_type, "Idempotency.Failed");
    assert!(again.error_message.contains("account closed"), "{again:?}");
    assert_eq!(runs.take(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_and_a_retry_runs() {
    let (log, _capture) = Log::capture();
    let runs = Runs::default();
    let count = runs.clone();
    let function = settle(&engine()).handler(move |_| {
        let run = count.count();
        assert_ne!(run, 1, "before the future");
        async move {
            assert_ne!(run, 2, "inside the future");
            Ok(run)
        }
    });
    for panics in [1, 2] {
        let panicked = error_type(&function, &settlement("s-1", 5)).await;
        assert_eq!(panicked, "Idempotency.Panicked");
        // Not by the next call.
        assert_eq!(log.text().matches(r#"event="released""#).count(), panics);
    }
    assert_eq!(invoke(&function, &settlement("s-1", 5)).await.unwrap(), "3");
}

#[tokio::test(start_paused = true)]
async fn a_layer_without_a_key_says_what_to_set() {
    let runs = Runs::default();
    let function = counting(InvokeLayer::new(engine()), &runs);
    let failed = failure(&function, &settlement("s-1", 5)).await;
    assert_eq!(failed.error_type, "Idempotency.Misconfigured");
    assert!(failed.error_message.contains("`.key(…)`"), "{failed:?}");
    assert_eq!(runs.take(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_missing_or_not_usable_is_named() {
    let runs = Runs::default();
    let function = settling(&engine(), &runs);
    for (id, expected) in [
        (String::new(), "Idempotency.KeyMissing"),
        ("x".repeat(10_000), "Idempotency.UnusableKey"),
        ("a\u{7}b".to_owned(), "Idempotency.UnusableKey"),
    ] {
        let failed = error_type(&function, &settlement(&id, 5)).await;
        assert_eq!(failed, expected);
    }
    let selector = Selector::pointer("/nothing/there").unwrap();
    let selecting = counting(settle(&engine()).key_from(selector), &runs);
    let missing = error_type(&selecting, &settlement("s-1", 5)).await;
    assert_eq!(missing, "Idempotency.KeyMissing");
    let selector = Selector::jmespath("settlement_id").unwrap();
    let selecting = counting(settle(&engine()).key_from(selector), &runs);
    let mut deep = settlement("s-1", 5);
    deep["more"] = (0..200).fold(json!(7), |inner, _| json!([inner]));
    let unreadable = error_type(&selecting, &deep).await;
    assert_eq!(unreadable, "Idempotency.Undecodable");
    assert_eq!(runs.take(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_does_not_decode_is_not_quoted() {
    let function = settling(&engine(), &Runs::default());
    for (payload, said) in [
        (json!({ "amount": 4111 }), "missing field `settlement_id`"),
        (settlement("s-1", 5)["amount"].clone(), "Data error"),
        (json!("hunter2"), "Data error"),
        (json!(null), "Data error"),
    ] {
        let failed = failure(&function, &payload).await;
        assert_eq!(failed.error_type, "Idempotency.Undecodable");
        assert!(failed.error_message.contains(said), "{failed:?}");
        let text = failed.error_message;
        assert!(
            !text.contains("hunter2") && !text.contains("4111"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_selector_reads_what_arrived_and_not_the_decoded_payload() {
    let runs = Runs::default();
    let selector = Selector::pointer("/transport/id").unwrap();
    let function = counting(settle(&engine()).key_from(selector), &runs);
    let from = |transport: &str| {
        let mut payload = settlement("s-1", 5);
        payload["transport"] = json!({ "id": transport });
        payload
    };
    let first = invoke(&function, &from("t-1")).await.unwrap();
    assert_eq!(invoke(&function, &from("t-1")).await.unwrap(), first);
    assert_ne!(invoke(&function, &from("t-2")).await.unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn an_event_without_a_value_where_the_selector_looks_says_where_that_is() {
    let runs = Runs::default();
    let selector = Selector::pointer("/transport/id").unwrap();
    let function = counting(settle(&engine()).key_from(selector), &runs);
    let error = invoke(&function, &settlement("s-1", 5)).await.unwrap_err();
    assert_eq!(error.error_type(), Some("Idempotency.KeyMissing"));
    let said = error.to_string();
    let place = "no idempotency key: nothing, or an empty value, is at `/transport/id` in the payload: correct the layer's key";
    assert!(said.starts_with(place), "{said}");
    assert_eq!(runs.take(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_out_of_the_fingerprint_may_differ() {
    let runs = Runs::default();
    let left_out = vec!["/sent_at".parse().unwrap()];
    let layer = settle(&engine()).settings(|settings| settings.fingerprint_without = left_out);
    let function = counting(layer, &runs);
    let sent = |at: u64, amount| {
        let mut payload = settlement("s-1", amount);
        payload["sent_at"] = json!(at);
        payload
    };
    let first = invoke(&function, &sent(1, 5)).await.unwrap();
    assert_eq!(invoke(&function, &sent(2, 5)).await.unwrap(), first);
    let mismatch = error_type(&function, &sent(3, 6)).await;
    assert_eq!(mismatch, "Idempotency.Mismatch");
    let by_key = counting(settle(&engine()).fingerprint(|_| None), &runs);
    let first = invoke(&by_key, &sent(1, 5)).await.unwrap();
    assert_eq!(invoke(&by_key, &sent(1, 6)).await.unwrap(), first);
}

/// Invokes a function with tenant isolation for this tenant.
async fn invoke_for(function: &impl Function, tenant: &str) -> Result<String, Failed> {
    let mut event = event(&settlement("s-1", 5));
    event.context.tenant_id = Some(tenant.to_owned());
    let answer = function.clone().oneshot(event).await?;
    Ok(answer.get().to_owned())
}

#[tokio::test(start_paused = true)]
async fn tenants_of_an_isolated_function_have_records_of_their_own() {
    let (once, runs) = (engine(), Runs::default());
    let by_amount = |settlement: &Settlement| settlement.amount.to_string();
    for layer in [settle(&once), settle(&once).scope(by_amount)] {
        let function = counting(layer, &runs);
        let first = invoke_for(&function, "t-1").await.unwrap();
        let other = invoke_for(&function, "t-2").await.unwrap();
        assert_ne!(other, first);
        assert_eq!(invoke_for(&function, "t-1").await.unwrap(), first);
        assert_eq!(invoke_for(&function, "t-2").await.unwrap(), other);
        assert_eq!(runs.take(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_raw_id_has_no_room_for_the_tenant_of_an_isolated_function() {
    let runs = Runs::default();
    let layer = InvokeLayer::new(engine())
        .raw_id(|settlement: &Settlement| settlement.settlement_id.clone());
    let refused = invoke_for(&counting(layer, &runs), "t-1")
        .await
        .unwrap_err();
    assert_eq!(refused.error_type(), Some("Idempotency.Misconfigured"));
    assert_eq!(runs.take(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_blank_tenant_is_an_error_and_none_that_events_share() {
    let runs = Runs::default();
    for blank in ["", " ", "\t\u{3000}"] {
        let layer = settle(&engine()).scope(move |_: &Settlement| blank);
        let function = counting(layer, &runs);
        let refused = error_type(&function, &settlement("s-1", 5)).await;
        assert_eq!(refused, "Idempotency.UnusableKey");
        let of_a_tenant = invoke_for(&function, "t-1").await.unwrap_err();
        assert_eq!(of_a_tenant.error_type(), Some("Idempotency.UnusableKey"));
    }
    assert_eq!(runs.take(), 0);
}

#[tokio::test(start_paused = true)]
async fn tenants_with_the_same_token_have_records_of_their_own() {
    let runs = Runs::default();
    let layer = settle(&engine()).scope(|settlement: &Settlement| settlement.amount.to_string());
    let function = counting(layer, &runs);
    invoke(&function, &settlement("s-1", 5)).await.unwrap();
    invoke(&function, &settlement("s-1", 6)).await.unwrap();
    assert_eq!(runs.take(), 2);
}
