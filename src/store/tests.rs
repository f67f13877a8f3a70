//! Tests of the module above.

use std::slice::from_ref;

use tokio::time::{Duration, Instant, sleep_until};

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

fn release(id: &RecordId) -> RecordWrite {
    RecordWrite::Release(Release {
        id: id.clone(),
        owner: Owner::from_stored("me"),
        tombstone: Owner::from_stored("no one"),
        last_error: None,
        forget_fingerprint: false,
    })
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
    let write = release(&id);
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

/// Has no answer for one record.
struct Silent(RecordId);

impl Silent {
    async fn answer<T>(
        &self,
        id: &RecordId,
        deadline: Instant,
        answer: T,
    ) -> Result<T, StoreError> {
        if *id != self.0 {
            return Ok(answer);
        }
        sleep_until(deadline).await;
        Err(StoreError::Timeout)
    }
}

impl Store for Silent {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        self.answer(write.id(), deadline, Answer::Applied(None))
            .await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.answer(id, deadline, None).await
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_a_request_without_an_answer_holds_up_none_of_its_group() {
    let ids = ["first", "silent", "last"].map(RecordId::unkeyed);
    let store = Silent(ids[1].clone());
    let began = Instant::now();
    let deadline = began + Duration::from_mins(1);
    let writes = ids.each_ref().map(release);
    let written = Store::write_all(&store, &writes, deadline).await;
    let read = Store::load_all(&store, &ids, deadline).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    let [Ok(_), Err(left), Ok(_)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert!(left.is_left_to_caller() && left.is_uncertain(), "{left:?}");
    assert_matches!(
        read.as_slice(),
        [Ok(None), Err(StoreError::NotSent), Ok(None)]
    );
    // Alone it holds up no other.
    let alone = Store::load_all(&store, &ids[1..2], deadline).await;
    assert_matches!(alone[0], Err(StoreError::Timeout));
}

/// Answers one call after another, each after this time.
struct InTurn {
    turn: tokio::sync::Mutex<()>,
    time: Duration,
    is_in_order: bool,
}

impl InTurn {
    async fn answer(&self) {
        let _turn = self.turn.lock().await;
        tokio::time::sleep(self.time).await;
    }
}

impl Store for InTurn {
    async fn write(&self, _: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        self.answer().await;
        Ok(Answer::Applied(None))
    }

    async fn load(&self, _: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        self.answer().await;
        Ok(None)
    }

    fn answers_in_order(&self) -> bool {
        self.is_in_order
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_each_answer_gives_the_others_time_and_one_connection_gives_them_all() {
    let ids = ["1", "2", "3", "4"].map(RecordId::unkeyed);
    let writes = ids.each_ref().map(release);
    for (millis, is_in_order, expected) in [(200, false, 4), (1_000, true, 4), (1_000, false, 1)] {
        let store = InTurn {
            turn: tokio::sync::Mutex::default(),
            time: Duration::from_millis(millis),
            is_in_order,
        };
        let deadline = Instant::now() + Duration::from_mins(1);
        let written = Store::write_all(&store, &writes, deadline).await;
        let read = Store::load_all(&store, &ids, deadline).await;
        let answered = [
            written.iter().filter(|answer| answer.is_ok()).count(),
            read.iter().filter(|found| found.is_ok()).count(),
        ];
        assert_eq!(answered, [expected; 2], "{millis} ms, {is_in_order}");
    }
}
