//! The parts by which two messages of one key are compared, by setting.

use lambda_idempotency::{Fingerprint, Selector};

use super::*;

type Layer = BatchLayer<Payment, PaymentError>;

/// A payment that its producer stamps anew each time it sends it.
fn stamped(id: &str, amount: u64, sent_at: u64) -> Value {
    let body = json!({ "payment_id": "p-1", "amount": amount, "meta": { "sent_at": sent_at } });
    message(id, body.to_string())
}

/// Returns the reported ones of these messages: the same payment sent again, in one batch and in two; another amount.
async fn reported(server: &Server, configure: impl Fn(Layer) -> Layer) -> Vec<String> {
    let (once, effects) = (engine(server).await, Effects::default());
    let mut worker = configure(charge(&once)).handler(effects.handler());
    let both = [stamped("first", 5, 1), stamped("in-one-batch", 5, 2)];
    let mut reported = deliver(&mut worker, both).await;
    let later = [stamped("in-two", 5, 3)];
    reported.extend(deliver(&mut worker, later).await);
    reported.extend(deliver(&mut worker, [stamped("dearer", 6, 1)]).await);
    assert_eq!(effects.take(), ["first"]);
    reported
}

on_each_server!(a_field_that_is_left_out_may_differ_and_no_other);
async fn a_field_that_is_left_out_may_differ_and_no_other(server: Server) {
    let without = |layer: Layer| {
        let sent_at = "/meta/sent_at".parse().unwrap();
        layer.settings(|settings| settings.fingerprint_without = vec![sent_at])
    };
    assert_eq!(reported(&server, without).await, ["dearer"]);
}

on_each_server!(a_closure_or_a_selector_says_what_is_compared);
async fn a_closure_or_a_selector_says_what_is_compared(server: Server) {
    let of_amount = |payment: &Payment, _: &_| Fingerprint::bytes(&payment.amount.to_be_bytes());
    let closure = |layer: Layer| layer.fingerprint(of_amount);
    assert_eq!(reported(&server, closure).await, ["dearer"]);
    for selector in [
        Selector::pointer("/amount").unwrap(),
        Selector::jmespath("amount").unwrap(),
    ] {
        let selected = |layer: Layer| {
            layer.settings(|settings| settings.fingerprint_from = Some(selector.clone()))
        };
        assert_eq!(
            reported(&server, selected).await,
            ["dearer"],
            "{selector:?}"
        );
    }
}

on_each_server!(without_a_fingerprint_the_key_alone_counts);
async fn without_a_fingerprint_the_key_alone_counts(server: Server) {
    let none = |layer: Layer| layer.fingerprint(|_, _| None);
    assert_eq!(reported(&server, none).await, NOTHING);
}

on_each_server!(a_key_from_a_pointer_changes_no_default);
async fn a_key_from_a_pointer_changes_no_default(server: Server) {
    let everything = ["in-one-batch", "in-two", "dearer"];
    let pointer = Selector::pointer("/payment_id").unwrap();
    let keyed = |layer: Layer| layer.key_from(pointer.clone());
    assert_eq!(reported(&server, keyed).await, everything);
    assert_eq!(reported(&server, |layer| layer).await, everything);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_the_selected_part_differs_from_one_with_it() {
    let server = Server::dynoxide().await;
    let (once, effects) = (engine(&server).await, Effects::default());
    let currency = Selector::pointer("/currency").unwrap();
    let layer = charge(&once).settings(|settings| settings.fingerprint_from = Some(currency));
    let mut worker = layer.handler(effects.handler());
    let of = |id: &str, currency: Value| {
        let body = json!({ "payment_id": "p-1", "amount": 5, "currency": currency });
        message(id, body.to_string())
    };
    let without = [payment("m-1", "p-1", 5), payment("m-2", "p-1", 6)];
    assert_eq!(deliver(&mut worker, without).await, NOTHING);
    for currency in [json!("EUR"), json!(""), json!(null)] {
        assert_eq!(deliver(&mut worker, [of("m-3", currency)]).await, ["m-3"]);
    }
    assert_eq!(effects.take(), ["m-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_fingerprint_that_panics_is_its_messages_own_trouble() {
    let server = Server::dynoxide().await;
    let (once, effects) = (engine(&server).await, Effects::default());
    let layer = charge(&once).fingerprint(|payment, _| {
        assert_ne!(payment.amount, 6, "it panics for one");
        None
    });
    let mut worker = layer.handler(effects.handler());
    let messages = [payment("m-1", "p-1", 6), payment("m-2", "p-2", 5)];
    assert_eq!(deliver(&mut worker, messages).await, ["m-1"]);
    assert_eq!(effects.take(), ["m-2"]);
}

/// A message of a payment with this attribute, where it has one.
fn typed(id: &str, event_type: Option<&str>) -> Value {
    let mut message = payment(id, "p-1", 5);
    if let Some(text) = event_type {
        let attribute = json!({ "stringValue": text, "dataType": "String" });
        message["messageAttributes"] = json!({ "event_type": attribute });
    }
    message
}

on_each_server!(an_attribute_is_compared_where_it_is_named);
async fn an_attribute_is_compared_where_it_is_named(server: Server) {
    let mut dearer = typed("dearer", Some("placed"));
    dearer["body"] = payment("dearer", "p-1", 6)["body"].clone();
    let messages = [
        typed("placed", Some("placed")),
        typed("again", Some("placed")),
        typed("cancelled", Some("cancelled")),
        typed("empty", Some("")),
        typed("bare", None),
        dearer,
    ];
    let named = |layer: Layer| {
        let names = ["trace", "event_type"].map(str::to_owned);
        layer.settings(|settings| settings.fingerprint_attributes = names.into())
    };
    let different = &["cancelled", "empty", "bare", "dearer"][..];
    let default: fn(Layer) -> Layer = |layer| layer;
    let alone = |layer: Layer| named(layer).fingerprint(|_, _| Fingerprint::bytes(b""));
    let not_compared = |layer: Layer| named(layer).fingerprint(|_, _| None);
    for (configure, expected) in [
        (&default as &dyn Fn(Layer) -> Layer, &different[3..]),
        (&named, different),
        (&alone, &different[..3]),
        (&not_compared, &NOTHING),
    ] {
        let (once, effects) = (engine(&server).await, Effects::default());
        let mut worker = configure(charge(&once)).handler(effects.handler());
        let mut reported = Vec::new();
        for message in messages.clone() {
            reported.extend(deliver(&mut worker, [message]).await);
        }
        assert_eq!(reported, expected);
        assert_eq!(effects.take(), ["placed"]);
    }
}
