//! Draws a sample of a stream whose length isn't known.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::record::Completed;

/// A uniform sample: the records whose ids, hashed with the seed, come first. One pass suffices, and
/// the same seed draws the same records.
#[derive(Debug)]
pub struct Sample {
    size: usize,
    seed: u64,
    /// By the hash, and the id.
    drawn: BTreeMap<(u64, String), Completed>,
}

impl Sample {
    /// Makes an empty sample of at most this size.
    pub fn new(size: usize, seed: u64) -> Self {
        Self {
            size,
            seed,
            drawn: BTreeMap::new(),
        }
    }

    /// Offers a record.
    pub fn offer(&mut self, record: Completed) {
        let mut hasher = DefaultHasher::new();
        (self.seed, &record.id).hash(&mut hasher);
        let place = (hasher.finish(), record.id.clone());
        self.drawn.insert(place, record);
        if self.drawn.len() > self.size {
            self.drawn.pop_last();
        }
    }

    /// Returns what was drawn.
    pub fn into_records(self) -> Vec<Completed> {
        self.drawn.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;

    fn draw(size: usize, seed: u64, of: u32) -> Vec<Completed> {
        let mut sample = Sample::new(size, seed);
        let record = |number| Completed::example(format!("n#o#{number}"));
        (0..of).for_each(|number| sample.offer(record(number)));
        sample.into_records()
    }

    /// Of 200 samples' intervals, each of 95 %, some 190 hold the truth; 180 at least, but once in
    /// some thousand.
    #[test]
    fn the_interval_of_a_sample_holds_the_true_rate() {
        let truth = 0.03;
        let holds = (0..200).filter(|seed| {
            let drawn = draw(500, *seed, 10_000);
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
        assert_eq!(draw(10, 1, 1_000), draw(10, 1, 1_000));
        assert_ne!(draw(10, 1, 1_000), draw(10, 2, 1_000));
    }

    #[test]
    fn a_stream_that_is_shorter_is_drawn_whole() {
        assert_eq!(draw(10, 0, 3).len(), 3);
    }
}
