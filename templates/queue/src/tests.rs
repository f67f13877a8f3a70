//! The function without AWS: a store in memory, and a ledger that remembers.

use std::sync::{Arc, Mutex};

use lambda_idempotency::Idempotency;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock, TestError, TestMessage};
use lambda_runtime::Error;
use tower::Service;

use crate::payments::{Ledger, Payment, worker};

/// Keeps the ids of the entries, and refuses a payment of zero.
#[derive(Clone, Default)]
struct Entries(Arc<Mutex<Vec<String>>>);

impl Ledger for Entries {
    async fn enter(&self, entry_id: String, payment: Payment) -> Result<(), Error> {
        if payment.amount == 0 {
            return Err("a payment of zero".into());
        }
        self.0.lock().unwrap().push(entry_id);
        Ok(())
    }
}

struct Queue {
    store: FaultyStore,
    clock: ManualClock,
    once: Idempotency,
    ledger: Entries,
}

impl Queue {
    fn new() -> Result<Self, Error> {
        let store = FaultyStore::new(MemoryStore::new());
        let clock = ManualClock::default();
        let once = Idempotency::builder(store.clone())
            .namespace(crate::NAMESPACE)
            .clock(clock.clone())
            .build()?;
        let ledger = Entries::default();
        Ok(Self {
            store,
            clock,
            once,
            ledger,
        })
    }

    /// Delivers a message in its own batch; the ids of the messages to be delivered again.
    async fn deliver(&self, message: TestMessage) -> Result<Vec<String>, Error> {
        let mut worker = worker(self.once.clone(), self.ledger.clone());
        let reply = worker.call(TestMessage::batch([message])).await?;
        let failures = reply.batch_item_failures.into_iter();
        Ok(failures.map(|failure| failure.item_identifier).collect())
    }

    fn entries(&self) -> Vec<String> {
        self.ledger.0.lock().unwrap().clone()
    }
}

/// A message of the payment `p-1`.
fn message(id: &str, amount: u64) -> Result<TestMessage, TestError> {
    let payment_id = "p-1".to_owned();
    TestMessage::json(id, &Payment { payment_id, amount })
}

#[tokio::test]
async fn a_payment_that_is_sent_twice_is_entered_once() -> Result<(), Error> {
    let queue = Queue::new()?;

    assert!(queue.deliver(message("m-1", 1250)?).await?.is_empty());
    assert!(queue.deliver(message("m-2", 1250)?).await?.is_empty());

    assert_eq!(queue.entries().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_message_that_fails_is_delivered_again() -> Result<(), Error> {
    let queue = Queue::new()?;

    assert_eq!(queue.deliver(message("m-1", 0)?).await?, ["m-1"]);

    assert!(queue.entries().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_attempt_after_a_crash_writes_the_same_entry() -> Result<(), Error> {
    let queue = Queue::new()?;

    // The process dies when the entry is written, before the outcome is stored.
    let dies = queue.deliver(message("m-1", 1250)?);
    let crash = queue.store.crash_before(Call::Complete);
    crash.cut_off(dies).await?;
    queue.clock.pass_lease(&queue.once);
    let again = message("m-1", 1250)?.receives(2);
    assert!(queue.deliver(again).await?.is_empty());

    let entries = queue.entries();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0], entries[1]);
    Ok(())
}
