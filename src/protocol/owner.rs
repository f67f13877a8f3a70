//! An owner identifies the attempt that holds a claim.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use data_encoding::HEXLOWER;

use crate::protocol::lock::lock;

/// 128 bits.
const BYTES: usize = 16;

/// An owner identifies the attempt that holds a claim: 128 random bits, new for every attempt,
/// never reused.
///
/// The Lambda request id is not an owner: retries of an asynchronous invocation keep it, and a
/// handler that timed out may still be running beside its retry.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

impl Owner {
    /// Makes a fresh owner from the operating system's entropy.
    ///
    /// # Errors
    ///
    /// When the operating system has none to give.
    #[doc(hidden)]
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        fill(&mut bytes)?;
        Ok(Self::of(&bytes))
    }

    fn of(bytes: &[u8; BYTES]) -> Self {
        let mut digits = [0; 2 * BYTES];
        Self(HEXLOWER.encode_mut_str(bytes, &mut digits).into())
    }

    /// Takes an owner as it was read from a store.
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the 32 lower-case hex digits, where this crate made it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.0)
    }
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        io::Error::other(format!(
            "the operating system gave no random bytes for a claim's owner: {error}"
        ))
    })
}

/// Draws several fresh owners together: the operating system is asked once for as many claims as
/// are made side by side. They are kept for no longer than a batch, and each is given away once.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The number that is drawn together. Below two, each is drawn when it is asked for, and no
    /// caller waits for another.
    together: usize,
    drawn: Mutex<Vec<Owner>>,
}

impl Owners {
    /// Makes the owners of a batch that needs this many side by side.
    #[cfg(feature = "batch")]
    pub(crate) fn for_batch(side_by_side: usize) -> Self {
        Self {
            together: side_by_side,
            drawn: Mutex::default(),
        }
    }

    /// Creates an owner that no other claim has.
    pub(crate) fn next(&self) -> io::Result<Owner> {
        if self.together < 2 {
            return Owner::random();
        }
        let mut drawn = lock(&self.drawn);
        if let Some(owner) = drawn.pop() {
            return Ok(owner);
        }
        let mut bytes = vec![0; BYTES * self.together];
        fill(&mut bytes)?;
        drawn.extend(bytes.as_chunks().0.iter().map(Owner::of));
        drawn.pop().map_or_else(Owner::random, Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    #[cfg(feature = "batch")]
    fn the_owners_of_a_batch_are_drawn_together() {
        for (side_by_side, left) in [(0, 0), (1, 0), (2, 1), (25, 24)] {
            let owners = Owners::for_batch(side_by_side);
            owners.next().unwrap();
            assert_eq!(owners.drawn.lock().unwrap().len(), left, "{side_by_side}");
        }
    }

    #[test]
    fn no_owner_is_given_away_twice() {
        for together in [0, 1, 2, 25] {
            let owners = Owners {
                together,
                ..Owners::default()
            };
            let given: HashSet<_> = (0..60).map(|_| owners.next().unwrap()).collect();
            assert_eq!(given.len(), 60, "{together} together");
            assert!(given.iter().all(|owner| owner.as_str().len() == 32));
            let left = owners.drawn.lock().unwrap();
            assert!(left.iter().all(|owner| !given.contains(owner)));
        }
    }
}
