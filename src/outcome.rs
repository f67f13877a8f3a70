//! What a run gives.

use std::time::SystemTime;

/// What a run gives: the handler's value, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The handler ran now, and its verdict was carried out.
    Executed(T),
    /// An earlier attempt's outcome; the handler didn't run.
    Replayed(T, Replay),
    /// The handler ran now and succeeded, but its outcome could not be recorded: a duplicate may run again when the lease is
    /// over.
    Unrecorded(T),
    /// The handler ran now, unprotected.
    Unprotected(T),
}

/// Where a replayed outcome comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// When the request was first processed; `None` where the record doesn't tell (another library wrote it).
    pub processed_at: Option<SystemTime>,
    /// Which attempt processed it.
    pub attempt: u32,
}

impl<T> Outcome<T> {
    /// The value, wherever it came from.
    pub fn into_inner(self) -> T {
        match self {
            Self::Executed(value)
            | Self::Replayed(value, _)
            | Self::Unrecorded(value)
            | Self::Unprotected(value) => value,
        }
    }

    /// The value, wherever it came from.
    pub fn get(&self) -> &T {
        match self {
            Self::Executed(value)
            | Self::Replayed(value, _)
            | Self::Unrecorded(value)
            | Self::Unprotected(value) => value,
        }
    }

    /// Whether the handler didn't run because an earlier outcome was there.
    pub fn is_replayed(&self) -> bool {
        matches!(self, Self::Replayed(..))
    }
}

/// What becomes of the claim when the handler has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Final: store it, and replay it to duplicates.
    Complete,
    /// Not final: end the lease, so that a retry runs at once.
    Release,
    /// A failure that no retry will mend: store it, and replay it to duplicates. On an `Ok`, the same as
    /// [`Complete`](Self::Complete).
    Fail,
}

impl Verdict {
    /// The default: a success is final, an error is not.
    pub fn of<T, E>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Complete,
            Err(_) => Self::Release,
        }
    }
}
