//! From the outbox, over each target, to the inboxes of two consumers: however often an event is published, each has it once.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use lambda_idempotency::Idempotency;
use lambda_idempotency::sqs::{BatchLayer, Envelope, Message};
use lambda_idempotency::store::MemoryStore;
use tower::Service;

use super::*;
use crate::support::events;

/// The attributes that SNS was sent in a form.
fn of_form(form: &Value) -> Value {
    let field =
        |number: usize, end: &str| form[format!("MessageAttributes.entry.{number}.{end}")].as_str();
    let found = (1..).map_while(|number| {
        let (name, value) = (field(number, "Name")?, field(number, "Value.StringValue")?);
        Some((name.to_owned(), json!({ "Type": "String", "Value": value })))
    });
    Value::Object(found.collect())
}

/// The message that a queue behind this target delivers of one publication: services give each its own id.
fn behind(operation: &str, sent: &Value, number: usize) -> Value {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (body, attributes) = match operation {
        "SendMessage" => {
            let attributes = sent["MessageAttributes"].as_object().unwrap().iter();
            let attributes = attributes.map(|(name, attribute)| {
                let value = &attribute["StringValue"];
                let delivered = json!({ "stringValue": value, "dataType": "String" });
                (name.clone(), delivered)
            });
            (
                text(&sent["MessageBody"]),
                Value::Object(attributes.collect()),
            )
        }
        "Publish" => {
            let notification = json!({
                "Type": "Notification",
                "MessageId": format!("n-{number}"),
                "TopicArn": sent["TopicArn"],
                "Message": sent["Message"],
                "Timestamp": "2026-11-27T00:00:00.000Z",
                "MessageAttributes": of_form(sent)
            });
            (notification.to_string(), json!({}))
        }
        "PutEvents" => {
            let entry = &sent["Entries"][0];
            let detail: Value = serde_json::from_str(&text(&entry["Detail"])).unwrap();
            let event = json!({
                "version": "0",
                "id": format!("b-{number}"),
                "source": entry["Source"],
                "detail-type": entry["DetailType"],
                "time": "2026-11-27T00:00:00Z",
                "resources": [],
                "detail": detail
            });
            (event.to_string(), json!({}))
        }
        other => panic!("{other}"),
    };
    let mut message = events::message(&format!("m-{number}"), body);
    message["messageAttributes"] = attributes;
    message
}

#[tokio::test]
async fn each_consumer_has_an_event_once_however_often_it_is_published() {
    for (target, envelope) in [
        ("sqs:http://sqs.invalid/1/payments", None),
        (
            "sns:arn:aws:sns:eu-central-1:123456789012:orders",
            Some(Envelope::Sns),
        ),
        ("eventbridge:orders", Some(Envelope::EventBridge)),
    ] {
        let (operation, sent, order_id) = sent_to(target).await;
        let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
        let once = once.build().unwrap();
        for consumer in ["billing", "mail"] {
            let layer = BatchLayer::new(once.clone()).inbox(consumer);
            let layer = match envelope {
                Some(envelope) => layer.envelope(envelope),
                None => layer,
            };
            let effects = Arc::new(Mutex::new(Vec::new()));
            let noted = Arc::clone(&effects);
            let mut inbox = layer.handler(move |event: Message<Value>| {
                noted.lock().unwrap().push(event.body.to_string());
                async { Ok::<_, Infallible>(()) }
            });
            // A relay that dies behind a publication publishes again: another message, the same event.
            for number in 0..3 {
                let delivered = [behind(&operation, &sent, number)];
                let answer = inbox.call(events::batch(delivered)).await.unwrap();
                assert!(answer.batch_item_failures.is_empty(), "{target}");
            }
            let effects = effects.lock().unwrap();
            assert_eq!(effects.len(), 1, "{consumer}, {target}");
            assert!(effects[0].contains(&order_id), "{effects:?}");
        }
        let message = events::message("m-9", "{}");
        let mut inbox = BatchLayer::new(once)
            .inbox("billing")
            .handler(|_: Message<Value>| async { Ok::<_, Infallible>(()) });
        let answer = inbox.call(events::batch([message])).await.unwrap();
        assert_eq!(answer.batch_item_failures.len(), 1, "it has no identity");
    }
}
