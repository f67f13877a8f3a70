use super::*;
use crate::store::MemoryStore;

#[test]
fn by_default_a_thousand_records_are_remembered_in_four_mebibytes() {
    let store = CachedStore::new(MemoryStore::new());
    assert_eq!(store.memory().max_entries, 1_000);
    assert_eq!(store.memory().max_bytes, 4 * 1_024 * 1_024);
    let smaller = store.max_entries(7).max_bytes(70);
    assert_eq!(smaller.memory().max_entries, 7);
    assert_eq!(smaller.memory().max_bytes, 70);
}

#[tokio::test(start_paused = true)]
async fn a_call_at_its_deadline_is_for_the_store_to_refuse() {
    use crate::protocol::clock::EpochSeconds;
    use crate::protocol::record::Record;

    let store = CachedStore::new(MemoryStore::new());
    let id = RecordId::unkeyed("nonce");
    let record = Record::new(Status::Completed, EpochSeconds(i64::MAX / 1_000));
    store.memory().put(&id, record);
    let late = store.load(&id, Instant::now()).await;
    assert!(matches!(late, Err(StoreError::NotSent)), "{late:?}");
    let soon = Instant::now() + std::time::Duration::from_millis(1);
    assert!(store.load(&id, soon).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_final_record_that_was_read_is_not_read_again() {
    use crate::protocol::clock::{EpochMillis, EpochSeconds};
    use crate::protocol::record::{Completion, NewClaim, Owner, StoredOutcome};

    let soon = Instant::now() + std::time::Duration::from_secs(1);
    let (expiration, now) = (EpochSeconds(i64::MAX / 2_000), SystemClock.now());
    let (inner, ids) = (MemoryStore::new(), ["a", "b", "c"].map(RecordId::unkeyed));
    for id in &ids {
        let owner = Owner::from_stored("me");
        let claim = NewClaim::new(id.clone(), owner.clone(), now, now, expiration);
        inner.write(&claim.into(), soon).await.unwrap();
        let outcome = StoredOutcome::Inline("1".to_owned());
        let completion = Completion::new(id.clone(), owner, outcome, now, expiration);
        inner.write(&completion.into(), soon).await.unwrap();
    }
    let store = CachedStore::new(inner.clone());
    let [one, others @ ..] = &ids;
    assert!(store.load(one, soon).await.unwrap().is_some());
    let found = store.load_all(others, soon).await;
    assert!(found.iter().all(|found| matches!(found, Ok(Some(_)))));
    // Where they would be read again, they are no more.
    inner.sweep(EpochMillis(i64::MAX));
    assert!(inner.is_empty());
    assert!(store.load(one, soon).await.unwrap().is_some());
    let found = store.load_all(others, soon).await;
    assert!(found.iter().all(|found| matches!(found, Ok(Some(_)))));
}

/// Shows no record that it writes, as DynamoDB doesn't.
#[cfg(feature = "test-util")]
#[derive(Clone)]
struct Unseen(MemoryStore);

#[cfg(feature = "test-util")]
impl Store for Unseen {
    async fn write(&self, write: &RecordWrite, until: Instant) -> Result<Answer, StoreError> {
        Ok(match self.0.write(write, until).await? {
            Answer::Applied(_) => Answer::Applied(None),
            refused @ Answer::Refused(_) => refused,
        })
    }

    async fn load(&self, id: &RecordId, until: Instant) -> Result<Option<Found>, StoreError> {
        self.0.load(id, until).await
    }
}

#[cfg(feature = "test-util")]
#[tokio::test(start_paused = true)]
async fn a_completion_that_was_sent_twice_is_remembered() {
    use crate::testing::{Call, Fault, FaultyStore};
    use crate::{Idempotency, Key};

    let wire = FaultyStore::new(Unseen(MemoryStore::new()));
    let once = Idempotency::builder(CachedStore::new(wire.clone()))
        .namespace("tests")
        .build()
        .unwrap();
    let run = || {
        once.run(Key::new("charge", "1"), None, async |_| {
            Ok::<_, std::fmt::Error>(7)
        })
    };
    wire.inject(Call::Complete, Fault::RequestLost);
    assert!(!run().await.unwrap().is_replayed());
    // A claim on the wire would be lost.
    wire.inject(Call::Create, Fault::RequestLost);
    assert!(run().await.unwrap().is_replayed());
}
