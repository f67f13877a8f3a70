//! Counts what was found.

use crate::rate::Rate;
use crate::record::Completed;

/// The findings of an audit so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    shown: usize,
    checked: u64,
    missing: (u64, Vec<String>),
    double: (u64, Vec<String>),
    not_judged: u64,
}

impl Tally {
    /// Begins one that keeps the first ids of each kind, at most so many.
    pub fn showing(shown: usize) -> Self {
        Self {
            shown,
            checked: 0,
            missing: (0, Vec::new()),
            double: (0, Vec::new()),
            not_judged: 0,
        }
    }

    /// Adds a record and the number of its effects.
    pub fn add(&mut self, record: &Completed, effects: u64) {
        self.checked += 1;
        let (count, ids) = match effects {
            0 => &mut self.missing,
            1 => return,
            _ => &mut self.double,
        };
        *count += 1;
        if ids.len() < self.shown {
            ids.push(record.id.clone());
        }
    }

    /// Adds a record that doesn't tell which effect is its own, when it completed, or whether it should have one.
    pub fn add_not_judged(&mut self) {
        self.not_judged += 1;
    }

    /// Returns the number of records that were compared with their effects.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// The first ids of the records without an effect.
    pub fn missing(&self) -> &[String] {
        &self.missing.1
    }

    /// The first ids of the records with more than one.
    pub fn double(&self) -> &[String] {
        &self.double.1
    }

    /// Returns the number of records that could not be judged.
    pub fn not_judged(&self) -> u64 {
        self.not_judged
    }

    /// Returns whether too little was compared to know that all is well: nothing, or less than nine
    /// records of ten.
    pub fn is_blind(&self) -> bool {
        self.checked == 0 || self.not_judged > self.checked / 9
    }

    /// The rate of missing effects.
    pub fn missing_rate(&self) -> Rate {
        Rate::of(self.missing.0, self.checked)
    }

    /// The rate of double effects.
    pub fn double_rate(&self) -> Rate {
        Rate::of(self.double.0, self.checked)
    }

    /// Returns whether an effect is missing or double.
    pub fn found_any(&self) -> bool {
        self.missing.0 > 0 || self.double.0 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_that_compares_less_than_nine_records_of_ten_is_blind() {
        for (checked, not_judged, expected) in [
            (0, 0, true),
            (0, 5, true),
            (8, 0, false),
            (8, 1, true),
            (9, 1, false),
            (89, 10, true),
            (90, 10, false),
            (90, 11, true),
        ] {
            let tally = Tally {
                checked,
                not_judged,
                ..Tally::showing(0)
            };
            assert_eq!(tally.is_blind(), expected, "{checked}, {not_judged}");
        }
    }
}
