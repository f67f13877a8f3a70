//! SQS events as Lambda delivers them, parsed from JSON as the runtime parses them.

use lambda_idempotency::sqs::SqsEvent;
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};

/// A message on its first delivery, with everything that SQS sends along.
pub fn message(id: &str, body: impl Into<String>) -> Value {
    json!({
        "messageId": id,
        "receiptHandle": format!("handle-of-{id}"),
        "body": body.into(),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "ApproximateFirstReceiveTimestamp": "1763640000150",
            "SenderId": "AIDAEXAMPLE",
            "SentTimestamp": "1763640000000"
        },
        "messageAttributes": {
            "trace": { "stringValue": "t-1", "binaryValue": null, "dataType": "String" }
        },
        "md5OfBody": "0cc175b9c0f1b6a831c399e269772661",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:payments",
        "awsRegion": "eu-central-1"
    })
}

/// A batch without a deadline.
pub fn batch(messages: impl IntoIterator<Item = Value>) -> LambdaEvent<SqsEvent> {
    let records: Vec<_> = messages.into_iter().collect();
    let event = serde_json::from_value(json!({ "Records": records })).expect("an SQS event");
    LambdaEvent::new(event, Context::default())
}
