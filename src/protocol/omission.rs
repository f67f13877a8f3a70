//! The omission of an outcome, or of a step's result.

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
