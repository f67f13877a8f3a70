//! The memory itself: bounded by entries and by bytes, the least recently used goes first. No store, no clock.

use std::mem::size_of;

use lru::LruCache;

use crate::clock::EpochMillis;
use crate::key::RecordId;
use crate::record::{Owner, Record, StoredOutcome};

/// What an entry takes beside its texts: itself, and its place in the map and in the order of use.
const OVERHEAD: usize = size_of::<RecordId>() + size_of::<Entry>() + 64;

#[derive(Debug)]
enum Entry {
    /// A claim of this process's own, noted so that its outcome can be remembered when it ends. It answers nothing.
    Claim(Record),
    /// A final record.
    Outcome(Record),
}

#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
    entries: LruCache<RecordId, Entry>,
    bytes: usize,
}

impl Shelf {
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            max_entries,
            max_bytes,
            entries: LruCache::unbounded(),
            bytes: 0,
        }
    }

    /// The final record of this id, while nobody may have taken it over: its expiration comes before the skew margin, and a
    /// takeover after it.
    pub(super) fn outcome(&mut self, id: &RecordId, now: EpochMillis) -> Option<Record> {
        match self.entries.get(id)? {
            Entry::Outcome(record) if now < record.expiration.to_millis() => Some(record.clone()),
            Entry::Outcome(_) => {
                self.forget(id);
                None
            }
            Entry::Claim(_) => None,
        }
    }

    pub(super) fn put_claim(&mut self, id: &RecordId, record: Record) {
        self.put(id, Entry::Claim(record));
    }

    pub(super) fn put_outcome(&mut self, id: &RecordId, record: Record) {
        self.put(id, Entry::Outcome(record));
    }

    /// The claim of this owner, which has ended.
    pub(super) fn take_claim(&mut self, id: &RecordId, owner: &Owner) -> Option<Record> {
        match self.entries.peek(id)? {
            Entry::Claim(record) if record.owner.as_ref() == Some(owner) => {}
            _ => return None,
        }
        match self.remove(id)? {
            Entry::Claim(record) | Entry::Outcome(record) => Some(record),
        }
    }

    pub(super) fn forget(&mut self, id: &RecordId) {
        self.remove(id);
    }

    fn remove(&mut self, id: &RecordId) -> Option<Entry> {
        let entry = self.entries.pop(id)?;
        self.bytes = self.bytes.saturating_sub(size(id, &entry));
        Some(entry)
    }

    fn put(&mut self, id: &RecordId, entry: Entry) {
        self.forget(id);
        let size = size(id, &entry);
        // It would drive out everything else, and then not fit.
        if size > self.max_bytes || self.max_entries == 0 {
            return;
        }
        self.bytes += size;
        self.entries.put(id.clone(), entry);
        while self.entries.len() > self.max_entries || self.bytes > self.max_bytes {
            let Some((id, entry)) = self.entries.pop_lru() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(self::size(&id, &entry));
        }
    }
}

/// How many bytes an entry takes.
fn size(id: &RecordId, entry: &Entry) -> usize {
    let (Entry::Claim(record) | Entry::Outcome(record)) = entry;
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
    use crate::clock::EpochSeconds;
    use crate::key::{Key, Namespace};
    use crate::record::Status;

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
        let bare = size(&id(1), &Entry::Outcome(outcome("")));
        assert_eq!(bare, OVERHEAD + id(1).as_str().len() + id(1).hash().len());
        let mut full = outcome("1234");
        full.owner = Some(Owner::from_stored("me"));
        full.last_error = Some("why".to_owned());
        let fingerprint = crate::Fingerprint::bytes(b"payload");
        let texts = "1234mewhy".len() + fingerprint.as_str().len();
        full.fingerprint = Some(fingerprint);
        assert_eq!(size(&id(1), &Entry::Outcome(full)), bare + texts);
        let claimed = Record::new(Status::InProgress, EpochSeconds(100));
        assert_eq!(size(&id(1), &Entry::Claim(claimed)), bare);
    }

    #[test]
    fn an_entry_may_take_all_the_room_there_is() {
        let room = size(&id(1), &Entry::Outcome(outcome("1")));
        for (most, fits) in [(room, true), (room - 1, false)] {
            let mut shelf = Shelf::new(2, most);
            shelf.put_outcome(&id(1), outcome("1"));
            assert_eq!(shelf.outcome(&id(1), NOW).is_some(), fits);
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
        let mut shelf = Shelf::new(2, usize::MAX);
        shelf.put_outcome(&id(1), outcome("1"));
        shelf.put_outcome(&id(2), outcome("2"));
        assert!(shelf.outcome(&id(1), NOW).is_some());
        shelf.put_outcome(&id(3), outcome("3"));
        assert!(shelf.outcome(&id(2), NOW).is_none());
        assert!(shelf.outcome(&id(1), NOW).is_some() && shelf.outcome(&id(3), NOW).is_some());
    }

    #[test]
    fn large_outcomes_drive_out_others_and_those_that_never_fit_do_not() {
        let mut shelf = Shelf::new(100, 4_000);
        for n in 0..4 {
            shelf.put_outcome(&id(n), outcome("small"));
        }
        shelf.put_outcome(&id(9), outcome(&"x".repeat(4_000)));
        assert!((0..4).all(|n| shelf.outcome(&id(n), NOW).is_some()));
        shelf.put_outcome(&id(9), outcome(&"x".repeat(2_500)));
        assert!(shelf.outcome(&id(9), NOW).is_some() && shelf.outcome(&id(0), NOW).is_none());
    }

    #[test]
    fn an_outcome_is_forgotten_when_it_expires() {
        let mut shelf = Shelf::new(2, usize::MAX);
        shelf.put_outcome(&id(1), outcome("1"));
        assert!(shelf.outcome(&id(1), EpochMillis(99_999)).is_some());
        assert!(shelf.outcome(&id(1), EpochMillis(100_000)).is_none());
        assert_eq!((shelf.entries.len(), shelf.bytes), (0, 0));
    }

    #[test]
    fn a_claim_answers_nothing_and_ends_for_its_owner_alone() {
        let (mine, other) = (Owner::random().unwrap(), Owner::random().unwrap());
        let mut shelf = Shelf::new(2, usize::MAX);
        shelf.put_claim(&id(1), claim(&mine));
        assert_eq!(shelf.outcome(&id(1), NOW), None);
        assert_eq!(shelf.take_claim(&id(1), &other), None);
        assert!(shelf.take_claim(&id(1), &mine).is_some());
        assert_eq!(shelf.bytes, 0);
    }

    #[test]
    fn without_room_nothing_is_remembered() {
        for mut shelf in [Shelf::new(0, usize::MAX), Shelf::new(10, 0)] {
            shelf.put_outcome(&id(1), outcome("1"));
            assert_eq!((shelf.entries.len(), shelf.bytes), (0, 0));
        }
    }

    proptest! {
        #[test]
        fn the_bounds_hold_and_the_bytes_are_those_of_the_entries(
            changes in prop::collection::vec((0..8_u8, 0..4_u8, 0..2_000_usize), 0..100),
        ) {
            let owner = Owner::random().unwrap();
            let mut shelf = Shelf::new(5, 4_000);
            for (name, change, length) in changes {
                let id = id(name);
                match change {
                    0 => shelf.put_claim(&id, claim(&owner)),
                    1 => drop(shelf.take_claim(&id, &owner)),
                    2 => shelf.forget(&id),
                    _ => shelf.put_outcome(&id, outcome(&"x".repeat(length))),
                }
                let bytes: usize = shelf.entries.iter().map(|(id, entry)| size(id, entry)).sum();
                prop_assert_eq!(shelf.bytes, bytes);
                prop_assert!(shelf.entries.len() <= 5 && bytes <= 4_000);
            }
        }
    }
}
