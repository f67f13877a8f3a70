//! A record has the values that a store keeps, and conditional writes change it. The module does no
//! I/O.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::protocol::causes::text_of;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::Journal;
use crate::protocol::packed::PackedOutcome;

pub use crate::protocol::omission::Omission;
pub use crate::protocol::owner::{EntropyError, Owner};

mod writes;

pub use writes::{
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_a_thousand_characters_of_its_message() {
        for (length, kept) in [(999, 999), (1_000, 1_000), (1_001, 1_000)] {
            let failure = Failure::of(&"ü".repeat(length));
            assert_eq!(failure.message, "ü".repeat(kept));
            assert_eq!(failure.kind, "alloc::string::String");
        }
    }
}
