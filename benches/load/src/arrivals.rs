//! The schedule of the requests, made before the first of them is sent.

use std::time::Duration;

use fastrand::Rng;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time at which it is to be sent, counted from the start.
    pub at: Duration,
    /// The number of the order that it places.
    pub order: u32,
    /// Whether it repeats an earlier request.
    pub is_again: bool,
}

/// The latest time of a repetition, after the first request: short enough to meet the handler at work, long enough for a replay.
const LATEST: Duration = Duration::from_secs(2);

/// Returns new orders at this rate for this time, at random distances as of independent clients. Each is sent again with this chance.
pub fn schedule(seed: u64, per_second: f64, lasting: Duration, again: f64) -> Vec<Arrival> {
    let mut dice = Rng::with_seed(seed);
    let mut arrivals = Vec::new();
    let mut at = Duration::ZERO;
    for order in 0.. {
        at += Duration::from_secs_f64(-(1.0 - dice.f64()).ln() / per_second);
        if at >= lasting {
            break;
        }
        arrivals.push(Arrival {
            at,
            order,
            is_again: false,
        });
        if dice.f64() < again {
            let at = at + LATEST.mul_f64(dice.f64());
            arrivals.push(Arrival {
                at,
                order,
                is_again: true,
            });
        }
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_and_the_chance_are_those_that_were_asked_for() {
        let arrivals = schedule(7, 100.0, Duration::from_mins(10), 0.2);
        let again = arrivals.iter().filter(|arrival| arrival.is_again).count();
        let first = arrivals.len() - again;
        assert!((59_000..61_000).contains(&first), "{first}");
        assert!((11_500..12_500).contains(&again), "{again}");
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
    }

    #[test]
    fn a_repetition_comes_after_the_first() {
        let arrivals = schedule(7, 100.0, Duration::from_secs(10), 1.0);
        let of = |order, again| {
            let found = |arrival: &&Arrival| arrival.order == order && arrival.is_again == again;
            arrivals.iter().find(found).unwrap().at
        };
        for order in 0..u32::try_from(arrivals.len() / 2).unwrap() {
            let later = of(order, true).checked_sub(of(order, false)).unwrap();
            assert!(later <= LATEST);
        }
    }
}
