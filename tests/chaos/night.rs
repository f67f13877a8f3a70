//! One night: when it is over, and whose dice are whose.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use tokio::time::{Instant, sleep};

use crate::report::Report;
use crate::support::lambda::Version;

pub const FIRST: &str = "delivery: first of its key";
pub const DUPLICATE: &str = "delivery: duplicate";
pub const AGAIN: &str = "delivery: again, unanswered";

/// The state that all who take part in a night share.
pub struct Night {
    seed: u64,
    /// The versions of the functions that are deployed at once.
    pub versions: &'static [Version],
    pub report: Report,
    wanted: u64,
    demands: Vec<&'static str>,
    pub patience: Duration,
    /// The time at which the trouble ended.
    calm_since: OnceLock<SystemTime>,
}

impl Night {
    /// Its trouble ends when so many deliveries were made and every demand was met, or when patience does; so does its calm, when
    /// everything came to an end.
    pub fn begin(
        seed: u64,
        versions: &'static [Version],
        wanted: u64,
        demands: Vec<&'static str>,
        patience: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            seed,
            versions,
            report: Report::default(),
            wanted,
            demands,
            patience,
            calm_since: OnceLock::new(),
        })
    }

    /// Ends the trouble when it is time.
    pub async fn watch(&self) {
        // The functions may have to be built first.
        while self.deliveries() == 0 {
            sleep(Duration::from_millis(100)).await;
        }
        let began = Instant::now();
        let is_enough = || self.deliveries() >= self.wanted && self.never_reached().is_empty();
        while began.elapsed() < self.patience && !is_enough() {
            sleep(Duration::from_millis(100)).await;
        }
        let seconds = usize::try_from(began.elapsed().as_secs()).expect("a night");
        self.report.count_all("seconds of trouble", seconds);
        self.calm_since.get_or_init(SystemTime::now);
    }

    /// Returns whether new requests come, and trouble is made.
    pub fn is_troubled(&self) -> bool {
        self.calm_since.get().is_none()
    }

    /// Returns the time at which the trouble ended; it must have.
    pub fn calm_since(&self) -> SystemTime {
        *self.calm_since.get().expect("a night that is over")
    }

    /// The dice of one who takes part.
    pub fn dice(&self, whose: &str) -> Rng {
        let mut hasher = DefaultHasher::new();
        (self.seed, whose).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }

    pub fn never_reached(&self) -> Vec<&'static str> {
        let demands = self.demands.iter().copied();
        demands.filter(|what| self.report.of(what) == 0).collect()
    }

    fn deliveries(&self) -> u64 {
        let kinds = [FIRST, DUPLICATE, AGAIN];
        kinds.iter().map(|kind| self.report.of(kind)).sum()
    }

    /// Of all deliveries, those of a key that had been delivered before, on purpose: not because it was unanswered.
    #[expect(clippy::cast_precision_loss, reason = "a share, for an operator")]
    pub fn share_of_duplicates(&self) -> f64 {
        let duplicates = self.report.of(DUPLICATE) as f64;
        duplicates / (duplicates + self.report.of(FIRST) as f64)
    }
}

/// Between two durations.
pub fn between(dice: &mut Rng, least: u64, most: u64) -> Duration {
    Duration::from_millis(dice.u64(least..=most))
}
