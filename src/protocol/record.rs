//! A record has the values that a store keeps, and conditional writes change it. The module does no
//! I/O.

use std::fmt;

use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::{Journal, SagaState, SagaStatus};

mod writes;

pub use crate::protocol::outcome::{Failure, Omission, StoredOutcome};
pub(crate) use crate::protocol::outcome::{error_kind, error_text};
pub use crate::protocol::owner::Owner;
pub(crate) use crate::protocol::owner::Owners;
pub use crate::protocol::record::writes::{
    Completion, Ended, Final, Intervention, NewClaim, RecordWrite, Release, Takeover,
};

/// The layout version that this crate writes, and the only one that it believes.
#[doc(hidden)]
pub const LAYOUT: i64 = 1;

/// The status of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Claimed, or released; a released record has the lease 0.
    InProgress,
    /// The handler succeeded; its outcome is replayed.
    Completed,
    /// The handler failed permanently; its failure is replayed.
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

/// The last error of an attempt that was released before its work began. The next claim takes its
/// number, and removes this mark: an attempt that did begin never has it.
#[doc(hidden)]
pub const NOT_STARTED: &str = "not started";

/// The last error of a claim whose reply did not come.
#[doc(hidden)]
pub const WITHOUT_REPLY: &str = "claim without a reply";

/// The last error of an attempt at a step that waits for an operator.
#[doc(hidden)]
pub const INTERRUPTED_STEP: &str = "interrupted step";

/// The last error of an attempt whose work was ended before it returned.
#[doc(hidden)]
pub const TIMED_OUT: &str = "timed out";

/// The last error of an attempt whose work panicked.
#[doc(hidden)]
pub const PANIC: &str = "panic";

/// The last error of an attempt whose run was dropped.
#[doc(hidden)]
pub const DROPPED: &str = "dropped";

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

    /// Returns whether its lease was ended by a release.
    #[doc(hidden)]
    pub fn is_released(&self) -> bool {
        self.status == Status::InProgress && self.lease == Some(RELEASED)
    }
}

/// The lease of a released record.
#[doc(hidden)]
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
    #[doc(hidden)]
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

    /// Takes a record that is there, but can't be understood: `reason` is for an operator.
    pub fn unreadable(version: Version, reason: impl Into<String>) -> Self {
        Self {
            version,
            content: Err(reason.into()),
        }
    }

    /// Returns the record, where it can be understood.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.content.as_deref().ok()
    }
}

#[doc(hidden)]
impl SagaStatus {
    /// Returns the status of a record's saga; `None` where it has none.
    pub fn of(record: &Record) -> Option<Self> {
        let state = SagaState::of(&record.journal)?;
        Some(match record.status {
            Status::Completed if state.failure.is_none() => Self::Completed,
            // A handler may return a success from there.
            Status::Completed | Status::Failed if state.is_undone(&record.journal) => {
                Self::Compensated
            }
            Status::Completed | Status::Failed => Self::Failed,
            _ if state.is_stuck(&record.journal) => Self::Stuck,
            _ if state.failure.is_some() => Self::Compensating,
            _ => Self::Running,
        })
    }
}
