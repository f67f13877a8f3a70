//! A store of your own, and the suite that says whether it keeps the contract.
//!
//! ```sh
//! cargo run --example own_store
//! ```
//!
//! `docs/internals/own-store.md` walks through it. The map stands in for your database: what matters is that a write reads, decides and
//! writes as one atomic step, and shows what it met when its condition fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lambda_idempotency::protocol::record::{Found, Record, RecordWrite};
use lambda_idempotency::protocol::transition;
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::testing::conformance;
use lambda_idempotency::{Fingerprint, Idempotency, Key, RecordId, StoreError};
use tokio::time::Instant;

#[derive(Clone, Debug, Default)]
struct OwnStore {
    rows: Arc<Mutex<BTreeMap<String, Record>>>,
}

impl OwnStore {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for OwnStore {
    /// In SQL: `SELECT … FOR UPDATE`, then an `INSERT` or `UPDATE`, in one transaction.
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::NotSent);
        }
        let mut rows = self.rows();
        let met = rows.get(write.id().as_str());
        let Some(record) = transition(met, write) else {
            return Ok(Answer::Refused(met.cloned().map(Found::readable)));
        };
        rows.insert(write.id().as_str().to_owned(), record.clone());
        Ok(Answer::Applied(Some(Found::readable(record))))
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::NotSent);
        }
        Ok(self.rows().get(id.as_str()).cloned().map(Found::readable))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let store = OwnStore::default();
    conformance(&store).await?;
    println!("the store keeps its contract");

    let once = Idempotency::builder(store).namespace("own").build()?;
    let charge = || {
        let key = Key::new("charge", "A-17");
        once.run(key, Fingerprint::json(b"{}"), |claim| async move {
            Ok::<_, std::io::Error>(format!("receipt of attempt {}", claim.attempt()))
        })
    };
    println!("{:?}", charge().await?);
    println!("{:?}", charge().await?);
    Ok(())
}
