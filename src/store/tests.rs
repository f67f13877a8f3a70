//! Tests of the module above.

use std::slice::from_ref;

use tokio::time::Instant;

use super::transaction::{Admission, Commit, Committed};
use super::{Answer, DynStore, Store, StoreError};
use crate::protocol::causes::unlinked;
use crate::protocol::clock::EpochSeconds;
use crate::protocol::key::RecordId;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, Owner, RecordWrite, Release};

/// Answers each call with the name of the method that was called.
struct Naming;

fn named<T>(method: &'static str) -> Result<T, StoreError> {
    Err(StoreError::Rejected(method.into()))
}

impl Store for Naming {
    async fn write(&self, _: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        named("write")
    }

    async fn load(&self, _: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        named("load")
    }

    async fn write_all(&self, _: &[RecordWrite], _: Instant) -> Vec<Result<Answer, StoreError>> {
        vec![named("write_all")]
    }

    async fn load_all(&self, _: &[RecordId], _: Instant) -> Vec<Result<Option<Found>, StoreError>> {
        vec![named("load_all")]
    }

    fn admission(&self) -> Option<Admission> {
        Some(|_, _| Ok(()))
    }

    async fn commit(&self, _: Commit<'_>, _: Instant) -> Result<Committed, StoreError> {
        named("commit")
    }

    async fn keep(&self, _: &LargeOutcome, _: Instant) -> Result<Place, StoreError> {
        named("keep")
    }

    async fn fetch(
        &self,
        _: &RecordId,
        _: &Place,
        _: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        named("fetch")
    }
}

/// Checks that this method answered.
fn by<T>(method: &str, answer: Result<T, StoreError>) {
    let error = unlinked(&answer.err().unwrap());
    assert!(error.ends_with(&format!(": {method}")), "{method}: {error}");
}

#[tokio::test]
async fn every_method_reaches_the_store_behind() {
    let store: &dyn DynStore = &Naming;
    let owner = Owner::from_stored("me");
    let id = RecordId::unkeyed("nonce");
    let write = RecordWrite::Release(Release {
        id: id.clone(),
        owner: owner.clone(),
        tombstone: Owner::from_stored("no one"),
        last_error: None,
        forget_fingerprint: false,
    });
    let outcome = LargeOutcome {
        id: id.clone(),
        owner: owner.clone(),
        content: Vec::new(),
        expiration: EpochSeconds(0),
    };
    let commit = Commit {
        token: "token",
        record: None,
        writes: &[],
    };
    let now = Instant::now();
    by("write", store.write(&write, now).await);
    by("load", store.load(&id, now).await);
    by(
        "write_all",
        store.write_all(from_ref(&write), now).await.remove(0),
    );
    by(
        "load_all",
        store.load_all(from_ref(&id), now).await.remove(0),
    );
    assert!(store.admission().is_some());
    by("commit", store.commit(commit, now).await);
    by("keep", store.keep(&outcome, now).await);
    by("fetch", store.fetch(&id, &Place::Entry(owner), now).await);
}
