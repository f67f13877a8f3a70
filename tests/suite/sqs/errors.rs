//! A handler's own error: its type in the log, itself for the hook, its text where the setting asks for it.

use super::*;
use lambda_idempotency::Selector;

use crate::secrets::Log;

type Seen = Arc<Mutex<Vec<String>>>;

/// A worker whose payments are all declined, whose hook notes what it is shown.
fn declining(once: &Idempotency, seen: &Seen) -> impl Worker + use<> {
    let seen = Arc::clone(seen);
    charge(once)
        .on_error(move |message, error: &PaymentError| {
            let id = message.message_id.as_deref().unwrap();
            seen.lock().unwrap().push(format!("{id}: {error}"));
        })
        .handler(|message| async move {
            match message.body.amount {
                0 => Ok(()),
                _ => Err(PaymentError::Declined),
            }
        })
}

on_each_server!(the_hook_is_shown_each_error_with_its_message_and_the_log_has_its_type_alone);
async fn the_hook_is_shown_each_error_with_its_message_and_the_log_has_its_type_alone(
    server: Server,
) {
    let (log, _capture) = Log::capture();
    let (once, seen) = (engine(&server).await, Seen::default());
    let mut worker = declining(&once, &seen);
    let messages = [
        payment("m-1", "p-1", 5),
        payment("m-2", "p-2", 0),
        message("m-3", "no JSON"),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["m-1", "m-3"]);
    assert_eq!(*seen.lock().unwrap(), ["m-1: card declined"]);
    assert!(!log.text().contains("card declined"), "{}", log.text());
    assert!(log.text().contains("PaymentError"), "{}", log.text());
}

on_each_server!(the_setting_logs_the_text_of_an_error_and_of_the_parser);
async fn the_setting_logs_the_text_of_an_error_and_of_the_parser(server: Server) {
    let (log, _capture) = Log::capture();
    let once = builder(server.store().await).settings(|settings| settings.log_errors = true);
    let (once, seen) = (once.build().unwrap(), Seen::default());
    let mut worker = declining(&once, &seen);
    let quoted = message("m-2", r#"{"payment_id": "p-2", "amount": "five"}"#);
    let reported = deliver(&mut worker, [payment("m-1", "p-1", 5), quoted]).await;
    assert_eq!(reported, ["m-1", "m-2"]);
    let text = log.text();
    // Once as `handler_failed`, and once as the detail of `reported`.
    assert_eq!(text.matches("card declined").count(), 2, "{text}");
    assert!(text.contains(r#"event="handler_failed""#), "{text}");
    assert!(text.contains("invalid type: string"), "{text}");
}

on_each_server!(a_body_that_lacks_a_field_is_logged_with_its_name_and_not_quoted);
async fn a_body_that_lacks_a_field_is_logged_with_its_name_and_not_quoted(server: Server) {
    let (log, _capture) = Log::capture();
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging(&once, &effects);
    let messages = [
        message("m-1", r#"{"payment_id": "hunter2"}"#),
        message("m-2", r#"{"payment_id": "p-2", "amount": "hunter2"}"#),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["m-1", "m-2"]);
    assert!(log.text().contains("missing field `amount`"));
    assert!(!log.text().contains("hunter2"), "{}", log.text());
}

on_each_server!(a_hook_that_panics_changes_nothing);
async fn a_hook_that_panics_changes_nothing(server: Server) {
    let (log, _capture) = Log::capture();
    let once = engine(&server).await;
    let mut worker = charge(&once)
        .permanent(|error| matches!(error, PaymentError::Declined))
        .on_error(|_, _| panic!("the hook"))
        .handler(|_| async { Err::<(), _>(PaymentError::Declined) });
    for _ in 0..2 {
        let reported = deliver(&mut worker, [payment("m-1", "p-1", 5)]).await;
        assert_eq!(reported, ["m-1"]);
    }
    // The permanent failure was stored, so that the second delivery replays it.
    let text = log.text();
    assert_eq!(text.matches("hook_failed").count(), 1, "{text}");
    assert!(text.contains("failure_replayed"), "{text}");
}

on_each_server!(a_message_that_the_hook_took_is_logged_with_the_words_of_a_reported_one);
async fn a_message_that_the_hook_took_is_logged_with_the_words_of_a_reported_one(server: Server) {
    let (log, _capture) = Log::capture();
    let once = engine(&server).await;
    let parking = charge(&once).on_rejected(|_, _| async { Ok::<_, PaymentError>(()) });
    let mut worker = parking.handler(|_| async { Ok(()) });
    let lacking = message("m-1", r#"{"payment_id": "p-1"}"#);
    assert!(deliver(&mut worker, [lacking]).await.is_empty());
    let text = log.text();
    for word in [
        r#"event="rejected""#,
        r#"rejection="undecodable""#,
        r#"reason="undecodable_body""#,
        "missing field `amount`",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

on_each_server!(a_message_without_a_value_at_its_keys_place_is_logged_with_the_place);
async fn a_message_without_a_value_at_its_keys_place_is_logged_with_the_place(server: Server) {
    let (log, _capture) = Log::capture();
    let once = engine(&server).await;
    let selector = Selector::pointer("/order/id").unwrap();
    for (layer, place) in [
        (charge(&once).key_from(selector), "`/order/id` in the body"),
        (
            charge(&once).key_attribute("order-id"),
            "the attribute `order-id`",
        ),
    ] {
        let mut worker = layer.handler(|_| async { Ok::<_, PaymentError>(()) });
        let reported = deliver(&mut worker, [payment("m-1", "p-1", 5)]).await;
        assert_eq!(reported, ["m-1"]);
        let words = format!(
            "no idempotency key: nothing, or an empty value, is at {place}: correct the layer's key"
        );
        assert!(log.text().contains(&words), "{}", log.text());
    }
}
