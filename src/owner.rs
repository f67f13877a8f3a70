//! Who holds a claim.

use std::fmt;
use std::sync::Arc;

use data_encoding::HEXLOWER;

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
