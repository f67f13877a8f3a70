//! Deliveries in batches of messages, as SQS would make them.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use lambda_idempotency::AtDeadline;
use lambda_idempotency::sqs::{BatchLayer, Message, SqsEvent};
use lambda_runtime::{Context, LambdaEvent};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::Service;

use super::{OPERATION, Trouble, Worker, payload};
use crate::scenario::Delivery;
use crate::world::{What, millis};

#[derive(Deserialize)]
struct Body {
    key: String,
}

/// Delivers one batch to one worker, and returns the result of each of its messages, in their order.
pub async fn deliver(worker: Worker, batch: Vec<(usize, Delivery)>, fifo: bool) -> Vec<What> {
    let (handler, deeds) = (worker.clone(), batch.clone());
    let mut service = BatchLayer::new(worker.once.clone())
        .operation(OPERATION)
        .key(|body: &Body| body.key.clone())
        .permanent(|error: &Trouble| *error == Trouble::Permanent)
        .handler(move |message: Message<Body>| {
            let number: usize = message.id().parse().expect("a number");
            let delivery = deeds
                .iter()
                .find(|(known, _)| *known == number)
                .expect("of this batch")
                .1;
            handler
                .clone()
                .handle(number, delivery, message.claim.clone())
        });
    let mut context = Context::default();
    let deadline = batch
        .iter()
        .filter_map(|(_, delivery)| delivery.deadline)
        .max();
    if let Some(left) = deadline {
        context.deadline = worker.deadline(left);
    }
    let records: Vec<_> = batch
        .iter()
        .map(|(number, delivery)| message(*number, delivery, fifo))
        .collect();
    let event: SqsEvent = serde_json::from_value(json!({ "Records": records })).expect("an event");
    let run = AssertUnwindSafe(service.call(LambdaEvent::new(event, context))).catch_unwind();
    // Lambda ends what is over its time, or the caller does. On a Managed Instance nobody does.
    let deadline = deadline.filter(|_| worker.at_deadline == AtDeadline::End);
    let limit = millis(deadline.unwrap_or(3_600_000));
    let reply = match tokio::time::timeout(limit, run).await {
        Ok(Ok(Ok(reply))) => reply,
        Ok(Ok(Err(_))) => return vec![What::Refused("a batch that failed"); batch.len()],
        Ok(Err(_)) => return vec![What::Panicked; batch.len()],
        Err(_) => return vec![What::cut_off(worker.dies); batch.len()],
    };
    let reported = |number: &usize| {
        let number = number.to_string();
        reply
            .batch_item_failures
            .iter()
            .any(|failure| failure.item_identifier == number)
    };
    batch
        .iter()
        .map(|(number, _)| {
            if reported(number) {
                What::Reported
            } else {
                What::Acknowledged
            }
        })
        .collect()
}

fn message(number: usize, delivery: &Delivery, fifo: bool) -> Value {
    let queue = if fifo { "payments.fifo" } else { "payments" };
    json!({
        "messageId": number.to_string(),
        "receiptHandle": "handle",
        "body": payload(delivery),
        "attributes": {
            "ApproximateReceiveCount": if delivery.redelivered { "2" } else { "1" },
            "MessageGroupId": delivery.group(),
        },
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": format!("arn:aws:sqs:eu-central-1:123456789012:{queue}"),
        "awsRegion": "eu-central-1",
    })
}
