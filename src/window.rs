//! A bounded memory of the keys that this process has met lately.
//!
//! A [`Window`] tells whether a key was met before, and may be wrong in one direction: of the keys that
//! it has never met, it takes a known share for met. So it has two uses, and each is named by what it
//! risks:
//!
//! - **A hint.** In front of a durable store it decides only what is asked first. Batches of sources
//!   that don't count deliveries (streams, Kafka) have one: a message that was probably met is read
//!   first, which is one request, instead of a claim that is refused, which is two. A wrong hint costs
//!   one read. `BatchLayer::window` gives several layers one window, or a larger one.
//! - **Alone.** [`Window::lossy`] is a whole store, for work whose loss is harmless: metrics, log lines,
//!   caches. It asks nobody, knows nothing of other processes, and **loses** the share of new messages
//!   that it takes for met. Never for money.
//!
//! What it costs: a key takes about 32 bits. A million of keys at one in a thousand is less than 4 MiB, and
//! a look takes less than a microsecond.
//!
//! ```
//! use lambda_idempotency::window::{Seen, Window};
//!
//! let window = Window::new(10_000);
//! assert_eq!(window.insert("order-17"), Seen::No);
//! assert_eq!(window.insert("order-17"), Seen::Yes);
//! ```

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastbloom::BloomFilter;
use lru::LruCache;

mod lossy;

pub use lossy::LossyStore;

/// The number of keys that are known exactly.
const EXACT: usize = 1_024;

/// The share of keys that are wrongly taken for met, unless another is chosen.
const RATE: f64 = 0.001;

/// The largest share that can be chosen. A window that is wrong more often saves nothing.
const LARGEST_RATE: f64 = 0.1;

/// The most keys of a window: its filters take 512 MB then, at the usual rate.
const MOST_KEYS: usize = 1 << 27;

/// A bounded memory of the keys that were met lately. Clones share it.
///
/// The last 1,024 keys are known exactly, up to hashes of 64 bits; the keys before them by two Bloom
/// filters, of which the older is emptied when the newer is full. So at least the last `keys` different
/// keys are known, at most twice as many. Nothing is allocated before the first key comes.
#[derive(Clone)]
pub struct Window {
    hasher: RandomState,
    rate: f64,
    memory: Arc<Mutex<Memory>>,
}

/// Whether a key was met before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// It was not, or long ago.
    No,
    /// It probably was: by chance, a new key looks so, too.
    Probably,
    /// It was.
    Yes,
}

/// A window can't be made as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The number of keys is zero, or too large.
    #[error("a window of {keys} keys can't be made: choose 1 to {MOST_KEYS}{see}", keys = .0, see = see!("window"))]
    Keys(usize),
    /// The rate is none.
    #[error(
        "{rate} is no share of keys to be wrong about: choose more than 0, and at most {LARGEST_RATE}{see}", rate = .0, see = see!("window")
    )]
    Rate(f64),
}

struct Memory {
    keys: usize,
    exact: LruCache<u64, ()>,
    /// The filter that is being filled, and the one before it; none before a key has left `exact`.
    filters: Option<(BloomFilter, BloomFilter)>,
    filled: usize,
}

impl Window {
    /// Creates a window that knows at least the last `keys` keys, up to 134 million, and takes one of a
    /// thousand new ones for met.
    pub fn new(keys: usize) -> Self {
        Self::of(keys.clamp(1, MOST_KEYS), RATE)
    }

    /// Creates a window that takes this share of new keys for met.
    ///
    /// # Errors
    ///
    /// [`WindowError::Keys`] where `keys` is not in 1 to 134,217,728, [`WindowError::Rate`] where the rate
    /// is not above 0 and up to 0.1.
    pub fn with_rate(keys: usize, rate: f64) -> Result<Self, WindowError> {
        if !(1..=MOST_KEYS).contains(&keys) {
            return Err(WindowError::Keys(keys));
        }
        if !(rate > 0.0 && rate <= LARGEST_RATE) {
            return Err(WindowError::Rate(rate));
        }
        Ok(Self::of(keys, rate))
    }

    /// Creates a store that has nothing but a window, and **loses** this share of new messages.
    ///
    /// # Errors
    ///
    /// As [`with_rate`](Self::with_rate).
    pub fn lossy(keys: usize, rate: f64) -> Result<LossyStore, WindowError> {
        Self::with_rate(keys, rate).map(LossyStore::new)
    }

    fn of(keys: usize, rate: f64) -> Self {
        Self {
            hasher: RandomState::new(),
            rate,
            memory: Arc::new(Mutex::new(Memory {
                keys,
                exact: LruCache::unbounded(),
                filters: None,
                filled: 0,
            })),
        }
    }

    /// Returns the share of new keys that it takes for met, when both of its filters are full.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Tells whether a key was met before.
    pub fn look(&self, key: &(impl Hash + ?Sized)) -> Seen {
        self.memory().look(self.hasher.hash_one(key))
    }

    /// Tells whether a key was met before, and remembers it.
    pub fn insert(&self, key: &(impl Hash + ?Sized)) -> Seen {
        let hash = self.hasher.hash_one(key);
        let mut memory = self.memory();
        let seen = memory.look(hash);
        if seen != Seen::Yes {
            memory.insert(hash, self.rate);
        }
        seen
    }

    /// Locks the memory. A panic elsewhere can't leave it in disorder that harms: it is a hint.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Looks for a hash, which counts as used then.
    fn look(&mut self, hash: u64) -> Seen {
        if self.exact.get(&hash).is_some() {
            return Seen::Yes;
        }
        let is_in = |(new, old): &(BloomFilter, BloomFilter)| {
            new.contains_hash(hash) || old.contains_hash(hash)
        };
        if self.filters.as_ref().is_some_and(is_in) {
            Seen::Probably
        } else {
            Seen::No
        }
    }

    fn insert(&mut self, hash: u64, rate: f64) {
        self.exact.put(hash, ());
        if self.exact.len() <= EXACT.min(self.keys) {
            return;
        }
        let Some((left, ())) = self.exact.pop_lru() else {
            return;
        };
        // A key is looked for in both.
        let empty = || {
            BloomFilter::with_false_pos(rate / 2.0)
                .seed(&0)
                .expected_items(self.keys)
        };
        let (new, old) = self.filters.get_or_insert_with(|| (empty(), empty()));
        if self.filled >= self.keys {
            std::mem::swap(new, old);
            new.clear();
            self.filled = 0;
        }
        new.insert_hash(left);
        self.filled += 1;
    }
}

/// Shows the sizes and no key.
impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("keys", &self.memory().keys)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
