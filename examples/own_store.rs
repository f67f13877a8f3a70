//! A store of your own, and the suite that says whether it keeps the contract.
//!
//! ```sh
//! cargo run --example own_store
//! ```
//!
//! `docs/own-store.md` walks through it. The map stands in for your database: what matters is that each write below reads, decides
//! and writes as one atomic step, and shows what it met when its condition fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lambda_idempotency::record::{
    Amendment, Completion, Found, NewClaim, Record, Release, Renewal, Takeover, Version,
};
use lambda_idempotency::store::{Answer, Store, transition};
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

    /// The one write there is: in SQL, `SELECT … FOR UPDATE` and an `INSERT` or `UPDATE` in one transaction.
    fn write(
        &self,
        id: &RecordId,
        deadline: Instant,
        make: impl FnOnce(Option<&Record>) -> Option<Record>,
    ) -> Result<Answer<Found>, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::Timeout);
        }
        let mut rows = self.rows();
        let met = rows.get(id.as_str()).cloned();
        match make(met.as_ref()) {
            Some(record) => {
                rows.insert(id.as_str().to_owned(), record.clone());
                Ok(Answer::Applied(Found::readable(record)))
            }
            None => Ok(Answer::Refused(met.map(Found::readable))),
        }
    }
}

impl Store for OwnStore {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        let make = |met: Option<&_>| transition::create(met, claim);
        self.write(&claim.id, deadline, make)
            .map(|answer| answer.map(drop))
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let make = |met: Option<&_>| transition::take_over(met, seen, claim, mode);
        self.write(&claim.id, deadline, make)
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let make = |met: Option<&_>| transition::complete(met, completion);
        self.write(&completion.id, deadline, make)
            .map(|answer| answer.map(drop))
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        let make = |met: Option<&_>| transition::renew(met, renewal);
        self.write(&renewal.id, deadline, make)
            .map(|answer| answer.map(drop))
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        let make = |met: Option<&_>| transition::amend(met, amendment);
        self.write(&amendment.id, deadline, make)
            .map(|answer| answer.map(drop))
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        let make = |met: Option<&_>| transition::release(met, release);
        self.write(&release.id, deadline, make)
            .map(|answer| answer.map(drop))
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::Timeout);
        }
        Ok(self.rows().get(id.as_str()).cloned().map(Found::readable))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
