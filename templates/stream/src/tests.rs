//! The function without AWS: a store in memory, and a journal that remembers.

use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use lambda_idempotency::Idempotency;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock};
use lambda_runtime::{Context, Error, LambdaEvent};
use serde_json::{Value, json};
use tower::Service;

use crate::movements::{Journal, Movement, worker};

/// Keeps the ids of the entries, and refuses a movement of nothing.
#[derive(Clone, Default)]
struct Entries(Arc<Mutex<Vec<String>>>);

impl Journal for Entries {
    async fn enter(&self, entry_id: String, movement: Movement) -> Result<(), Error> {
        if movement.delta == 0 {
            return Err("a movement of nothing".into());
        }
        self.0.lock().unwrap().push(entry_id);
        Ok(())
    }
}

struct Shard {
    store: FaultyStore,
    clock: ManualClock,
    once: Idempotency,
    journal: Entries,
}

impl Shard {
    fn new() -> Result<Self, Error> {
        let store = FaultyStore::new(MemoryStore::new());
        let clock = ManualClock::default();
        let once = Idempotency::builder(store.clone())
            .namespace(crate::NAMESPACE)
            .clock(clock.clone())
            .build()?;
        let journal = Entries::default();
        Ok(Self {
            store,
            clock,
            once,
            journal,
        })
    }

    /// Delivers a record in its own batch; the sequence numbers that the reply names.
    async fn deliver(&self, record: Value) -> Result<Vec<String>, Error> {
        let event = serde_json::from_value(json!({ "Records": [record] }))?;
        let mut worker = worker(self.once.clone(), self.journal.clone());
        let reply = worker.call(LambdaEvent::new(event, Context::default()));
        Ok(reply.await?.batch_item_failures)
    }

    fn entries(&self) -> Vec<String> {
        self.journal.0.lock().unwrap().clone()
    }
}

/// A record of the movement `m-1`, with this sequence number.
fn record(number: &str, delta: i64) -> Value {
    let data = json!({ "movement_id": "m-1", "sku": "tea", "delta": delta });
    json!({
        "kinesis": {
            "partitionKey": "tea",
            "sequenceNumber": number,
            "data": BASE64.encode(data.to_string().as_bytes())
        },
        "eventSource": "aws:kinesis",
        "eventID": format!("shardId-000000000000:{number}"),
        "eventSourceARN": "arn:aws:kinesis:eu-central-1:123456789012:stream/movements"
    })
}

#[tokio::test]
async fn a_movement_that_is_put_twice_is_booked_once() -> Result<(), Error> {
    let shard = Shard::new()?;

    assert!(shard.deliver(record("1", -2)).await?.is_empty());
    assert!(shard.deliver(record("2", -2)).await?.is_empty());

    assert_eq!(shard.entries().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_record_that_fails_is_delivered_again() -> Result<(), Error> {
    let shard = Shard::new()?;

    assert_eq!(shard.deliver(record("1", 0)).await?, ["1"]);

    assert!(shard.entries().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_attempt_after_a_crash_writes_the_same_entry() -> Result<(), Error> {
    let shard = Shard::new()?;

    // The process dies when the entry is written, before the outcome is stored.
    let dies = shard.deliver(record("1", -2));
    let crash = shard.store.crash_before(Call::Complete);
    crash.cut_off(dies).await?;
    shard.clock.pass_lease(&shard.once);
    assert!(shard.deliver(record("1", -2)).await?.is_empty());

    let entries = shard.entries();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0], entries[1]);
    Ok(())
}
