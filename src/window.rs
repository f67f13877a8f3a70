//! A bounded memory of the keys that this process has met lately.
//!
//! A [`Window`] tells whether a key was met before, and may be wrong in one direction: of the keys that
//! it has never met, it takes a known share for met. So it has two uses, and each is named by what it
//! risks:
//!
//! - **A hint.** In front of a durable store it decides only what is asked first. Batches of sources
//!   that don't count deliveries (streams, Kafka) have one: a message that was probably met is read
//!   first, which is one request, instead of a claim that is refused, which is two. A wrong hint costs
//!   one read. `batch::Settings::window` gives several layers one window, or a larger one.
//! - **Alone.** [`Window::lossy`] is a whole store, for work whose loss is harmless: metrics, log lines,
//!   caches. It asks nobody, knows nothing of other processes, and **loses** the share of new messages
//!   that it takes for met. Never for money.
//!
//! A key takes about 32 bits, and a look less than a microsecond. A million keys at one in a
//! thousand take less than 4 MiB.
//!
//! ```
//! use lambda_idempotency::{batch::Settings, window::Window};
//!
//! fn larger(settings: &mut Settings) {
//!     settings.window = Window::new(1_000_000);
//! }
//! ```

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex};

use fastbloom::BloomFilter;
use lru::LruCache;
use metrics::Unit;
use tokio::time::Instant;

use crate::protocol::clock::EpochSeconds;
use crate::protocol::key::RecordId;
use crate::protocol::lock::lock;
use crate::protocol::record::{
    Found, LAYOUT, Omission, Record, RecordWrite, Status, StoredOutcome,
};
use crate::protocol::transition;
use crate::setup::BuildError;
use crate::store::{Answer, Store, StoreError};

#[cfg(test)]
mod tests;

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
    /// The share of new keys that it takes for met, when both of its filters are full.
    rate: f64,
    memory: Arc<Mutex<Memory>>,
}

/// Whether a key was met before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Seen {
    /// It was not, or long ago.
    No,
    /// It probably was: by chance, a new key looks so, too.
    Probably,
    /// It was.
    Yes,
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
    fn with_rate(keys: usize, rate: f64) -> Result<Self, BuildError> {
        if !(1..=MOST_KEYS).contains(&keys) {
            return Err(BuildError::WindowKeys(keys));
        }
        if !(rate > 0.0 && rate <= LARGEST_RATE) {
            return Err(BuildError::WindowRate(rate.to_string()));
        }
        Ok(Self::of(keys, rate))
    }

    /// Creates a store that has nothing but a window, and **loses** this share of new messages: for work
    /// whose loss is harmless.
    ///
    /// - A new message whose key the window takes for met is **lost**: its handler never runs. The share of
    ///   them is at most the one that the store was made with.
    /// - A duplicate that comes after `keys` others, that reaches another process, or that comes after a
    ///   restart, runs again.
    /// - A duplicate gets no outcome: `run` returns [`Error::OutcomeOmitted`](crate::Error::OutcomeOmitted),
    ///   a batch takes the message for done. Another payload under the same key is a duplicate, too.
    /// - A message that failed runs again, even where the failure is permanent.
    ///
    /// It counts in `idempotency_lossy_drops` the messages that it took for met without being certain, and has
    /// the rate that it was made with, in percent, in the gauge `idempotency_lossy_rate`. So the messages that were lost are
    /// about `rate × idempotency_executions`; where drops are many more than that, they were duplicates.
    ///
    /// ```
    /// use lambda_idempotency::window::Window;
    /// use lambda_idempotency::{Error, Idempotency, Key, Outcome};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // One of 10,000 new log lines is lost.
    /// let store = Window::lossy(100_000, 0.000_1)?;
    /// let once = Idempotency::builder(store).namespace("access-log").build()?;
    /// let count = || once.run(Key::new("line", "17"), None, async |_| Ok::<_, std::io::Error>(()));
    /// assert!(matches!(count().await, Ok(Outcome::Executed(()))));
    /// assert!(matches!(count().await, Err(Error::OutcomeOmitted { .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// Clones share the window.
    ///
    /// # Errors
    ///
    /// [`BuildError::WindowKeys`] where `keys` is not in 1 to 134,217,728, [`BuildError::WindowRate`]
    /// where the rate is not above 0 and up to 0.1.
    pub fn lossy(keys: usize, rate: f64) -> Result<impl Store + Clone + fmt::Debug, BuildError> {
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

    /// Tells whether a key was met before.
    fn look(&self, key: &(impl Hash + ?Sized)) -> Seen {
        lock(&self.memory).look(self.hasher.hash_one(key))
    }

    /// Tells whether a key was met before, and remembers it.
    pub(crate) fn insert(&self, key: &(impl Hash + ?Sized)) -> Seen {
        let hash = self.hasher.hash_one(key);
        let mut memory = lock(&self.memory);
        let seen = memory.look(hash);
        if seen != Seen::Yes {
            memory.insert(hash, self.rate);
        }
        seen
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
        // A key that comes again fills nothing.
        self.filled += usize::from(!new.insert_hash(left));
    }
}

/// Shows the sizes and no key.
impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("keys", &lock(&self.memory).keys)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

const LOSSY_DROPS: &str = "idempotency_lossy_drops";
const LOSSY_RATE: &str = "idempotency_lossy_rate";

/// The end of the year 9999: a record of a window never expires, it is forgotten.
const NEVER: EpochSeconds = EpochSeconds(253_402_300_799);

/// A store of nothing but a window. [`Window::lossy`] says what it does.
#[derive(Clone)]
struct LossyStore {
    window: Window,
    /// The records of runs under way.
    claims: Arc<Mutex<HashMap<RecordId, Record>>>,
}

/// Shows the number of claims and no key.
impl fmt::Debug for LossyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossyStore")
            .field("window", &self.window)
            .field("claims", &lock(&self.claims).len())
            .finish()
    }
}

impl LossyStore {
    fn new(window: Window) -> Self {
        metrics::describe_counter!(
            LOSSY_DROPS,
            Unit::Count,
            "messages that were probably duplicates, and may have been new"
        );
        metrics::describe_gauge!(LOSSY_RATE, Unit::Percent, "of new messages that are lost");
        metrics::gauge!(LOSSY_RATE).set(100.0 * window.rate);
        Self {
            window,
            claims: Arc::default(),
        }
    }

    /// Returns what is known of a record: its claim, or that it was completed.
    fn met(&self, claims: &HashMap<RecordId, Record>, id: &RecordId) -> Option<Record> {
        if let Some(claim) = claims.get(id) {
            return Some(claim.clone());
        }
        match self.window.look(id) {
            Seen::No => return None,
            Seen::Probably => metrics::counter!(LOSSY_DROPS).increment(1),
            Seen::Yes => {}
        }
        let mut record = Record::new(Status::Completed, NEVER);
        record.outcome = Some(StoredOutcome::Omitted(Omission::Forgotten));
        record.layout = Some(LAYOUT);
        Some(record)
    }
}

impl Store for LossyStore {
    async fn write(&self, write: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        let mut claims = lock(&self.claims);
        let met = self.met(&claims, write.id());
        let Some(record) = transition(met.as_ref(), write) else {
            return Ok(Answer::Refused(met.map(Found::readable)));
        };
        if record.status == Status::InProgress && !record.is_released() {
            if claims.len() == claims.capacity() {
                // Before it grows: a run that was cut off leaves its claim.
                let now = record.started_at;
                claims.retain(|_, claim| Some(claim.expiration.to_millis()) > now);
            }
            claims.insert(write.id().clone(), record.clone());
        } else {
            claims.remove(write.id());
        }
        // A window can't keep a failure, and must not pass it for something done.
        if record.status == Status::Completed {
            self.window.insert(write.id());
        }
        Ok(Answer::Applied(Some(Found::readable(record))))
    }

    async fn load(&self, id: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        Ok(self.met(&lock(&self.claims), id).map(Found::readable))
    }
}
