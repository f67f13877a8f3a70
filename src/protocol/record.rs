//! A record has the values that a store keeps, and conditional writes change it. The module does no
//! I/O.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::protocol::causes::text_of;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::Journal;
use crate::protocol::packed::PackedOutcome;

mod writes;

pub use crate::protocol::record::writes::{
    Amendment, Basis, Completion, Ended, Final, Intervention, NewClaim, RecordWrite, Release,
    Renewal, Takeover,
};

/// The layout version that this crate writes, and the only one that it believes.
pub const LAYOUT: i64 = 1;

/// The status of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Claimed, or released; a released record has the lease 0.
    InProgress,
    /// The handler succeeded; its outcome is replayed.
    Completed,
    /// The handler failed for good; its failure is replayed.
    Failed,
}

impl Status {
    /// Returns the stored form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "INPROGRESS",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
        }
    }

    /// Reads the stored form; `None` for a word that this crate doesn't know.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::InProgress, Self::Completed, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

/// The outcome of a handler, in the form in which it is stored.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoredOutcome {
    /// The outcome's JSON text.
    Inline(String),
    /// It was larger than the inline limit, and is compressed: here or elsewhere.
    Packed(PackedOutcome),
    /// The handler succeeded, but its outcome could not be kept; a replay gets an error that says
    /// so, never a second run.
    Omitted(Omission),
}

/// Shows no outcome: it may hold anything.
impl fmt::Debug for StoredOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(text) => write!(f, "Inline({} bytes)", text.len()),
            Self::Packed(packed) => f.debug_tuple("Packed").field(packed).finish(),
            Self::Omitted(reason) => f.debug_tuple("Omitted").field(reason).finish(),
        }
    }
}

/// A failure that the caller marked permanent, as it is replayed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The error's type, as Rust names it.
    pub kind: String,
    /// The error's message.
    pub message: String,
}

impl Failure {
    /// Makes the failure of an error, with the causes of a boxed error and of `anyhow`'s. A message of
    /// more than 1,000 characters is cut. The name of
    /// the error's type takes the place of a message whose `Display` panics: the failure is final
    /// all the same.
    pub fn of<E: fmt::Display + 'static>(error: &E) -> Self {
        let kind = error_kind::<E>();
        let message = error_text(error);
        Self {
            kind: kind.to_owned(),
            message: message.chars().take(1_000).collect(),
        }
    }

    /// Makes the failure of an error that could not be kept.
    pub(crate) fn unknown() -> Self {
        Self {
            kind: "unknown".to_owned(),
            message: "the failure was not kept".to_owned(),
        }
    }
}

/// Shows the kind alone: the message may quote a payload.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// The last error of an attempt that was released before its work began. The next claim takes its
/// number, and removes this mark: an attempt that did begin never has it.
pub(crate) const NOT_STARTED: &str = "not started";

/// The last error of a claim whose reply did not come.
pub(crate) const WITHOUT_REPLY: &str = "claim without a reply";

/// Returns the name under which an error of this type is remembered and logged: its type's, never
/// its message.
pub(crate) fn error_kind<E>() -> &'static str {
    std::any::type_name::<E>()
}

/// Gives the text of an error, with its causes where they are known; the name of its type where its
/// `Display` panics.
pub(crate) fn error_text<E: fmt::Display + 'static>(error: &E) -> String {
    catch_unwind(AssertUnwindSafe(|| text_of(error)))
        .unwrap_or_else(|_| error_kind::<E>().to_owned())
}

/// The record of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Record {
    /// Its status.
    pub status: Status,
    /// The time from which it counts as absent, and may be deleted by TTL.
    pub expiration: EpochSeconds,
    /// The owner of the last claim; `None` where another library made it.
    pub owner: Option<Owner>,
    /// The instant from which another attempt may take it over. Zero means released.
    pub lease: Option<EpochMillis>,
    /// The number of claims that it has had since it was last fresh.
    pub attempt: u32,
    /// The payload that it was first used with.
    pub fingerprint: Option<Fingerprint>,
    /// The outcome of the handler.
    pub outcome: Option<StoredOutcome>,
    /// The kind of the error that the last attempt ended with.
    pub last_error: Option<String>,
    /// The steps that its attempts have begun.
    pub journal: Journal,
    /// The time when the current attempt claimed it.
    pub started_at: Option<EpochMillis>,
    /// The time when its outcome became final.
    pub completed_at: Option<EpochMillis>,
    /// The version of the layout; `None` where another library wrote it.
    pub layout: Option<i64>,
}

impl Record {
    /// Makes a record with nothing but what every record has. A store that decodes one fills in the
    /// rest.
    pub fn new(status: Status, expiration: EpochSeconds) -> Self {
        Self {
            status,
            expiration,
            owner: None,
            lease: None,
            attempt: 1,
            fingerprint: None,
            outcome: None,
            last_error: None,
            journal: Journal::default(),
            started_at: None,
            completed_at: None,
            layout: None,
        }
    }

    /// Tells whether its lease was ended by a release.
    pub fn is_released(&self) -> bool {
        self.status == Status::InProgress && self.lease == Some(RELEASED)
    }
}

/// The lease of a released record.
pub const RELEASED: EpochMillis = EpochMillis(0);

/// The version of a record is what a compare-and-set compares: a takeover succeeds only if the
/// record is still exactly this. An absent attribute must still be absent.
///
/// Its `Debug` shows a status only if it is one.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Version {
    /// `owner`
    pub owner: Option<String>,
    /// `status`
    pub status: Option<String>,
    /// `in_progress_expiration`, epoch milliseconds
    pub lease: Option<i64>,
    /// `expiration`, epoch seconds
    pub expiration: Option<i64>,
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |status: &String| Status::parse(status).map_or("unknown", Status::as_str);
        f.debug_struct("Version")
            .field("owner", &self.owner)
            .field("status", &self.status.as_ref().map(known))
            .field("lease", &self.lease)
            .field("expiration", &self.expiration)
            .finish()
    }
}

impl Version {
    /// Returns the version of a record that is well formed.
    pub fn of(record: &Record) -> Self {
        Self {
            owner: record.owner.as_ref().map(|owner| owner.as_str().to_owned()),
            status: Some(record.status.as_str().to_owned()),
            lease: record.lease.map(|lease| lease.0),
            expiration: Some(record.expiration.0),
        }
    }
}

/// A record as a store found it has the version that a compare-and-set needs, and the content,
/// where it could be understood.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Found {
    /// The version to compare.
    pub version: Version,
    /// The record, or in words why it can't be understood.
    pub content: Result<Box<Record>, String>,
}

impl Found {
    /// Takes a record that could be understood.
    pub fn readable(record: Record) -> Self {
        Self {
            version: Version::of(&record),
            content: Ok(Box::new(record)),
        }
    }

    /// Takes a record that is there, but can't be understood: `reason` is for a person.
    pub fn unreadable(version: Version, reason: impl Into<String>) -> Self {
        Self {
            version,
            content: Err(reason.into()),
        }
    }
}

/// 128 bits.
const BYTES: usize = 16;

/// An owner identifies the attempt that holds a claim: 128 random bits, new for every attempt,
/// never reused.
///
/// The Lambda request id is not an owner: retries of an asynchronous invocation keep it, and a
/// handler that timed out may still be running beside its retry.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

impl Owner {
    /// Makes a fresh owner from the operating system's entropy.
    ///
    /// # Errors
    ///
    /// When the operating system has none to give.
    pub fn random() -> Result<Self, EntropyError> {
        let mut bytes = [0; BYTES];
        fill(&mut bytes)?;
        Ok(Self::of(&bytes))
    }

    fn of(bytes: &[u8; BYTES]) -> Self {
        let mut digits = [0; 2 * BYTES];
        Self(HEXLOWER.encode_mut_str(bytes, &mut digits).into())
    }

    /// Takes an owner as it was read from a store.
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the 32 lower-case hex digits, where this crate made it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.0)
    }
}

/// The operating system gave no random bytes, so no claim can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no random bytes for a claim's owner: {}{}", .0, see!("no-entropy"))]
pub struct EntropyError(String);

fn fill(bytes: &mut [u8]) -> Result<(), EntropyError> {
    getrandom::fill(bytes).map_err(|error| EntropyError(error.to_string()))
}

/// Draws several fresh owners together: the operating system is asked once for as many claims as
/// are made side by side. They are kept for no longer than a batch, and each is given away once.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The number that is drawn together. Below two, each is drawn when it is asked for, and no
    /// caller waits for another.
    together: usize,
    drawn: Mutex<Vec<Owner>>,
}

impl Owners {
    /// Makes the owners of a batch that needs this many side by side.
    #[cfg(feature = "batch")]
    pub(crate) fn for_batch(side_by_side: usize) -> Self {
        Self {
            together: side_by_side,
            drawn: Mutex::default(),
        }
    }

    /// Gives an owner that no other claim has.
    pub(crate) fn next(&self) -> Result<Owner, EntropyError> {
        if self.together < 2 {
            return Owner::random();
        }
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = drawn.pop() {
            return Ok(owner);
        }
        let mut bytes = vec![0; BYTES * self.together];
        fill(&mut bytes)?;
        drawn.extend(bytes.as_chunks().0.iter().map(Owner::of));
        drawn.pop().map_or_else(Owner::random, Ok)
    }
}

/// The reason why an outcome, or a step's result, can't be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Omission {
    /// It is larger than the store takes, or than the inline limit where it is not read.
    #[error("it was too large")]
    TooLarge,
    /// It has no JSON form, or none that reads back as the same value.
    #[error("it has no JSON form that reads back as the same value")]
    NotSerializable,
    /// The store didn't take it in time, beside the record.
    #[error("it was large, and the store did not take it in time")]
    NotKept,
    /// The store remembers keys, and no outcomes.
    #[error("its store keeps no outcomes")]
    Forgotten,
    /// An operator has erased it.
    #[error("it was erased on request")]
    Redacted,
    /// It was kept beside the record, and is no longer there.
    #[error("it was kept beside its record, and is gone")]
    Lost,
    /// The outcome that was kept has another hash than the one that was stored.
    #[error("what was kept is damaged")]
    Damaged,
}

impl Omission {
    /// Returns the stored form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotSerializable => "not_serializable",
            Self::NotKept => "not_kept",
            Self::Forgotten => "forgotten",
            Self::Redacted => "redacted",
            Self::Lost => "lost",
            Self::Damaged => "damaged",
        }
    }

    /// Reads the stored form; `None` for a word that this crate doesn't know.
    pub fn parse(text: &str) -> Option<Self> {
        // A replay finds the others.
        [
            Self::TooLarge,
            Self::NotSerializable,
            Self::NotKept,
            Self::Redacted,
        ]
        .into_iter()
        .find(|omission| omission.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_failure_keeps_a_thousand_characters_of_its_message() {
        for (length, kept) in [(999, 999), (1_000, 1_000), (1_001, 1_000)] {
            let failure = Failure::of(&"ü".repeat(length));
            assert_eq!(failure.message, "ü".repeat(kept));
            assert_eq!(failure.kind, "alloc::string::String");
        }
    }

    #[test]
    #[cfg(feature = "batch")]
    fn the_owners_of_a_batch_are_drawn_together() {
        for (side_by_side, left) in [(0, 0), (1, 0), (2, 1), (25, 24)] {
            let owners = Owners::for_batch(side_by_side);
            owners.next().unwrap();
            assert_eq!(owners.drawn.lock().unwrap().len(), left, "{side_by_side}");
        }
    }

    #[test]
    fn no_owner_is_given_away_twice() {
        for together in [0, 1, 2, 25] {
            let owners = Owners {
                together,
                ..Owners::default()
            };
            let given: HashSet<_> = (0..60).map(|_| owners.next().unwrap()).collect();
            assert_eq!(given.len(), 60, "{together} together");
            assert!(given.iter().all(|owner| owner.as_str().len() == 32));
            let left = owners.drawn.lock().unwrap();
            assert!(left.iter().all(|owner| !given.contains(owner)));
        }
    }
}
