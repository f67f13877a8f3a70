//! The values that a store keeps, and the changes that it is asked to make. No I/O.

use std::fmt;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::clock::{EpochMillis, EpochSeconds};
use crate::fingerprint::Fingerprint;
use crate::key::RecordId;

/// The layout version that this crate writes, and the only one that it believes.
pub const LAYOUT: i64 = 1;

/// Who holds a claim: 128 random bits, new for every attempt, never reused.
///
/// The Lambda request id is not an owner: retries of an asynchronous invocation keep it, and a handler that timed out may
/// still be running beside its retry.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

impl Owner {
    /// A fresh owner from the operating system's entropy.
    ///
    /// # Errors
    ///
    /// When the operating system has none to give.
    pub fn random() -> Result<Self, EntropyError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| EntropyError(error.to_string()))?;
        Ok(Self(HEXLOWER.encode(&bytes).into()))
    }

    /// As it was read from a store.
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// 32 lower-case hex digits, where this crate made it.
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
#[error("the operating system gave no random bytes for a claim's owner: {0}")]
pub struct EntropyError(String);

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
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredOutcome {
    /// The outcome's JSON text.
    Inline(String),
    /// The handler succeeded, but its outcome could not be kept; a replay gets an error that says so, never a second run.
    Omitted(Omission),
}

/// Shows no outcome: it may hold anything.
impl fmt::Debug for StoredOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(text) => write!(f, "Inline({} bytes)", text.len()),
            Self::Omitted(reason) => f.debug_tuple("Omitted").field(reason).finish(),
        }
    }
}

/// Why an outcome was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Omission {
    /// Larger than the inline limit.
    #[error("it was larger than the inline limit")]
    TooLarge,
    /// It has no JSON form.
    #[error("it could not be serialised as JSON")]
    NotSerializable,
}

impl Omission {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotSerializable => "not_serializable",
        }
    }

    /// From its stored form; `None` for a word that this crate doesn't know.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::TooLarge, Self::NotSerializable]
            .into_iter()
            .find(|omission| omission.as_str() == text)
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// What to compare.
    pub version: Version,
    /// The record, or in words why it can't be understood.
    pub content: Result<Record, String>,
}

impl Found {
    /// A record that could be understood.
    pub fn readable(record: Record) -> Self {
        Self {
            version: Version::of(&record),
            content: Ok(record),
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amendment {
    /// Which record.
    pub id: RecordId,
    /// Who claims to hold it.
    pub owner: Owner,
    /// The kind of the last error; `None` leaves the attribute alone.
    pub last_error: Option<String>,
}

/// The end of a lease, to be written under the fence. Nothing is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
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
