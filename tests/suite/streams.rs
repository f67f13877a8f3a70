//! Sources that deliver from a checkpoint: what a batch of records does to the world, and where its reply sends Lambda back to.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use lambda_idempotency::Idempotency;
use lambda_idempotency::batch::BatchError;
use lambda_idempotency::kinesis::{self, ItemFailures, KinesisEvent};
use lambda_idempotency::store::Store;
use lambda_runtime::{Context, LambdaEvent};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::Service;

use crate::on_each_server;
use crate::support::{Proxy, Server, builder_on};

/// Runs a test of an engine in memory and on each server.
macro_rules! on_each_store {
    ($name:ident) => {
        mod $name {
            #[tokio::test(start_paused = true)]
            async fn memory() {
                let store = lambda_idempotency::store::MemoryStore::new();
                super::$name(crate::streams::engine_on(store)).await;
            }

            #[tokio::test(start_paused = true)]
            async fn dynoxide() {
                let server = crate::support::Server::dynoxide().await;
                super::$name(crate::streams::engine(&server).await).await;
            }

            #[tokio::test(start_paused = true)]
            async fn dynamodb_local() {
                let server = crate::support::Server::dynamodb_local().await;
                super::$name(crate::streams::engine(&server).await).await;
            }
        }
    };
}

mod bad_input;
mod changes;
mod costs;
mod order;
mod replies;

const STREAM: &str = "arn:aws:kinesis:eu-central-1:123456789012:stream/movements";

#[derive(Clone, Debug, Deserialize)]
struct Movement {
    movement_id: String,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the ledger is closed")]
struct Closed;

/// A sequence number of Kinesis's length.
fn number(n: usize) -> String {
    format!("495903382714902566085596925383615710959215759891365{n:05}")
}

/// The n-th record of the shard.
fn record(n: usize, partition_key: &str, movement_id: &str) -> Value {
    let data = json!({ "movement_id": movement_id, "sku": partition_key, "delta": 5 });
    record_of(n, partition_key, data.to_string().as_bytes())
}

fn record_of(n: usize, partition_key: &str, data: &[u8]) -> Value {
    json!({
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": partition_key,
            "sequenceNumber": number(n),
            "data": BASE64.encode(data),
            "approximateArrivalTimestamp": 1_795_176_000.25
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": format!("shardId-000000000006:{}", number(n)),
        "eventName": "aws:kinesis:record",
        "invokeIdentityArn": "arn:aws:iam::123456789012:role/stock-movements",
        "awsRegion": "eu-central-1",
        "eventSourceARN": STREAM
    })
}

fn event(records: impl IntoIterator<Item = Value>) -> LambdaEvent<KinesisEvent> {
    let records: Vec<_> = records.into_iter().collect();
    let event = serde_json::from_value(json!({ "Records": records })).expect("a Kinesis event");
    LambdaEvent::new(event, Context::default())
}

/// The movements that took effect, in order, and those that are to fail.
#[derive(Clone, Default)]
struct Ledger {
    booked: Arc<Mutex<Vec<String>>>,
    failing: Arc<Mutex<BTreeSet<String>>>,
}

impl Ledger {
    fn fail_only<const N: usize>(&self, movements: [&str; N]) {
        *self.failing.lock().unwrap() = movements.map(str::to_owned).into();
    }

    fn book(&self, movement_id: &str) -> Result<(), Closed> {
        if self.failing.lock().unwrap().contains(movement_id) {
            return Err(Closed);
        }
        self.booked.lock().unwrap().push(movement_id.to_owned());
        Ok(())
    }

    /// Since the last call, sorted.
    fn take(&self) -> Vec<String> {
        let mut booked = std::mem::take(&mut *self.booked.lock().unwrap());
        booked.sort();
        booked
    }
}

fn engine_on<S: Store>(store: S) -> Idempotency {
    builder_on(store, "streams").build().unwrap()
}

async fn engine(server: &Server) -> Idempotency {
    engine_on(server.store().await)
}

trait Worker: Service<LambdaEvent<KinesisEvent>, Response = ItemFailures, Error = BatchError> {}
impl<W> Worker for W where
    W: Service<LambdaEvent<KinesisEvent>, Response = ItemFailures, Error = BatchError>
{
}

/// A worker of its own execution environment, whose key is the movement's id.
fn booking(once: &Idempotency, ledger: &Ledger) -> impl Worker + use<> {
    let ledger = ledger.clone();
    kinesis::BatchLayer::new(once.clone())
        .operation("book")
        .key(|movement: &Movement| movement.movement_id.clone())
        .handler(move |message: kinesis::Message<Movement>| {
            let booked = ledger.book(&message.body.movement_id);
            async move { booked }
        })
}

/// The same with the default key.
fn booking_by_default_key(once: &Idempotency, ledger: &Ledger) -> impl Worker + use<> {
    let ledger = ledger.clone();
    kinesis::BatchLayer::new(once.clone())
        .operation("book")
        .handler(move |message: kinesis::Message<Movement>| {
            let booked = ledger.book(&message.body.movement_id);
            async move { booked }
        })
}

/// Delivers a batch; the checkpoint that the worker asks for.
async fn deliver(
    worker: &mut impl Worker,
    records: impl IntoIterator<Item = Value>,
) -> Option<String> {
    let reply = worker.call(event(records)).await.unwrap();
    checkpoint(reply)
}

fn checkpoint(reply: ItemFailures) -> Option<String> {
    let mut failures = reply.batch_item_failures.into_iter();
    let lowest = failures.next();
    assert_eq!(failures.next(), None, "one checkpoint");
    lowest
}

const NOTHING: [&str; 0] = [];

on_each_store!(the_documented_event_is_worked_on_once);
async fn the_documented_event_is_worked_on_once(once: Idempotency) {
    let ledger = Ledger::default();
    let mut worker = booking_by_default_key(&once, &ledger);
    let event: Value = serde_json::from_str(include_str!("../fixtures/kinesis.json")).unwrap();
    let records = || event["Records"].as_array().unwrap().clone();
    assert_eq!(deliver(&mut worker, records()).await, None);
    assert_eq!(ledger.take(), ["m-1", "m-2"]);
    assert_eq!(deliver(&mut worker, records()).await, None);
    assert_eq!(ledger.take(), NOTHING);
}

#[tokio::test(start_paused = true)]
async fn a_streams_own_key_is_not_subject_to_the_limit_of_a_callers_token() {
    let once = builder_on(lambda_idempotency::store::MemoryStore::new(), "streams")
        .settings(|settings| settings.max_token_chars = 16)
        .build()
        .unwrap();
    let ledger = Ledger::default();
    let mut by_default = booking_by_default_key(&once, &ledger);
    for expected in [&["m-1"][..], &NOTHING] {
        let records = [record(1, "tea", "m-1")];
        assert_eq!(deliver(&mut by_default, records).await, None);
        assert_eq!(ledger.take(), expected);
    }
    let mut by_movement = booking(&once, &ledger);
    let records = [record(2, "tea", "a-movement-of-17-")];
    assert_eq!(deliver(&mut by_movement, records).await, Some(number(2)));
    assert_eq!(ledger.take(), NOTHING);
}
