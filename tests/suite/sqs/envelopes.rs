//! Messages in the envelopes of SNS, EventBridge and S3: a producer that retries makes a new envelope around the same request.

use std::collections::HashMap;

use lambda_idempotency::Selector;
use lambda_idempotency::sqs::{Envelope, Rejection};

use super::*;

const SNS: &str = include_str!("../../fixtures/sns-notification.json");
const EVENT: &str = include_str!("../../fixtures/eventbridge-event.json");
const S3: &str = include_str!("../../fixtures/s3-notification.json");

/// A body with other values in these places.
fn with(body: &str, changes: &[(&str, Value)]) -> String {
    let mut body: Value = serde_json::from_str(body).unwrap();
    for (pointer, value) in changes {
        *body.pointer_mut(pointer).unwrap() = value.clone();
    }
    body.to_string()
}

/// As its producer sends it again after a lost reply: another envelope, the same request.
fn sent_again(body: &str) -> String {
    let time = json!("2026-11-20T12:00:09.000Z");
    let id = json!("0f0e0d0c-0000-4000-8000-000000000001");
    if body == SNS {
        let signature = json!("EXAMPLEanother==");
        let changes = [
            ("/MessageId", id),
            ("/Timestamp", time),
            ("/Signature", signature),
        ];
        with(body, &changes)
    } else {
        with(body, &[("/id", id), ("/time", time)])
    }
}

fn enveloped(
    once: &Idempotency,
    envelope: Envelope,
    effects: &Effects,
) -> impl Worker + Clone + use<> {
    let effects = effects.clone();
    charge(once).envelope(envelope).handler(move |message| {
        assert_eq!(message.body.amount, 5, "what is inside");
        effects.of(&message);
        async { Ok(()) }
    })
}

on_each_server!(a_producers_retry_is_one_request_in_one_batch_and_in_two);
async fn a_producers_retry_is_one_request_in_one_batch_and_in_two(server: Server) {
    for (envelope, body) in [(Envelope::Sns, SNS), (Envelope::EventBridge, EVENT)] {
        let (once, effects) = (engine(&server).await, Effects::default());
        let mut worker = enveloped(&once, envelope, &effects);
        let both = [message("m-1", body), message("m-2", sent_again(body))];
        assert_eq!(deliver(&mut worker, both).await, NOTHING, "{envelope:?}");
        let later = [message("m-3", sent_again(body))];
        assert_eq!(deliver(&mut worker, later).await, NOTHING, "{envelope:?}");
        assert_eq!(effects.take(), ["m-1"]);
    }
}

on_each_server!(a_producers_retry_does_not_stop_its_fifo_group);
async fn a_producers_retry_does_not_stop_its_fifo_group(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = enveloped(&once, Envelope::EventBridge, &effects);
    let in_group = |id: &str, body: String| {
        let mut message = message(id, body);
        message["eventSourceARN"] = json!("arn:aws:sqs:eu-central-1:123456789012:payments.fifo");
        message["attributes"]["MessageGroupId"] = json!("shop-7");
        message
    };
    let other = [("/detail/payment_id", json!("p-2"))];
    let first = [in_group("m-1", EVENT.to_owned())];
    assert_eq!(deliver(&mut worker, first).await, NOTHING);
    let next = [
        in_group("m-2", sent_again(EVENT)),
        in_group("m-3", with(EVENT, &other)),
    ];
    assert_eq!(deliver(&mut worker, next).await, NOTHING);
    assert_eq!(effects.take(), ["m-1", "m-3"]);
}

on_each_server!(other_content_another_topic_type_or_account_is_a_mismatch);
async fn other_content_another_topic_type_or_account_is_a_mismatch(server: Server) {
    let another = json!("another");
    let dearer = json!({ "payment_id": "p-1", "amount": 6 });
    for (envelope, body, changes) in [
        (
            Envelope::Sns,
            SNS,
            [
                ("/TopicArn", another.clone()),
                ("/Message", json!(dearer.to_string())),
            ]
            .as_slice(),
        ),
        (
            Envelope::EventBridge,
            EVENT,
            &[
                ("/source", another.clone()),
                ("/detail-type", another.clone()),
                ("/account", another),
                ("/detail", dearer),
            ],
        ),
    ] {
        let (once, effects) = (engine(&server).await, Effects::default());
        let mut worker = enveloped(&once, envelope, &effects);
        assert_eq!(deliver(&mut worker, [message("m-1", body)]).await, NOTHING);
        for change in changes {
            let differs = message("m-2", with(&sent_again(body), std::slice::from_ref(change)));
            assert_eq!(deliver(&mut worker, [differs]).await, ["m-2"], "{change:?}");
        }
        assert_eq!(effects.take(), ["m-1"]);
    }
}

on_each_server!(without_a_key_of_ones_own_the_envelopes_id_survives_a_redrive);
async fn without_a_key_of_ones_own_the_envelopes_id_survives_a_redrive(server: Server) {
    for (envelope, body) in [
        (Envelope::Sns, SNS),
        (Envelope::EventBridge, EVENT),
        (Envelope::S3, S3),
    ] {
        let (once, effects) = (engine(&server).await, Effects::default());
        let layer = BatchLayer::new(once).operation("index").envelope(envelope);
        let mut worker = layer.handler(effects.handler::<Value>());
        for id in ["m-1", "redriven"] {
            assert_eq!(deliver(&mut worker, [message(id, body)]).await, NOTHING);
        }
        assert_eq!(effects.take(), ["m-1"], "{envelope:?}");
    }
}

on_each_server!(a_body_that_is_not_in_its_envelope_fails_its_message_alone);
async fn a_body_that_is_not_in_its_envelope_fails_its_message_alone(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let rejected = Arc::new(Mutex::new(HashMap::new()));
    let noted = Arc::clone(&rejected);
    let mut worker = charge(&once)
        .envelope(Envelope::Sns)
        .on_rejected(move |message, why| {
            let id = message.message_id.unwrap_or_default();
            noted.lock().unwrap().insert(id, why.rejection);
            async { Err("it stays in the queue") }
        })
        .handler(effects.handler());
    let confirmation = with(SNS, &[("/Type", json!("SubscriptionConfirmation"))]);
    let messages = [
        message("good", SNS),
        payment("raw", "p-2", 5),
        message("text", "no JSON"),
        message("confirmation", confirmation),
        message("inside", with(SNS, &[("/Message", json!("no JSON"))])),
        message(
            "also-good",
            with(SNS, &[("/Message", json!(body("p-3", 5)))]),
        ),
    ];
    let bad = ["raw", "text", "confirmation", "inside"];
    assert_eq!(deliver(&mut worker, messages).await, bad);
    assert_eq!(effects.take(), ["also-good", "good"]);
    let rejected = rejected.lock().unwrap();
    for id in bad {
        assert_eq!(rejected[id], Rejection::Undecodable, "{id}");
    }
}

/// The attributes that a publisher sets are in the envelope, not on the message.
#[tokio::test(start_paused = true)]
async fn a_key_is_looked_for_inside_the_envelope() {
    let server = Server::dynoxide().await;
    for is_attribute in [true, false] {
        let (once, effects) = (engine(&server).await, Effects::default());
        let layer = BatchLayer::new(once).operation("charge");
        let layer = if is_attribute {
            layer.key_attribute("tenant")
        } else {
            layer.key_from(Selector::pointer("/payment_id").unwrap())
        };
        let mut worker = layer
            .envelope(Envelope::Sns)
            .handler(effects.handler::<Value>());
        let both = [message("m-1", SNS), message("m-2", sent_again(SNS))];
        assert_eq!(deliver(&mut worker, both).await, NOTHING);
        assert_eq!(effects.take(), ["m-1"]);
    }
}
