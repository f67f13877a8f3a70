//! Decides whose turn it is: the messages of one group run one after the other, groups side by side.
//! Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// The messages of a batch that wait for their turn, by their positions.
pub(super) struct Turns {
    /// The next message of the same group.
    next: Vec<Option<usize>>,
    /// The messages whose turn it is: those with most behind them first, else in the order of the
    /// batch. So a long group does not begin when everything else is done.
    ready: BinaryHeap<(usize, Reverse<usize>)>,
    /// The number of messages behind each in its group.
    behind: Vec<usize>,
    /// The groups that wait for the end of a message in another one: it is the same request.
    waiting: BTreeMap<usize, Vec<usize>>,
}

impl Turns {
    /// Creates the turns of a batch: `groups` has the name of each message's group, where it is in
    /// one.
    pub(super) fn of(groups: &[Option<String>]) -> Self {
        let mut next = vec![None; groups.len()];
        let mut behind = vec![0; groups.len()];
        let mut firsts: HashMap<&str, usize> = HashMap::new();
        let mut ready = Vec::new();
        for (position, group) in groups.iter().enumerate().rev() {
            let Some(group) = group else {
                ready.push((0, Reverse(position)));
                continue;
            };
            if let Some(later) = firsts.insert(group, position) {
                let count = behind.get(later).map_or(0, |behind| behind + 1);
                set(&mut behind, position, count);
                set(&mut next, position, Some(later));
            }
        }
        let first = |first: usize| {
            (
                behind.get(first).copied().unwrap_or_default(),
                Reverse(first),
            )
        };
        ready.extend(firsts.into_values().map(first));
        Self {
            next,
            ready: ready.into(),
            behind,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes the message whose turn it is.
    pub(super) fn take(&mut self) -> Option<usize> {
        self.ready.pop().map(|(_, Reverse(position))| position)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Has a message's group wait for the end of the message that it follows.
    pub(super) fn wait_for(&mut self, leader: usize, position: usize) {
        self.waiting.entry(leader).or_default().push(position);
    }

    /// Gives the message behind this one its turn, and those behind the messages that follow it.
    pub(super) fn done(&mut self, position: usize) {
        let followers = self.waiting.remove(&position).into_iter().flatten();
        for done in std::iter::once(position).chain(followers) {
            if let Some(&Some(next)) = self.next.get(done) {
                let behind = self.behind.get(next).copied().unwrap_or_default();
                self.ready.push((behind, Reverse(next)));
            }
        }
    }

    /// Takes all messages behind this one, which is reported, and behind those that follow it: none of
    /// them runs.
    pub(super) fn stopped(&mut self, position: usize) -> Vec<usize> {
        let mut stopped = Vec::new();
        let mut reported: Vec<_> = self.waiting.remove(&position).unwrap_or_default();
        reported.push(position);
        while let Some(reported) = reported.pop() {
            let mut last = reported;
            while let Some(&Some(behind)) = self.next.get(last) {
                stopped.push(behind);
                last = behind;
            }
        }
        stopped
    }
}

fn set<T>(values: &mut [T], position: usize, value: T) {
    if let Some(place) = values.get_mut(position) {
        *place = value;
    }
}

#[cfg(test)]
mod tests;
