//! Labels of workers and owners, for a reader. The checker changes the order of workers and the numbers of owners as it likes; the labels
//! stay as they are. They are no part of a state's identity.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use crate::values::{Name, REDACTED, STRANGER};
use crate::world::WORKERS;

/// More names than any state has.
pub const NAMES: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct Labels {
    workers: [u8; WORKERS],
    owners: [Label; NAMES],
    /// The number of owners that each worker has made.
    made: [u8; WORKERS],
}

/// A worker, a number and whether it is a tombstone, in one byte.
#[derive(Clone, Copy, Debug, Default)]
struct Label(u8);

impl Label {
    fn new(worker: u8, number: u8, tombstone: bool) -> Self {
        Self(worker << 6 | (number & 31) << 1 | u8::from(tombstone))
    }
}

impl Labels {
    pub fn new() -> Self {
        Self {
            workers: [0, 1, 2, 3],
            owners: [Label::default(); NAMES],
            made: [0; WORKERS],
        }
    }

    pub fn christen(&mut self, name: Name, w: usize, tombstone: bool) {
        let worker = self.workers[w];
        let made = &mut self.made[usize::from(worker)];
        *made += u8::from(!tombstone);
        self.owners[usize::from(name.0)] = Label::new(worker, *made, tombstone);
    }

    pub fn worker(&self, w: usize) -> u8 {
        self.workers[w]
    }

    pub fn owner(&self, name: Name) -> String {
        if name == STRANGER {
            return "a stranger".to_owned();
        }
        if name == REDACTED {
            return "nobody".to_owned();
        }
        let Label(label) = self.owners[usize::from(name.0)];
        let end = if label & 1 == 1 { "+" } else { "" };
        format!("w{}.{}{end}", label >> 6, label >> 1 & 31)
    }

    /// After workers have changed places, and owners their numbers.
    pub fn renamed(&self, order: &[usize; WORKERS], numbers: &[u8; NAMES]) -> Self {
        let mut renamed = *self;
        renamed.workers = order.map(|w| self.workers[w]);
        for (old, new) in numbers.iter().enumerate() {
            if let Some(label) = renamed.owners.get_mut(usize::from(*new)) {
                *label = self.owners[old];
            }
        }
        renamed
    }
}

impl PartialEq for Labels {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Labels {}

impl Hash for Labels {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}
