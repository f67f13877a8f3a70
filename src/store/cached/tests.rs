//! Tests of the module above.

use proptest::prelude::*;

use super::*;
use crate::protocol::clock::EpochSeconds;
use crate::protocol::key::{Key, Namespace};
use crate::protocol::packed::{PackedOutcome, Place};
use crate::protocol::record::Owner;
use crate::store::MemoryStore;

#[test]
fn by_default_records_are_remembered_in_four_mebibytes() {
    let store = CachedStore::new(MemoryStore::new());
    assert_eq!(lock(&store.memory).max_bytes, 4 * 1_024 * 1_024);
    assert_eq!(lock(&store.max_bytes(70).memory).max_bytes, 70);
}

#[tokio::test(start_paused = true)]
async fn a_call_at_its_deadline_is_for_the_store_to_refuse() {
    use crate::protocol::clock::EpochSeconds;
    use crate::protocol::record::Record;

    let store = CachedStore::new(MemoryStore::new());
    let id = RecordId::unkeyed("nonce");
    let record = Record::new(Status::Completed, EpochSeconds(i64::MAX / 1_000));
    lock(&store.memory).put(&id, record);
    let late = store.load(&id, Instant::now()).await;
    assert_matches!(late, Err(StoreError::NotSent));
    let soon = Instant::now() + Duration::from_millis(1);
    assert!(store.load(&id, soon).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_final_record_that_was_read_is_not_read_again() {
    use crate::protocol::clock::{EpochMillis, EpochSeconds};
    use crate::protocol::record::{Completion, NewClaim, Owner, StoredOutcome};

    let soon = Instant::now() + Duration::from_secs(1);
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
    // The store below has none of them any more: a second read would miss them.
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

/// Answers after this time.
struct Slow(Duration);

impl Slow {
    async fn answer(&self, until: Instant) -> Result<(), StoreError> {
        let answer = tokio::time::timeout_at(until, tokio::time::sleep(self.0));
        answer.await.map_err(|_| StoreError::Timeout)
    }
}

impl Store for Slow {
    async fn write(&self, _: &RecordWrite, until: Instant) -> Result<Answer, StoreError> {
        self.answer(until).await?;
        Ok(Answer::Applied(None))
    }

    async fn load(&self, _: &RecordId, until: Instant) -> Result<Option<Found>, StoreError> {
        self.answer(until).await?;
        Ok(None)
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_waits_for_a_store_that_is_slow() {
    let store = CachedStore::new(Slow(PATIENCE / 2));
    let ids = [1, 2].map(id);
    let known = Record::new(Status::Completed, EpochSeconds(i64::MAX / 1_000));
    lock(&store.memory).put(&ids[0], known);
    let deadline = Instant::now() + Duration::from_mins(1);
    let read = store.load_all(&ids, deadline).await;
    assert_matches!(read.as_slice(), [Ok(Some(_)), Ok(None)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_does_not_wait_for_a_store_without_an_answer() {
    use crate::protocol::record::NewClaim;

    let store = CachedStore::new(Slow(Duration::MAX));
    let (ids, owner) = ([1, 2].map(id), Owner::from_stored("me"));
    let expiration = EpochSeconds(i64::MAX / 1_000);
    let known = Record::new(Status::Completed, expiration);
    lock(&store.memory).put(&ids[0], known);
    lock(&store.memory).put(&ids[1], claim(&owner));
    let claims = ids.each_ref().map(|id| {
        let claim = NewClaim::new(id.clone(), owner.clone(), NOW, NOW, expiration);
        RecordWrite::from(claim)
    });
    let began = Instant::now();
    let deadline = began + Duration::from_mins(1);
    let written = store.write_all(&claims, deadline).await;
    let read = store.load_all(&ids, deadline).await;
    assert_eq!(began.elapsed(), 2 * PATIENCE);
    let [Ok(Answer::Refused(Some(_))), Err(left)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert!(left.is_left_to_caller() && left.is_uncertain(), "{left:?}");
    assert!(
        lock(&store.memory).claim(&ids[1]).is_none(),
        "it is forgotten"
    );
    assert_matches!(read.as_slice(), [Ok(Some(_)), Err(StoreError::NotSent)]);
    // Where nothing is known, nobody waits for another one.
    let alone = store.load_all(&ids[1..], deadline).await;
    assert_matches!(alone[0], Err(StoreError::Timeout));
}

fn id(name: u8) -> RecordId {
    let key = Key::new("charge", name.to_string());
    key.resolve(&Namespace::new("shop").unwrap(), 255).unwrap()
}

fn outcome(text: &str) -> Record {
    let mut record = Record::new(Status::Completed, EpochSeconds(100));
    record.outcome = Some(StoredOutcome::Inline(text.to_owned()));
    record
}

#[test]
fn an_entry_takes_its_texts_and_what_holds_them() {
    let bare = size(&id(1), &outcome(""));
    assert_eq!(bare, OVERHEAD + id(1).as_str().len() + id(1).hash().len());
    let mut full = outcome("1234");
    full.owner = Some(Owner::from_stored("me"));
    full.last_error = Some("why".to_owned());
    let fingerprint = crate::Fingerprint::bytes(b"payload");
    let texts = "1234mewhy".len() + fingerprint.as_str().len();
    full.fingerprint = Some(fingerprint);
    assert_eq!(size(&id(1), &full), bare + texts);
    let claimed = Record::new(Status::InProgress, EpochSeconds(100));
    assert_eq!(size(&id(1), &claimed), bare);
    let content = Place::Record(vec![0; 7]);
    let packed = PackedOutcome {
        sha256: "digest".to_owned(),
        bytes: 1_000,
        place: content,
    };
    let mut compressed = outcome("");
    compressed.outcome = Some(StoredOutcome::Packed(packed));
    assert_eq!(size(&id(1), &compressed), bare + "digest".len() + 7);
}

#[test]
fn an_entry_may_take_all_the_room_there_is() {
    let room = size(&id(1), &outcome("1"));
    for (most, fits) in [(room, true), (room - 1, false)] {
        let mut memory = Memory::new(most);
        memory.put(&id(1), outcome("1"));
        assert_eq!(memory.outcome(&id(1), NOW).is_some(), fits);
    }
}

fn claim(owner: &Owner) -> Record {
    let mut record = Record::new(Status::InProgress, EpochSeconds(100));
    record.owner = Some(owner.clone());
    record
}

const NOW: EpochMillis = EpochMillis(0);

#[test]
fn the_least_recently_used_goes_first() {
    let mut memory = Memory::new(2 * size(&id(1), &outcome("1")));
    memory.put(&id(1), outcome("1"));
    memory.put(&id(2), outcome("2"));
    assert!(memory.outcome(&id(1), NOW).is_some());
    memory.put(&id(3), outcome("3"));
    assert!(memory.outcome(&id(2), NOW).is_none());
    assert!(memory.outcome(&id(1), NOW).is_some() && memory.outcome(&id(3), NOW).is_some());
}

#[test]
fn room_for_one_entry_holds_the_last_one() {
    let mut memory = Memory::new(size(&id(1), &outcome("1")));
    for n in [1, 2] {
        memory.put(&id(n), outcome("1"));
        assert!(memory.outcome(&id(n), NOW).is_some());
    }
    assert!(memory.outcome(&id(1), NOW).is_none());
}

#[test]
fn large_outcomes_drive_out_others_and_those_that_never_fit_do_not() {
    let mut memory = Memory::new(4_000);
    for n in 0..4 {
        memory.put(&id(n), outcome("small"));
    }
    memory.put(&id(9), outcome(&"x".repeat(4_000)));
    assert!((0..4).all(|n| memory.outcome(&id(n), NOW).is_some()));
    memory.put(&id(9), outcome(&"x".repeat(2_500)));
    assert!(memory.outcome(&id(9), NOW).is_some() && memory.outcome(&id(0), NOW).is_none());
}

#[test]
fn an_outcome_is_forgotten_when_it_expires() {
    let mut memory = Memory::new(usize::MAX);
    memory.put(&id(1), outcome("1"));
    assert!(memory.outcome(&id(1), EpochMillis(99_999)).is_some());
    assert!(memory.outcome(&id(1), EpochMillis(100_000)).is_none());
    assert_eq!((memory.entries.len(), memory.bytes), (0, 0));
}

#[test]
fn a_claim_answers_nothing() {
    let mut memory = Memory::new(usize::MAX);
    memory.put(&id(1), claim(&Owner::random().unwrap()));
    assert_eq!(memory.outcome(&id(1), NOW), None);
    assert!(memory.claim(&id(1)).is_some() && memory.claim(&id(2)).is_none());
    memory.put(&id(1), outcome("1"));
    assert_eq!(memory.claim(&id(1)), None);
    memory.forget(&id(1));
    assert_eq!(memory.bytes, 0);
}

#[test]
fn without_room_nothing_is_remembered() {
    let mut memory = Memory::new(0);
    memory.put(&id(1), outcome("1"));
    assert_eq!((memory.entries.len(), memory.bytes), (0, 0));
}

proptest! {
    #[test]
    fn the_bound_holds_and_the_bytes_are_those_of_the_entries(
        changes in prop::collection::vec((0..8_u8, 0..4_u8, 0..2_000_usize), 0..100),
    ) {
        let owner = Owner::random().unwrap();
        let mut memory = Memory::new(4_000);
        for (name, change, length) in changes {
            let id = id(name);
            match change {
                0 => memory.put(&id, claim(&owner)),
                1 | 2 => memory.forget(&id),
                _ => memory.put(&id, outcome(&"x".repeat(length))),
            }
            let bytes: usize = memory.entries.iter().map(|(id, entry)| size(id, entry)).sum();
            prop_assert_eq!(memory.bytes, bytes);
            prop_assert!(bytes <= 4_000);
        }
    }
}
