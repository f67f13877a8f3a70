//! Rejected messages that are sent to another queue.

use crate::metrics::Counted;
use crate::secrets::Log;
use crate::support::QueueApi;

use super::*;

const REJECTED: &str = "http://queue/rejected";

/// A mismatch, a body that doesn't decode, and one that is done.
fn messages() -> Vec<Value> {
    let mut garbled = message("garbled", "not JSON");
    garbled["messageAttributes"] =
        json!({ "tenant": { "dataType": "String", "stringValue": "shop-1" } });
    vec![
        payment("m-1", "p-1", 5),
        payment("differs", "p-1", 6),
        garbled,
    ]
}

async fn delivered(
    server: &Server,
    queue: &QueueApi,
    url: &str,
    messages: Vec<Value>,
) -> Vec<String> {
    let once = engine(server).await;
    let layer = charge(&once).rejected_to(queue.client(), url);
    let mut worker = layer.handler(|_| async { Ok::<_, PaymentError>(()) });
    deliver(&mut worker, messages).await
}

/// A message that doesn't decode, with this many attributes of the value, `a0` and so on.
fn garbled(attributes: usize, value: &Value) -> Value {
    let mut garbled = message("garbled", "not JSON");
    garbled["messageAttributes"] = (0..attributes)
        .map(|n| (format!("a{n}"), value.clone()))
        .collect();
    garbled
}

on_each_server!(rejected_messages_are_sent_to_a_queue_and_acknowledged);
async fn rejected_messages_are_sent_to_a_queue_and_acknowledged(server: Server) {
    let queue = QueueApi::answering(None).await;
    assert_eq!(
        delivered(&server, &queue, REJECTED, messages()).await,
        NOTHING
    );
    let mut sent = queue.take();
    sent.sort_by_key(|(_, request)| request["MessageBody"].to_string());
    let (operations, requests): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
    assert_eq!(operations, ["SendMessage", "SendMessage"]);
    let [garbled, differs] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert_eq!(garbled["QueueUrl"], REJECTED);
    assert_eq!(garbled["MessageBody"], "not JSON");
    assert_eq!(
        garbled["MessageAttributes"]["tenant"]["StringValue"],
        "shop-1"
    );
    assert_eq!(garbled["MessageGroupId"], Value::Null);
    let why = |request: &Value| {
        let text = &request["MessageAttributes"]["idempotency-rejected"]["StringValue"];
        serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap()
    };
    assert_eq!(why(garbled)["message_id"], "garbled");
    assert_eq!(why(garbled)["reason"], "undecodable_body");
    assert_eq!(why(differs)["rejection"], "mismatch");
}

on_each_server!(a_mismatch_within_a_batch_that_the_queue_takes_is_counted_and_logged);
async fn a_mismatch_within_a_batch_that_the_queue_takes_is_counted_and_logged(server: Server) {
    let (log, _capture) = Log::capture();
    let counted = Counted::new();
    let queue = QueueApi::answering(None).await;
    let failed = delivered(&server, &queue, REJECTED, messages()).await;
    assert_eq!(failed, NOTHING);
    assert_eq!(counted.take().get("mismatches"), Some(&1));
    let mismatch = r#"event="mismatch" operation="charge""#;
    assert_eq!(log.text().matches(mismatch).count(), 1, "{}", log.text());
}

on_each_server!(a_rejected_message_of_ten_attributes_goes_to_a_fifo_queue);
async fn a_rejected_message_of_ten_attributes_goes_to_a_fifo_queue(server: Server) {
    let queue = QueueApi::answering(None).await;
    let mut garbled = garbled(10, &json!({ "dataType": "Binary", "binaryValue": "AQI=" }));
    garbled["attributes"]["MessageGroupId"] = json!("group");
    let failed = delivered(&server, &queue, "http://queue/rejected.fifo", vec![garbled]).await;
    assert_eq!(failed, NOTHING);
    let (_, request) = queue.take().remove(0);
    assert_eq!(request["MessageAttributes"].as_object().unwrap().len(), 10);
    assert_eq!(request["MessageAttributes"]["a3"]["BinaryValue"], "AQI=");
    assert_eq!(request["MessageGroupId"], "group");
    assert_eq!(request["MessageDeduplicationId"], "garbled");
}

on_each_server!(a_rejected_message_of_nine_attributes_says_why_in_the_tenth);
async fn a_rejected_message_of_nine_attributes_says_why_in_the_tenth(server: Server) {
    let queue = QueueApi::answering(None).await;
    let garbled = garbled(9, &json!({ "dataType": "String", "stringValue": "a" }));
    let failed = delivered(&server, &queue, REJECTED, vec![garbled]).await;
    assert_eq!(failed, NOTHING);
    let (_, request) = queue.take().remove(0);
    let attributes = request["MessageAttributes"].as_object().unwrap();
    assert!(attributes.len() == 10 && attributes.contains_key("idempotency-rejected"));
}

on_each_server!(a_rejected_message_that_is_too_long_is_sent_once_more_without_the_reason);
async fn a_rejected_message_that_is_too_long_is_sent_once_more_without_the_reason(server: Server) {
    let queue = QueueApi::answering(Some("InvalidParameterValue")).await;
    let garbled = garbled(1, &json!({ "dataType": "String", "stringValue": "a" }));
    let failed = delivered(&server, &queue, REJECTED, vec![garbled]).await;
    assert_eq!(failed, ["garbled"]);
    let sent = queue.take().into_iter();
    let counts = sent.map(|(_, sent)| sent["MessageAttributes"].as_object().unwrap().len());
    assert_eq!(counts.collect::<Vec<_>>(), [2, 1]);
}

on_each_server!(a_rejected_message_that_can_not_be_sent_is_reported);
async fn a_rejected_message_that_can_not_be_sent_is_reported(server: Server) {
    let (log, _capture) = Log::capture();
    let queue = QueueApi::answering(Some("AccessDenied")).await;
    let failed = delivered(&server, &queue, REJECTED, messages()).await;
    assert_eq!(failed, ["differs", "garbled"]);
    assert!(log.text().contains("AccessDenied"), "{}", log.text());
}
