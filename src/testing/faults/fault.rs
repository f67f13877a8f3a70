//! Names the calls of a store, and the faults that they can meet.

use std::time::Duration;

use crate::protocol::record::RecordWrite;
use crate::store::StoreError;

/// A call of a [`Store`](crate::store::Store): the kind of its write, or its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`RecordWrite::Create`]
    Create,
    /// [`RecordWrite::TakeOver`]
    TakeOver,
    /// [`RecordWrite::Complete`]
    Complete,
    /// [`RecordWrite::Renew`]
    Renew,
    /// [`RecordWrite::Amend`]: a note of a step, or a key that was derived.
    Amend,
    /// [`RecordWrite::Release`]
    Release,
    /// [`RecordWrite::Intervene`]
    Intervene,
    /// `load`
    Load,
    /// `keep`
    Keep,
    /// `fetch`
    Fetch,
    /// `commit`
    Commit,
}

impl Call {
    pub(super) fn of(write: &RecordWrite) -> Self {
        match write {
            RecordWrite::Create(_) => Self::Create,
            RecordWrite::TakeOver { .. } => Self::TakeOver,
            RecordWrite::Complete(_) => Self::Complete,
            RecordWrite::Renew(_) => Self::Renew,
            RecordWrite::Amend(_) => Self::Amend,
            RecordWrite::Release(_) => Self::Release,
            RecordWrite::Intervene(_) => Self::Intervene,
        }
    }
}

/// A fault happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The call never arrives: [`StoreError::Unavailable`].
    RequestLost,
    /// The call applies, and its answer is lost: [`StoreError::Unavailable`].
    ReplyLost,
    /// The call applies, its answer is lost, and it is sent again at once, as the SDK does with
    /// record writes: the caller gets the second answer.
    Resent,
    /// The answer is lost, and the call arrives after this time: before the first call that comes
    /// then. A read, a transaction, and an outcome to be kept, never arrive.
    Late(Duration),
    /// The call arrives after this time, even if its caller is dropped meanwhile; past its deadline
    /// the answer is lost. A read, a transaction, and an outcome to be kept, never arrive without
    /// their caller.
    Delayed(Duration),
    /// The call applies at once, and its answer comes after this time; past its deadline the answer
    /// is lost.
    ReplyDelayed(Duration),
    /// The call applies and is answered, and a copy of it arrives after this time: before the first
    /// call that comes then. A read, a transaction, and an outcome to be kept, are never copied.
    Copied(Duration),
    /// [`StoreError::Throttled`]; nothing applies.
    Throttled,
    /// [`StoreError::Conflict`]; nothing applies.
    Conflict,
}

impl Fault {
    /// The fault's name, as [`FaultyStore::met`](super::FaultyStore::met) counts it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestLost => "request lost",
            Self::ReplyLost => "reply lost",
            Self::Resent => "resent",
            Self::Late(_) => "late",
            Self::Delayed(_) => "delayed",
            Self::ReplyDelayed(_) => "reply delayed",
            Self::Copied(_) => "copied",
            Self::Throttled => "throttled",
            Self::Conflict => "conflict",
        }
    }

    pub(super) fn error(self) -> StoreError {
        let injected = format!("injected: {}", self.name());
        match self {
            Self::Throttled => StoreError::Throttled(injected.into()),
            Self::Conflict => StoreError::Conflict,
            _ => StoreError::Unavailable(injected.into()),
        }
    }
}
