//! Remembers which messages come again, for sources that don't count deliveries.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::batch::Source;

/// The number of messages after which all are forgotten: those of the largest batch that Lambda
/// delivers.
const CAPACITY: usize = 10_000;

/// The messages that this process replied must come again.
///
/// It is a hint, so a hash of each message's id is enough: a message that is wrongly taken for a
/// repeated one costs a read.
#[derive(Debug, Default)]
pub(super) struct Redelivered {
    hasher: RandomState,
    marks: Mutex<HashSet<u64>>,
}

impl Redelivered {
    /// Takes the mark of each message, unless the source counts the deliveries of the first.
    pub(super) fn marks<S: Source>(&self, messages: &[S::Record]) -> Vec<u64> {
        let is_counted = |first| S::deliveries(first).is_some();
        if messages.first().is_none_or(is_counted) {
            return Vec::new();
        }
        let mark = |message| self.mark::<S>(message);
        messages.iter().map(mark).collect()
    }

    /// Tells whether a message is delivered again: by its source's count, else by what is
    /// remembered.
    pub(super) fn is_repeated<S: Source>(&self, message: &S::Record) -> bool {
        match S::deliveries(message) {
            Some(deliveries) => deliveries > 1,
            None => self.lock().contains(&self.mark::<S>(message)),
        }
    }

    /// Remembers these messages.
    pub(super) fn remember(&self, marks: impl IntoIterator<Item = u64>) {
        let mut remembered = self.lock();
        for mark in marks {
            if remembered.len() >= CAPACITY {
                remembered.clear();
            }
            remembered.insert(mark);
        }
    }

    fn mark<S: Source>(&self, message: &S::Record) -> u64 {
        self.hasher.hash_one((S::origin(message), S::id(message)))
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::plan::tests::message;
    use crate::sqs::Sqs;

    #[test]
    fn what_is_remembered_is_repeated_until_too_much_is() {
        let redelivered = Redelivered::default();
        let first = message("m-1", "{}");
        assert!(!redelivered.is_repeated::<Sqs>(&first));
        redelivered.remember(redelivered.marks::<Sqs>(std::slice::from_ref(&first)));
        assert!(redelivered.is_repeated::<Sqs>(&first));
        assert!(!redelivered.is_repeated::<Sqs>(&message("m-2", "{}")));
        redelivered.remember(0..10_000);
        assert!(!redelivered.is_repeated::<Sqs>(&first));
    }

    #[test]
    fn a_count_of_the_source_goes_before_what_is_remembered() {
        let redelivered = Redelivered::default();
        let counted = |count: &str| {
            let mut message = message("m-1", "{}");
            let name = "ApproximateReceiveCount".to_owned();
            message.attributes.insert(name, count.to_owned());
            message
        };
        redelivered.remember(redelivered.marks::<Sqs>(&[message("m-1", "{}")]));
        assert!(!redelivered.is_repeated::<Sqs>(&counted("1")));
        assert!(redelivered.is_repeated::<Sqs>(&counted("2")));
    }
}
