//! The values that a store keeps, and the changes that it is asked to make. No I/O.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::{EpochMillis, EpochSeconds};
use crate::fingerprint::Fingerprint;
use crate::journal::{Journal, StepNote};
use crate::key::RecordId;
use crate::packed::PackedOutcome;

pub use crate::omission::Omission;
pub use crate::owner::{EntropyError, Owner};

/// The layout version that this crate writes, and the only one that it believes.
pub const LAYOUT: i64 = 1;

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Claimed, or released; the lease tells which.
    InProgress,
    /// The handler succeeded; its outcome is replayed.
    Completed,
    /// The handler failed for good; its failure is replayed.
    Failed,
}

impl Status {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "INPROGRESS",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
        }
    }

    /// From its stored form; `None` for a word that this crate doesn't know.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::InProgress, Self::Completed, Self::Failed]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

/// What a handler produced, in the form in which it is stored.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoredOutcome {
    /// The outcome's JSON text.
    Inline(String),
    /// It was larger than the inline limit, and is compressed: here or elsewhere.
    Packed(PackedOutcome),
    /// The handler succeeded, but its outcome could not be kept; a replay gets an error that says so, never a second run.
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
    /// Of an error. A message of more than 1,000 characters is cut.
    pub fn of<E: fmt::Display>(error: &E) -> Self {
        Self {
            kind: error_kind::<E>().to_owned(),
            message: error.to_string().chars().take(1_000).collect(),
        }
    }

    /// Of an error that could not be kept.
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

/// The name under which an error of this type is remembered and logged: its type's, never its message.
pub(crate) fn error_kind<E>() -> &'static str {
    std::any::type_name::<E>()
}

/// The record that stands for one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Record {
    /// Where it stands.
    pub status: Status,
    /// From when on it counts as absent, and may be deleted by TTL.
    pub expiration: EpochSeconds,
    /// Who claimed it last; `None` where another library did.
    pub owner: Option<Owner>,
    /// The instant from which somebody else may take it over. Zero means released.
    pub lease: Option<EpochMillis>,
    /// How many claims it has had since it was last fresh.
    pub attempt: u32,
    /// The payload that it was first used with.
    pub fingerprint: Option<Fingerprint>,
    /// What the handler produced.
    pub outcome: Option<StoredOutcome>,
    /// The kind of the error that the last attempt ended with.
    pub last_error: Option<String>,
    /// The steps that its attempts have begun.
    pub journal: Journal,
    /// When the current attempt claimed it.
    pub started_at: Option<EpochMillis>,
    /// When its outcome became final.
    pub completed_at: Option<EpochMillis>,
    /// The version of the layout; `None` where another library wrote it.
    pub layout: Option<i64>,
}

impl Record {
    /// A record with nothing but what every record has. A store that decodes one fills in the rest.
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

    /// The record that a claim on a fresh key writes.
    pub fn claimed(claim: &NewClaim) -> Self {
        Self {
            owner: Some(claim.owner.clone()),
            lease: Some(claim.lease),
            attempt: claim.attempt,
            fingerprint: claim.fingerprint.clone(),
            started_at: Some(claim.started_at),
            layout: Some(LAYOUT),
            ..Self::new(Status::InProgress, claim.expiration)
        }
    }

    /// What a completion makes of it.
    pub(crate) fn complete(&mut self, completion: &Completion) {
        self.status = completion.status;
        self.outcome = Some(completion.outcome.clone());
        self.completed_at = Some(completion.completed_at);
        self.expiration = completion.expiration;
        self.lease = None;
    }

    /// Whether its lease was ended by a release.
    pub fn is_released(&self) -> bool {
        self.status == Status::InProgress && self.lease == Some(RELEASED)
    }
}

/// The lease of a released record.
pub const RELEASED: EpochMillis = EpochMillis(0);

/// What a compare-and-set compares: a takeover succeeds only if the record is still exactly this. An absent attribute must
/// still be absent.
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
    /// Of a record that is well formed.
    pub fn of(record: &Record) -> Self {
        Self {
            owner: record.owner.as_ref().map(|owner| owner.as_str().to_owned()),
            status: Some(record.status.as_str().to_owned()),
            lease: record.lease.map(|lease| lease.0),
            expiration: Some(record.expiration.0),
        }
    }
}

/// A record as a store found it: what a compare-and-set needs, and the content, where it could be understood.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Found {
    /// What to compare.
    pub version: Version,
    /// The record, or in words why it can't be understood.
    pub content: Result<Box<Record>, String>,
}

impl Found {
    /// A record that could be understood.
    pub fn readable(record: Record) -> Self {
        Self {
            version: Version::of(&record),
            content: Ok(Box::new(record)),
        }
    }

    /// A record that is there, but can't be understood: `reason` is for a person.
    pub fn unreadable(version: Version, reason: impl Into<String>) -> Self {
        Self {
            version,
            content: Err(reason.into()),
        }
    }
}

/// A claim to be written, by [`Store::create`](crate::store::Store::create) or
/// [`Store::take_over`](crate::store::Store::take_over).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NewClaim {
    /// Which record.
    pub id: RecordId,
    /// Who claims.
    pub owner: Owner,
    /// The payload's fingerprint; `None` where the caller opted out.
    pub fingerprint: Option<Fingerprint>,
    /// 1 on a fresh key, else one more than the last.
    pub attempt: u32,
    /// When the claim ends; includes the skew margin.
    pub lease: EpochMillis,
    /// From when on TTL may delete the record; never before the lease.
    pub expiration: EpochSeconds,
    /// Now.
    pub started_at: EpochMillis,
}

/// What a takeover keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Takeover {
    /// The record had expired: nothing is kept.
    Fresh,
    /// A released or crashed attempt: the journal and the last error stay.
    Resume,
}

/// A final result to be written under the fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// Which record.
    pub id: RecordId,
    /// Who claims to hold it.
    pub owner: Owner,
    /// [`Status::Completed`] or [`Status::Failed`].
    pub status: Status,
    /// What is replayed.
    pub outcome: StoredOutcome,
    /// Frozen before the first send, so that a repeated send writes the same.
    pub completed_at: EpochMillis,
    /// How long it is kept.
    pub expiration: EpochSeconds,
}

/// A longer lease, to be written under the fence; it never shortens one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// Which record.
    pub id: RecordId,
    /// Who claims to hold it.
    pub owner: Owner,
    /// The new lease; includes the skew margin.
    pub lease: EpochMillis,
    /// From when on TTL may delete the record; never before the lease.
    pub expiration: EpochSeconds,
}

/// A note on a record in progress, to be written under the fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Amendment {
    /// Which record.
    pub id: RecordId,
    /// Who claims to hold it.
    pub owner: Owner,
    /// The kind of the last error; `None` leaves the attribute alone.
    pub last_error: Option<String>,
    /// A step's entry; it applies only over an older revision of the same step's. `None` leaves the journal alone.
    pub step: Option<StepNote>,
}

/// The end of a lease, to be written under the fence. Nothing is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// Which record.
    pub id: RecordId,
    /// Who claims to hold it.
    pub owner: Owner,
    /// A fresh owner that nobody has, so that no late write of the old one matches.
    pub tombstone: Owner,
    /// The kind of the error that ended the attempt.
    pub last_error: Option<String>,
    /// Whether another payload may use the key from now on.
    pub forget_fingerprint: bool,
}
