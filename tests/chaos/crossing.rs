//! Records that one version of a function left, and the other went on with.

use std::collections::HashSet;

use crate::support::lambda::Version;

/// The situations that a night with two versions must reach.
pub const DEMANDS: &[&str] = &[
    "claimed by the version before, taken over by this one",
    "claimed by this version, taken over by the one before",
    "released by the version before, retried by this one",
    "released by this version, retried by the one before",
    "completed by the version before, replayed by this one",
    "completed by this version, replayed by the one before",
];

/// Decisions that follow each other, in the order of the demands, which has two of each.
const PAIRS: [(&str, &str); 3] = [
    ("claimed", "taken_over"),
    ("released", "retried"),
    ("completed", "replayed"),
];

/// Of each key and version, the decisions that were told.
#[derive(Debug, Default)]
pub struct Crossings {
    told: HashSet<(Version, String, String)>,
}

impl Crossings {
    /// Takes in a decision, and returns the crossings that are known by it. Logs are read in any order.
    pub fn told(&mut self, version: Version, key: &str, decision: &str) -> Vec<&'static str> {
        self.told
            .insert((version, key.to_owned(), decision.to_owned()));
        let other = match version {
            Version::This => Version::Before,
            Version::Before => Version::This,
        };
        let by_other = |decision: &str| {
            self.told
                .contains(&(other, key.to_owned(), decision.to_owned()))
        };
        let mut found = Vec::new();
        for (demands, (earlier, later)) in DEMANDS.chunks(2).zip(PAIRS) {
            let first = if decision == earlier && by_other(later) {
                version
            } else if decision == later && by_other(earlier) {
                other
            } else {
                continue;
            };
            found.push(demands[usize::from(first == Version::This)]);
        }
        found
    }
}
