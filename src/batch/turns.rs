//! Decides whose turn it is: the messages of one group run one after the other, groups side by side.
//! Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::batch::Source;
use crate::engine::REPLY_TIME;
use crate::engine::time::Times;

#[cfg(test)]
mod tests;

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
        let mut turns = Self {
            next: vec![None; groups.len()],
            ready: BinaryHeap::with_capacity(groups.len()),
            behind: vec![0; groups.len()],
            waiting: BTreeMap::new(),
        };
        let mut firsts: HashMap<&str, usize> = HashMap::new();
        for (position, group) in groups.iter().enumerate().rev() {
            let Some(group) = group else {
                turns.give(position);
                continue;
            };
            if let Some(later) = firsts.insert(group, position) {
                let count = turns.behind.get(later).map_or(0, |behind| behind + 1);
                set(&mut turns.behind, position, count);
                set(&mut turns.next, position, Some(later));
            }
        }
        for first in firsts.into_values() {
            turns.give(first);
        }
        turns
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

    /// Gives a message its turn.
    pub(super) fn give(&mut self, position: usize) {
        let behind = self.behind.get(position).copied().unwrap_or_default();
        self.ready.push((behind, Reverse(position)));
    }

    /// Gives the message behind this one its turn, and those behind the messages that follow it.
    pub(super) fn done(&mut self, position: usize) {
        let followers = self.waiting.remove(&position).into_iter().flatten();
        for done in std::iter::once(position).chain(followers) {
            if let Some(&Some(next)) = self.next.get(done) {
                self.give(next);
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

/// Sets the value of a message.
pub(super) fn set<T>(values: &mut [T], position: usize, value: T) {
    if let Some(place) = values.get_mut(position) {
        *place = value;
    }
}

/// Selects the order in which messages run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// Messages run as their source promises (default): as [`Groups`](Self::Groups) where it orders
    /// them, else as [`Unordered`](Self::Unordered).
    #[default]
    BySource,
    /// Messages run side by side.
    Unordered,
    /// The messages of one group run one after the other, and groups side by side. After a message
    /// that is reported, no later one of its group runs, and all of them are reported.
    Groups,
    /// Messages run one after the other. After a message that is reported, no later one of the
    /// batch runs, and all of them are reported.
    Batch,
}

impl Order {
    /// Names the ordered group of each message, where it has one.
    pub(super) fn groups<S: Source>(self, messages: &[S::Record]) -> Vec<Option<String>> {
        let group = |message| self.group_of::<S>(message);
        messages.iter().map(group).collect()
    }

    fn group_of<S: Source>(self, message: &S::Record) -> Option<String> {
        let group = || S::order_key(message).unwrap_or_default().to_owned();
        match self {
            Self::BySource => S::is_ordered(message).then(group),
            Self::Unordered => None,
            Self::Groups => Some(group()),
            Self::Batch => Some(String::new()),
        }
    }
}

/// The longest reserve where none is set; else it is a tenth of the time that the invocation has.
const LONGEST_RESERVE: Duration = Duration::from_secs(1);

/// The longest time, at the end of an invocation, in which no handler runs any more: one short store
/// call and the reply fit in.
const LONGEST_END: Duration = Duration::from_millis(500);

/// Returns the instants that end a batch whose invocation has this time left: the one from which no
/// message starts, and those that end handlers and calls of the store.
pub(super) fn limits(remaining: Duration, reserve: Option<Duration>) -> (Instant, Times) {
    let reserve = reserve.unwrap_or_else(|| LONGEST_RESERVE.min(remaining / 10));
    // Messages start in half of the time at least, whatever the setting says.
    let reserve = reserve.min(remaining / 2);
    let least = REPLY_TIME.min(remaining / 20);
    let end = (reserve / 2).clamp(least, LONGEST_END);
    // No message starts only to be ended.
    let stop = Instant::now() + remaining.saturating_sub(reserve.max(end));
    (stop, Times::of(remaining, Some(end)))
}

/// Returns whether the reserve has begun, in which no message starts.
pub(super) fn is_over(stop: Option<Instant>) -> bool {
    stop.is_some_and(|stop| Instant::now() >= stop)
}
