//! Decides when a message may be claimed and when its handler may start: with one group claimed
//! ahead, at most so many handlers at once, in the order of its group, and none in the reserve at
//! the end of the invocation; and when a handler that still runs is ended.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use crate::batch::report::Reason;
use crate::engine::REPLY_TIME;

/// The longest reserve where none is set; else it is a tenth of the time that the invocation has.
const LONGEST_RESERVE: Duration = Duration::from_secs(1);

/// The longest time, at the end of an invocation, in which no handler runs any more: one short store
/// call and the reply fit in.
const LONGEST_END: Duration = Duration::from_millis(500);

/// Holds the instants that end a batch; they are taken from the time that its invocation has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// From when on no message starts.
    pub(super) stop: Instant,
    /// When a handler that still runs is ended.
    pub(super) end: Instant,
    /// When what still waits for the store is given up.
    pub(super) give_up: Instant,
}

impl Times {
    /// Gives the instants of an invocation; `None` where its deadline is not known.
    pub(super) fn of(remaining: Option<Duration>, reserve: Option<Duration>) -> Option<Self> {
        let remaining = remaining?;
        let reserve = reserve.unwrap_or_else(|| LONGEST_RESERVE.min(remaining / 10));
        let least = REPLY_TIME.min(remaining / 20);
        let end = (reserve / 2).clamp(least, LONGEST_END);
        // No message starts only to be ended.
        let reserve = reserve.max(end);
        let now = Instant::now();
        Some(Self {
            stop: now + remaining.saturating_sub(reserve),
            end: now + remaining.saturating_sub(end),
            give_up: now + remaining.saturating_sub(end / 2),
        })
    }
}

/// Holds the state of one batch's gate.
#[derive(Debug)]
pub(super) struct Gate {
    handlers: Semaphore,
    /// How many messages are claimed together.
    pub(super) group: usize,
    /// How many messages have started, or ended without a start.
    started: watch::Sender<usize>,
    /// `None` where no deadline is known.
    pub(super) times: Option<Times>,
    /// The end of each message of the batch: done, or reported; `None` until then.
    done: watch::Sender<Vec<Option<bool>>>,
}

impl Gate {
    pub(super) fn new(
        concurrency: usize,
        group: usize,
        messages: usize,
        times: Option<Times>,
    ) -> Self {
        Self {
            // A semaphore has an upper bound, which "no limit" would exceed.
            handlers: Semaphore::new(concurrency.min(messages.max(1))),
            group,
            started: watch::Sender::new(0),
            times,
            done: watch::Sender::new(vec![None; messages]),
        }
    }

    /// Waits until this message may be claimed: when every message of the groups before its own has
    /// started.
    pub(super) async fn admit(&self, index: usize) {
        let before = index - index % self.group;
        if before == 0 {
            return;
        }
        let mut started = self.started.subscribe();
        // The sender lives as long as `self`, so this ends by the condition alone.
        let _ = started.wait_for(|started| *started >= before).await;
    }

    /// Says why a message won't run, where that is known before its claim.
    pub(super) fn refusal(&self, after: &[usize]) -> Option<Reason> {
        if self.is_over() {
            return Some(Reason::OutOfTime);
        }
        let may_start = may_start(&self.done.borrow(), after);
        (may_start == Some(false)).then_some(Reason::GroupStopped)
    }

    /// Waits for the right to run a handler: after the messages that must be done first, as one of
    /// so many, and only before the reserve begins.
    pub(super) async fn start(&self, after: &[usize]) -> Result<SemaphorePermit<'_>, Reason> {
        self.turn(after).await?;
        // A free permit is taken without a timer.
        let permit = match (self.handlers.try_acquire(), self.stop_at()) {
            (Ok(permit), _) => Ok(Ok(permit)),
            (Err(_), Some(stop_at)) => {
                Box::pin(tokio::time::timeout_at(stop_at, self.handlers.acquire())).await
            }
            (Err(_), None) => Ok(self.handlers.acquire().await),
        };
        match permit {
            Ok(Ok(permit)) if !self.is_over() => Ok(permit),
            _ => Err(Reason::OutOfTime),
        }
    }

    /// Waits until these messages are done; an error when one of them is reported.
    pub(super) async fn turn(&self, after: &[usize]) -> Result<(), Reason> {
        if after.is_empty() {
            return Ok(());
        }
        let mut done = self.done.subscribe();
        let known = done.wait_for(|done| may_start(done, after).is_some()).await;
        match known.map(|done| may_start(&done, after)) {
            Ok(Some(true)) => Ok(()),
            _ => Err(Reason::GroupStopped),
        }
    }

    /// From when on no message starts; `None` where no deadline is known.
    pub(super) fn stop_at(&self) -> Option<Instant> {
        self.times.map(|times| times.stop)
    }

    /// Tells whether the reserve has begun, in which no message starts.
    pub(super) fn is_over(&self) -> bool {
        self.stop_at()
            .is_some_and(|stop_at| Instant::now() >= stop_at)
    }

    /// Notes the end of a message, and wakes the messages that wait for it.
    pub(super) fn ended(&self, position: usize, is_done: bool) {
        // A message that begins to wait later reads the state first.
        let is_awaited = self.done.receiver_count() > 0;
        self.done.send_if_modified(|done| {
            if let Some(done) = done.get_mut(position) {
                *done = Some(is_done);
            }
            is_awaited
        });
    }

    /// Gives an entry that counts a message as started: by its call, else when it is dropped.
    pub(super) fn entry(&self) -> Entry<'_> {
        Entry {
            gate: self,
            counted: false,
        }
    }
}

/// Counts one message as started, once.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    gate: &'a Gate,
    counted: bool,
}

impl Entry<'_> {
    pub(super) fn started(&mut self) {
        if !std::mem::replace(&mut self.counted, true) {
            let group = self.gate.group;
            // A receiver waits for whole groups.
            self.gate.started.send_if_modified(|started| {
                *started += 1;
                started.is_multiple_of(group)
            });
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.started();
    }
}

/// Tells whether a message may start after these: yes when all are done, no when one is reported, `None`
/// until either is known.
fn may_start(done: &[Option<bool>], after: &[usize]) -> Option<bool> {
    let of = |position: &usize| done.get(*position).copied().flatten();
    if after.iter().any(|position| of(position) == Some(false)) {
        return Some(false);
    }
    let all_done = after.iter().all(|position| of(position) == Some(true));
    all_done.then_some(true)
}

#[cfg(test)]
mod tests;
