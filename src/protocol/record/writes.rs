//! The conditional writes are data: a store carries them out, and the engine, the model and the
//! simulation send them.

use super::{LAYOUT, Owner, Record, Status, StoredOutcome, Version};
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::{Journal, StepEntry};
use crate::protocol::key::RecordId;

/// A conditional write on one record. [`transition`](crate::protocol::transition) says what each
/// makes of the record that it meets, and when it is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordWrite {
    /// Writes a claim, if no record exists.
    Create(NewClaim),
    /// Writes a claim over a record, if that is still exactly `seen`.
    TakeOver {
        /// The version that was observed.
        seen: Version,
        /// The mode, which says what is kept of the record.
        mode: Takeover,
        /// The claim.
        claim: NewClaim,
    },
    /// Lengthens the lease, if the record is in progress, held by the owner, and its lease is
    /// shorter.
    Renew {
        /// The id of the record.
        id: RecordId,
        /// The owner that claims to hold it.
        owner: Owner,
        /// The new lease; includes the skew margin.
        lease: EpochMillis,
        /// The time from which TTL may delete the record; never before the lease.
        expiration: EpochSeconds,
    },
    /// Writes a step's entry, if the record is in progress and held by the owner, and the entry is
    /// newer than the step's own.
    Amend {
        /// The id of the record.
        id: RecordId,
        /// The owner that claims to hold it.
        owner: Owner,
        /// The name of the step.
        step: String,
        /// The entry.
        entry: StepEntry,
    },
    /// Makes the record final, if it is in progress and held by the owner.
    Complete(Completion),
    /// Ends the lease and puts a tombstone in the owner's place, if the record is in progress and
    /// held by the owner.
    Release(Release),
    /// Ends a record in an operator's name, if it is still exactly `seen` and each step's entry is
    /// newer than the step's own.
    Intervene(Intervention),
}

impl RecordWrite {
    /// Creates a record for a claim, or takes over the one of this version.
    pub(crate) fn claim(claim: NewClaim, over: Option<(Version, Takeover)>) -> Self {
        match over {
            None => Self::Create(claim),
            Some((seen, mode)) => Self::TakeOver { seen, mode, claim },
        }
    }

    /// Returns the id of the record that it changes.
    pub fn id(&self) -> &RecordId {
        match self {
            Self::Create(claim) | Self::TakeOver { claim, .. } => &claim.id,
            Self::Renew { id, .. } | Self::Amend { id, .. } => id,
            Self::Complete(completion) => &completion.id,
            Self::Release(release) => &release.id,
            Self::Intervene(intervention) => &intervention.id,
        }
    }

    /// Returns the owner that sends it.
    pub fn owner(&self) -> &Owner {
        match self {
            Self::Create(claim) | Self::TakeOver { claim, .. } => &claim.owner,
            Self::Renew { owner, .. } | Self::Amend { owner, .. } => owner,
            Self::Complete(completion) => &completion.owner,
            Self::Release(release) => &release.owner,
            Self::Intervene(intervention) => &intervention.owner,
        }
    }
}

macro_rules! write_from {
    ($($variant:ident: $write:ty),* $(,)?) => {$(
        impl From<$write> for RecordWrite {
            fn from(write: $write) -> Self {
                Self::$variant(write)
            }
        }
    )*};
}

write_from! {
    Create: NewClaim,
    Complete: Completion,
    Release: Release,
    Intervene: Intervention,
}

/// A claim to be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NewClaim {
    /// The id of the record.
    pub id: RecordId,
    /// The owner of the claim.
    pub owner: Owner,
    /// The payload's fingerprint; `None` where the caller opted out.
    pub fingerprint: Option<Fingerprint>,
    /// The number of the attempt: 1 on a fresh key, else one more than the last.
    pub attempt: u32,
    /// The time when the claim ends; it includes the skew margin.
    pub lease: EpochMillis,
    /// The time from which TTL may delete the record; never before the lease.
    pub expiration: EpochSeconds,
    /// The time of the claim.
    pub started_at: EpochMillis,
}

impl NewClaim {
    /// Makes the claim of a first attempt, without a fingerprint.
    #[doc(hidden)]
    pub fn new(
        id: RecordId,
        owner: Owner,
        started_at: EpochMillis,
        lease: EpochMillis,
        expiration: EpochSeconds,
    ) -> Self {
        Self {
            id,
            owner,
            fingerprint: None,
            attempt: 1,
            lease,
            expiration,
            started_at,
        }
    }
}

/// The mode of a takeover says what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Takeover {
    /// The record had expired: nothing is kept.
    Fresh,
    /// A released or crashed attempt: the journal and the last error stay.
    Resume,
    /// An attempt that was released before its work began: the journal stays. The last error, which
    /// marks that attempt, goes, so that it can't mark this one.
    Unstarted,
}

/// A final result to be written under the fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Completion {
    /// The id of the record.
    pub id: RecordId,
    /// The owner that claims to hold it.
    pub owner: Owner,
    /// [`Status::Completed`] or [`Status::Failed`].
    pub status: Status,
    /// The outcome that is replayed.
    pub outcome: StoredOutcome,
    /// The time of the completion, fixed before the first send, so that a repeated send writes the
    /// same.
    pub completed_at: EpochMillis,
    /// The time from which TTL may delete the record.
    pub expiration: EpochSeconds,
}

impl Completion {
    /// Makes a completion whose status is [`Status::Completed`].
    #[doc(hidden)]
    pub fn new(
        id: RecordId,
        owner: Owner,
        outcome: StoredOutcome,
        completed_at: EpochMillis,
        expiration: EpochSeconds,
    ) -> Self {
        Self {
            id,
            owner,
            status: Status::Completed,
            outcome,
            completed_at,
            expiration,
        }
    }
}

/// The end of a lease, to be written under the fence. Nothing is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// The id of the record.
    pub id: RecordId,
    /// The owner that claims to hold it.
    pub owner: Owner,
    /// A fresh owner that no attempt has, so that no late write of the old one matches.
    pub tombstone: Owner,
    /// The kind of the error that ended the attempt.
    pub last_error: Option<String>,
    /// Tells whether another payload may use the key from now on.
    pub forget_fingerprint: bool,
}

/// An operator's changes to a record, of any status, in one write. The rest of the record stays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Intervention {
    /// The id of the record.
    pub id: RecordId,
    /// The version that the operator has seen.
    pub seen: Version,
    /// A fresh owner that no attempt has: no late write of an attempt matches, and a repeated send
    /// knows what it has written.
    pub owner: Owner,
    /// The time from which TTL may delete the record.
    pub expiration: EpochSeconds,
    /// Entries of the journal, each of a newer revision than the same step's in the record that was seen. A
    /// store compares them where the record is held: its steps change then under the same version.
    pub steps: Journal,
    /// The end of the record.
    pub end: Ended,
}

/// The end that an [`Intervention`] gives a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// In progress, and released: the next delivery runs. Any outcome goes.
    Released {
        /// The kind of error to keep; `None` keeps that of the record.
        last_error: Option<String>,
    },
    /// Final: duplicates get this outcome.
    Final {
        /// [`Status::Completed`] or [`Status::Failed`].
        status: Status,
        /// The outcome that is replayed.
        outcome: StoredOutcome,
        /// The time of the completion.
        completed_at: EpochMillis,
    },
}

/// A record that becomes final together with business writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Final {
    /// The completion.
    pub completion: Completion,
    /// The [`Create`](RecordWrite::Create) or [`TakeOver`](RecordWrite::TakeOver) that is written
    /// with it, where no claim came before: the record is as that would have made it, then completed.
    /// `None` where the owner's claim is in progress: the fence.
    pub claim: Option<RecordWrite>,
}

impl Record {
    /// Returns the record that a claim on a fresh key writes.
    #[doc(hidden)]
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

    /// Applies a completion.
    pub(crate) fn complete(&mut self, completion: &Completion) {
        self.status = completion.status;
        self.outcome = Some(completion.outcome.clone());
        self.completed_at = Some(completion.completed_at);
        self.expiration = completion.expiration;
        self.lease = None;
    }
}
