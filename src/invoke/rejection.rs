//! Names the reasons for which an event is rejected.

use std::fmt;

use crate::engine::error::{Error, Obstacle};
use crate::protocol::key::KeyError;

/// Says why an event is rejected: no retry will mend it.
///
/// Its invocation fails, or the hook [`on_rejected`](super::InvokeLayer::on_rejected) answers it,
/// where it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rejection {
    /// The event is not one of the function's source, or its payload doesn't decode.
    Undecodable,
    /// The event has no key, or one that can't be used: too long, or with control characters.
    UnusableKey,
    /// The event's key was first used with another [fingerprint](crate::Fingerprint): another
    /// payload, unless the layer has another setting.
    Mismatch,
    /// The handler failed with an error that is [permanent](super::InvokeLayer::permanent), now or
    /// in an earlier attempt.
    Failed,
}

impl Rejection {
    /// Gives the code for logs and metrics: `undecodable`, `unusable_key`, `mismatch` or `failed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Undecodable => "undecodable",
            Self::UnusableKey => "unusable_key",
            Self::Mismatch => "mismatch",
            Self::Failed => "failed",
        }
    }

    /// Judges an obstacle; `None` where a retry may mend it, or a person must look. A key that is
    /// unusable by the layer's settings is no fault of the event.
    pub(super) fn of(obstacle: &Obstacle) -> Option<Self> {
        match obstacle {
            Error::Failed(_) => Some(Self::Failed),
            Error::Mismatch => Some(Self::Mismatch),
            Error::Key(KeyError::EmptyOperation | KeyError::RawIdWithScope) => None,
            Error::Key(_) => Some(Self::UnusableKey),
            _ => None,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::record::Failure;

    #[test]
    fn what_no_retry_mends_is_rejected() {
        let of = |obstacle: Obstacle| Rejection::of(&obstacle).map(Rejection::as_str);
        assert_eq!(of(Error::Mismatch), Some("mismatch"));
        assert_eq!(of(Error::Failed(Failure::unknown())), Some("failed"));
        assert_eq!(of(KeyError::Missing.into()), Some("unusable_key"));
        assert_eq!(of(KeyError::EmptyOperation.into()), None);
        assert_eq!(of(Error::LeaseLost), None);
        assert_eq!(Rejection::Undecodable.to_string(), "undecodable");
    }
}
