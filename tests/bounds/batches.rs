//! Batches as large as Lambda delivers them: 10,000 messages, or 6 MB in few of them.

use std::io::Error as HandlerError;

use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::sqs::{BatchLayer, Message, SqsEvent};
use lambda_idempotency::store::Store;
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use tower::Service;

use crate::forgetful::Forgetful;
use crate::memory::{alone, megabytes, peak_of};
use crate::support::Server;
use crate::support::events::{batch, message};

/// Delivers a batch of new messages; the peak beyond the event itself.
async fn deliver(store: impl Store + Clone, event: LambdaEvent<SqsEvent>) -> usize {
    let once = Idempotency::builder(store)
        .namespace("bounds")
        .build()
        .unwrap();
    let mut worker =
        BatchLayer::new(once).handler(|_: Message<Value>| async { Ok::<_, HandlerError>(()) });
    let (reply, peak) = peak_of(worker.call(event)).await;
    assert!(reply.unwrap().batch_item_failures.is_empty());
    peak
}

fn many() -> LambdaEvent<SqsEvent> {
    batch((0..10_000).map(|n| message(&format!("m-{n}"), json!({ "order": n }).to_string())))
}

/// Six messages of a million bytes: SQS allows 1 MiB each, Lambda 6 MB for the event.
fn large() -> LambdaEvent<SqsEvent> {
    let body = json!({ "items": "x".repeat(1_000_000) }).to_string();
    batch((0..6).map(|n| message(&format!("m-{n}"), body.clone())))
}

#[test]
fn ten_thousand_messages_take_two_kilobytes_each_at_most() {
    alone(async {
        let peak = deliver(Forgetful, many()).await;
        println!("10,000 messages, the layer alone: {}", megabytes(peak));
        assert!(peak < 20_000_000, "{peak}");
    });
}

#[test]
fn ten_thousand_messages_through_the_sdk_take_no_more_dynamodb_local() {
    alone(async {
        let server = Server::dynamodb_local().await;
        let store = DynamoDbStore::new(server.client(), server.idempotency_table().await);
        let peak = deliver(store, many()).await;
        println!("10,000 messages, on DynamoDB Local: {}", megabytes(peak));
        assert!(peak < 20_000_000, "{peak}");
    });
}

#[test]
fn six_megabytes_in_six_messages_are_not_copied_often() {
    alone(async {
        let peak = deliver(Forgetful, large()).await;
        println!("6 messages of 1 MB, the layer alone: {}", megabytes(peak));
        assert!(peak < 10_000_000, "{peak}");
    });
}
