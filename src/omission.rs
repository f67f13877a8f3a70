//! Why something that was produced can't be given back.

/// Why an outcome, or a step's result, can't be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Omission {
    /// Larger than the store takes, or than the inline limit where nobody reads it.
    #[error("it was too large")]
    TooLarge,
    /// It has no JSON form.
    #[error("it could not be serialised as JSON")]
    NotSerializable,
    /// The store didn't take it in time, beside the record.
    #[error("it was large, and the store did not take it in time")]
    NotKept,
    /// It was kept beside the record, and is no longer there.
    #[error("it was kept beside its record, and is gone")]
    Lost,
    /// What was kept is not what was stored: its hash is another.
    #[error("what was kept is damaged")]
    Damaged,
}

impl Omission {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotSerializable => "not_serializable",
            Self::NotKept => "not_kept",
            Self::Lost => "lost",
            Self::Damaged => "damaged",
        }
    }

    /// From its stored form; `None` for a word that this crate doesn't know.
    pub fn parse(text: &str) -> Option<Self> {
        // The others are found out by a replay.
        [Self::TooLarge, Self::NotSerializable, Self::NotKept]
            .into_iter()
            .find(|omission| omission.as_str() == text)
    }
}
