//! The reasons for which a message or an event is rejected.

use std::fmt;

use crate::engine::error::{ErrorKind, Obstacle};

/// The reason why a message or an event is rejected: no retry will fix it.
///
/// A message of a batch is reported, so that its source moves it aside by its own policy; the
/// invocation of an event fails. Or the layer's hook `on_rejected` takes it, where it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rejection {
    /// The message has no body, or one that is not in the declared envelope or doesn't decode; or the
    /// event is not one of the function's source.
    Undecodable,
    /// It has no key.
    KeyMissing,
    /// It has a key that can't be used: too long, with control characters, or of a blank tenant.
    UnusableKey,
    /// Its key was first used with another [fingerprint](crate::Fingerprint): another body, unless the
    /// layer has another setting.
    Mismatch,
    /// The handler failed with an error that the layer's `permanent` calls so, now or in an earlier
    /// attempt.
    Failed,
}

impl Rejection {
    /// Returns the code for logs and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Undecodable => "undecodable",
            Self::KeyMissing => "key_missing",
            Self::UnusableKey => "unusable_key",
            Self::Mismatch => "mismatch",
            Self::Failed => "failed",
        }
    }

    /// Judges an obstacle; `None` where a retry may fix it, or an operator must look.
    pub(crate) fn of(obstacle: &Obstacle) -> Option<Self> {
        match obstacle.kind() {
            ErrorKind::Failed => Some(Self::Failed),
            ErrorKind::Mismatch => Some(Self::Mismatch),
            ErrorKind::KeyMissing => Some(Self::KeyMissing),
            ErrorKind::UnusableKey => Some(Self::UnusableKey),
            _ => None,
        }
    }
}

/// Writes the code for logs and metrics: `undecodable`, `key_missing`, `unusable_key`, `mismatch` or
/// `failed`.
impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::error::Error;
    use crate::protocol::key::KeyError;
    use crate::protocol::record::Failure;

    #[test]
    fn what_no_retry_will_mend_is_rejected_by_its_kind() {
        let of = |obstacle: Obstacle| Rejection::of(&obstacle).map(Rejection::as_str);
        assert_eq!(of(Error::Failed(Failure::unknown())), Some("failed"));
        assert_eq!(of(Error::Mismatch), Some("mismatch"));
        let place = "/order/id".to_owned();
        for missing in [KeyError::Missing, KeyError::MissingAt { place }] {
            assert_eq!(of(missing.into()), Some("key_missing"));
        }
        assert_eq!(of(KeyError::EmptyToken.into()), Some("unusable_key"));
        assert_eq!(of(KeyError::EmptyOperation.into()), None);
        assert_eq!(of(KeyError::OperationControlCharacter.into()), None);
        assert_eq!(of(KeyError::RawIdWithScope.into()), None);
        assert_eq!(of(Error::TooLate), None);
    }
}
