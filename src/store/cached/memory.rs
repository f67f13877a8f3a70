//! The memory of a cached store is bounded by entries and by bytes, and drops the least recently
//! used record first. It has no store and no clock.

use std::mem::size_of;

use lru::LruCache;

use crate::protocol::clock::EpochMillis;
use crate::protocol::key::RecordId;
use crate::protocol::record::{Record, Status, StoredOutcome};

/// The bytes that an entry takes beside its texts: itself, and its place in the map and in the
/// order of use.
const OVERHEAD: usize = size_of::<RecordId>() + size_of::<Record>() + 64;

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
    /// Final records, and this process's own claims: a claim answers no request, but the record
    /// that its completion leaves is made from it.
    entries: LruCache<RecordId, Record>,
    bytes: usize,
}

impl Memory {
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            max_entries,
            max_bytes,
            entries: LruCache::unbounded(),
            bytes: 0,
        }
    }

    /// Returns the final record of this id, while no other process may have taken it over: its
    /// expiration comes before the skew margin, and a takeover after it.
    pub(super) fn outcome(&mut self, id: &RecordId, now: EpochMillis) -> Option<Record> {
        let record = self.entries.get(id)?;
        if record.status == Status::InProgress {
            return None;
        }
        if now < record.expiration.to_millis() {
            return Some(record.clone());
        }
        self.forget(id);
        None
    }

    /// Returns the claim of this id, where one is remembered.
    pub(super) fn claim(&self, id: &RecordId) -> Option<&Record> {
        let record = self.entries.peek(id)?;
        (record.status == Status::InProgress).then_some(record)
    }

    pub(super) fn forget(&mut self, id: &RecordId) {
        if let Some(record) = self.entries.pop(id) {
            self.bytes = self.bytes.saturating_sub(size(id, &record));
        }
    }

    pub(super) fn put(&mut self, id: &RecordId, record: Record) {
        self.forget(id);
        let size = size(id, &record);
        // It would drive out everything else, and then not fit.
        if size > self.max_bytes || self.max_entries == 0 {
            return;
        }
        self.bytes += size;
        self.entries.put(id.clone(), record);
        while self.entries.len() > self.max_entries || self.bytes > self.max_bytes {
            let Some((id, record)) = self.entries.pop_lru() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(self::size(&id, &record));
        }
    }
}

/// Tells how many bytes an entry takes.
fn size(id: &RecordId, record: &Record) -> usize {
    let outcome = match &record.outcome {
        Some(StoredOutcome::Inline(text)) => text.len(),
        Some(StoredOutcome::Packed(packed)) => packed.size(),
        _ => 0,
    };
    let owner = record
        .owner
        .as_ref()
        .map_or(0, |owner| owner.as_str().len());
    let fingerprint = record
        .fingerprint
        .as_ref()
        .map_or(0, |print| print.as_str().len());
    let last_error = record.last_error.as_ref().map_or(0, String::len);
    let texts = id.as_str().len() + id.hash().len() + outcome + owner + fingerprint + last_error;
    OVERHEAD + texts + record.journal.size()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::clock::EpochSeconds;
    use crate::protocol::key::Key;
    use crate::protocol::namespace::Namespace;
    use crate::protocol::packed::{PackedOutcome, Place};
    use crate::protocol::record::Owner;

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
        let packed = PackedOutcome::from_stored("digest", 1_000, content);
        let mut compressed = outcome("");
        compressed.outcome = Some(StoredOutcome::Packed(packed));
        assert_eq!(size(&id(1), &compressed), bare + "digest".len() + 7);
    }

    #[test]
    fn an_entry_may_take_all_the_room_there_is() {
        let room = size(&id(1), &outcome("1"));
        for (most, fits) in [(room, true), (room - 1, false)] {
            let mut memory = Memory::new(2, most);
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
        let mut memory = Memory::new(2, usize::MAX);
        memory.put(&id(1), outcome("1"));
        memory.put(&id(2), outcome("2"));
        assert!(memory.outcome(&id(1), NOW).is_some());
        memory.put(&id(3), outcome("3"));
        assert!(memory.outcome(&id(2), NOW).is_none());
        assert!(memory.outcome(&id(1), NOW).is_some() && memory.outcome(&id(3), NOW).is_some());
    }

    #[test]
    fn room_for_one_entry_holds_the_last_one() {
        let mut memory = Memory::new(1, usize::MAX);
        for n in [1, 2] {
            memory.put(&id(n), outcome("1"));
            assert!(memory.outcome(&id(n), NOW).is_some());
        }
        assert!(memory.outcome(&id(1), NOW).is_none());
    }

    #[test]
    fn large_outcomes_drive_out_others_and_those_that_never_fit_do_not() {
        let mut memory = Memory::new(100, 4_000);
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
        let mut memory = Memory::new(2, usize::MAX);
        memory.put(&id(1), outcome("1"));
        assert!(memory.outcome(&id(1), EpochMillis(99_999)).is_some());
        assert!(memory.outcome(&id(1), EpochMillis(100_000)).is_none());
        assert_eq!((memory.entries.len(), memory.bytes), (0, 0));
    }

    #[test]
    fn a_claim_answers_nothing() {
        let mut memory = Memory::new(2, usize::MAX);
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
        for mut memory in [Memory::new(0, usize::MAX), Memory::new(10, 0)] {
            memory.put(&id(1), outcome("1"));
            assert_eq!((memory.entries.len(), memory.bytes), (0, 0));
        }
    }

    proptest! {
        #[test]
        fn the_bounds_hold_and_the_bytes_are_those_of_the_entries(
            changes in prop::collection::vec((0..8_u8, 0..4_u8, 0..2_000_usize), 0..100),
        ) {
            let owner = Owner::random().unwrap();
            let mut memory = Memory::new(5, 4_000);
            for (name, change, length) in changes {
                let id = id(name);
                match change {
                    0 => memory.put(&id, claim(&owner)),
                    1 | 2 => memory.forget(&id),
                    _ => memory.put(&id, outcome(&"x".repeat(length))),
                }
                let bytes: usize = memory.entries.iter().map(|(id, entry)| size(id, entry)).sum();
                prop_assert_eq!(memory.bytes, bytes);
                prop_assert!(memory.entries.len() <= 5 && bytes <= 4_000);
            }
        }
    }
}
