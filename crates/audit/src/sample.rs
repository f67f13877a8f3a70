//! Draws a sample of a stream whose length isn't known.

use std::collections::BinaryHeap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::record::Completed;

/// A uniform sample: the records whose ids, hashed with the seed, come first. One pass suffices, and
/// the same seed draws the same records.
#[derive(Debug)]
pub struct Sample {
    size: usize,
    seed: u64,
    drawn: BinaryHeap<Drawn>,
}

#[derive(Debug)]
struct Drawn(u64, Completed);

impl Ord for Drawn {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0
            .cmp(&other.0)
            .then_with(|| self.1.id.cmp(&other.1.id))
    }
}

impl PartialOrd for Drawn {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Drawn {}

impl PartialEq for Drawn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Sample {
    /// Makes an empty sample of at most this size.
    pub fn new(size: usize, seed: u64) -> Self {
        Self {
            size,
            seed,
            drawn: BinaryHeap::new(),
        }
    }

    /// Offers a record.
    pub fn offer(&mut self, record: Completed) {
        let mut hasher = DefaultHasher::new();
        (self.seed, &record.id).hash(&mut hasher);
        self.drawn.push(Drawn(hasher.finish(), record));
        if self.drawn.len() > self.size {
            self.drawn.pop();
        }
    }

    /// Returns what was drawn.
    pub fn into_records(self) -> Vec<Completed> {
        self.drawn.into_iter().map(|drawn| drawn.1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;

    fn record(number: u32) -> Completed {
        Completed {
            id: format!("n#o#{number}"),
            completed_at: None,
            expiration: lambda_idempotency::EpochSeconds(4_000_000_000),
            outcome: None,
            may_be_refused: false,
            key_generation: 0,
            kept_steps: Vec::new(),
        }
    }

    /// Of 200 samples' intervals, each of 95 %, some 190 hold the truth; 180 at least, but once in
    /// some thousand.
    #[test]
    fn the_interval_of_a_sample_holds_the_true_rate() {
        let truth = 0.03;
        let holds = (0..200).filter(|seed| {
            let mut sample = Sample::new(500, *seed);
            (0..10_000)
                .map(record)
                .for_each(|record| sample.offer(record));
            let drawn = sample.into_records();
            assert_eq!(drawn.len(), 500);
            let number = |record: &Completed| {
                let digits = record.id.rsplit('#').next().unwrap();
                digits.parse::<u32>().unwrap()
            };
            let bad = drawn
                .iter()
                .filter(|record| number(record) % 100 < 3)
                .count();
            let rate = Rate::of(bad as u64, 500);
            rate.low <= truth && truth <= rate.high
        });
        let holds = holds.count();
        assert!((180..=200).contains(&holds), "{holds} of 200");
    }

    #[test]
    fn a_seed_draws_the_same_and_another_draws_others() {
        let draw = |seed| {
            let mut sample = Sample::new(10, seed);
            (0..1_000)
                .map(record)
                .for_each(|record| sample.offer(record));
            let mut ids: Vec<_> = sample
                .into_records()
                .into_iter()
                .map(|record| record.id)
                .collect();
            ids.sort();
            ids
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn a_stream_that_is_shorter_is_drawn_whole() {
        let mut sample = Sample::new(10, 0);
        (0..3).map(record).for_each(|record| sample.offer(record));
        assert_eq!(sample.into_records().len(), 3);
    }
}
