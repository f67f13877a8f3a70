//! The outcome of a run, and the verdict on it.

use crate::engine::Replay;

/// The outcome of a run has the handler's value, and says where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The handler ran now, and its verdict was carried out.
    Executed(T),
    /// An earlier attempt's outcome; the handler didn't run.
    Replayed(T, Replay),
    /// The handler ran now and succeeded, but its outcome could not be recorded: a duplicate may
    /// run again when the lease is over.
    Unrecorded(T),
    /// The handler ran now, unprotected.
    Unprotected(T),
}

impl<T> Outcome<T> {
    /// Returns the value, wherever it came from.
    pub fn into_inner(self) -> T {
        match self {
            Self::Executed(value)
            | Self::Replayed(value, _)
            | Self::Unrecorded(value)
            | Self::Unprotected(value) => value,
        }
    }

    /// Returns the value, wherever it came from.
    pub fn get(&self) -> &T {
        match self {
            Self::Executed(value)
            | Self::Replayed(value, _)
            | Self::Unrecorded(value)
            | Self::Unprotected(value) => value,
        }
    }

    /// Changes a replayed value, such as a signed address that has expired meanwhile. The value of
    /// a handler that ran now stays as it is, and so does the record.
    ///
    /// ```
    /// use lambda_idempotency::{Idempotency, Key, store::MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("files").build()?;
    /// for expected in ["address 1", "address 1, renewed"] {
    ///     let upload = |_| async { Ok::<_, std::io::Error>("address 1".to_owned()) };
    ///     let outcome = once.run(Key::new("upload", "A-17"), None, upload).await?;
    ///     let outcome = outcome.map_replayed(|address, _| format!("{address}, renewed"));
    ///     assert_eq!(outcome.into_inner(), expected);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn map_replayed(self, change: impl FnOnce(T, &Replay) -> T) -> Self {
        match self {
            Self::Replayed(value, replay) => Self::Replayed(change(value, &replay), replay),
            other => other,
        }
    }

    /// Tells whether the handler didn't run because an earlier outcome was there.
    pub fn is_replayed(&self) -> bool {
        matches!(self, Self::Replayed(..))
    }
}

/// The verdict decides what becomes of the claim when the handler has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The result is final: it is stored, and replayed to duplicates.
    Complete,
    /// The result is not final: the lease ends, so that a retry runs at once.
    Release,
    /// The failure is one that no retry will mend: it is stored, and replayed to duplicates. On an
    /// `Ok`, the same as [`Complete`](Self::Complete).
    Fail,
}

impl Verdict {
    /// Returns the default verdict: a success is final, an error is not.
    pub fn of<T, E>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Complete,
            Err(_) => Self::Release,
        }
    }
}
