//! The outcome of a handler, as a record keeps it. It does no I/O.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::protocol::causes::{cut, text_of};
use crate::protocol::packed::PackedOutcome;

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
    /// Creates the failure from an error. The message has the causes of a boxed or `anyhow` error, and
    /// is cut at 1,000 characters. If the error's `Display` panics, the message is the name of the
    /// error's type: the failure is still permanent.
    pub fn of<E: fmt::Display + 'static>(error: &E) -> Self {
        Self {
            kind: error_kind::<E>().to_owned(),
            message: error_text(error),
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

// Shows the kind alone: the message may quote a payload.
debug_fields!([] Failure { kind });

/// Returns the name under which an error of this type is remembered and logged: its type's, never
/// its message.
pub(crate) fn error_kind<E>() -> &'static str {
    std::any::type_name::<E>()
}

/// Returns the text of an error, [`cut`], with its causes where they are known; the name of its type
/// where its `Display` panics.
pub(crate) fn error_text<E: fmt::Display + 'static>(error: &E) -> String {
    catch_unwind(AssertUnwindSafe(|| cut(&text_of(error))))
        .unwrap_or_else(|_| error_kind::<E>().to_owned())
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
    /// The store remembers keys, and no outcomes: a lossy window, which may take a new key for one that is done.
    #[error("its store keeps no outcomes, and may have taken a new key for one that is done")]
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
