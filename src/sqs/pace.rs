//! Who may start, and when: one group claimed ahead, so many handlers at once, in order where the queue is FIFO, and nobody
//! when the time is nearly over.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use crate::sqs::report::Reason;

/// The reserve where none is set: a tenth of the time that the invocation has, and at most this.
const LONGEST_RESERVE: Duration = Duration::from_secs(1);

/// The pace of one batch.
#[derive(Debug)]
pub(super) struct Pace {
    handlers: Semaphore,
    group: usize,
    /// How many messages have started, or ended without a start.
    started: watch::Sender<usize>,
    /// From when on no message starts; `None` where no deadline is known.
    stop_at: Option<Instant>,
    /// What became of each message of the batch, by its position.
    fates: watch::Sender<Vec<Progress>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Open,
    Done,
    Reported,
}

impl Pace {
    pub(super) fn new(
        concurrency: usize,
        group: usize,
        messages: usize,
        stop_at: Option<Instant>,
    ) -> Self {
        Self {
            handlers: Semaphore::new(concurrency),
            group,
            started: watch::Sender::new(0),
            stop_at,
            fates: watch::Sender::new(vec![Progress::Open; messages]),
        }
    }

    /// When messages stop to start, given the time that is left.
    pub(super) fn stop_at(
        remaining: Option<Duration>,
        reserve: Option<Duration>,
    ) -> Option<Instant> {
        let remaining = remaining?;
        let reserve = reserve.unwrap_or_else(|| LONGEST_RESERVE.min(remaining / 10));
        Some(Instant::now() + remaining.saturating_sub(reserve))
    }

    /// How many messages are claimed together.
    pub(super) fn group(&self) -> usize {
        self.group
    }

    pub(super) fn stops_at(&self) -> Option<Instant> {
        self.stop_at
    }

    /// Waits until this message may be claimed: when every message of the groups before its own has started.
    pub(super) async fn admit(&self, index: usize) {
        let before = index - index % self.group;
        if before == 0 {
            return;
        }
        let mut started = self.started.subscribe();
        // The sender lives as long as `self`, so this ends by the condition alone.
        let _ = started.wait_for(|started| *started >= before).await;
    }

    /// Whether it is known already that the message won't run, so that it needn't be claimed.
    pub(super) fn refusal(&self, after: &[usize]) -> Option<Reason> {
        if self.is_over() {
            return Some(Reason::OutOfTime);
        }
        let fates = self.fates.borrow();
        let stopped = after
            .iter()
            .any(|position| fates.get(*position) == Some(&Progress::Reported));
        stopped.then_some(Reason::GroupStopped)
    }

    /// The right to run a handler: after those that must come first, as one of so many, and only while there is time.
    pub(super) async fn start(&self, after: &[usize]) -> Result<SemaphorePermit<'_>, Reason> {
        self.turn(after).await?;
        // A free one is taken without a timer.
        let permit = match (self.handlers.try_acquire(), self.stop_at) {
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

    async fn turn(&self, after: &[usize]) -> Result<(), Reason> {
        if after.is_empty() {
            return Ok(());
        }
        let fate = |fates: &[Progress], position: &usize| fates.get(*position).copied();
        let mut fates = self.fates.subscribe();
        let known = |fates: &Vec<Progress>| {
            after
                .iter()
                .any(|position| fate(fates, position) == Some(Progress::Reported))
                || after
                    .iter()
                    .all(|position| fate(fates, position) == Some(Progress::Done))
        };
        match fates.wait_for(known).await {
            Ok(fates)
                if after
                    .iter()
                    .all(|position| fate(&fates, position) == Some(Progress::Done)) =>
            {
                Ok(())
            }
            _ => Err(Reason::GroupStopped),
        }
    }

    /// Whether the time has come when no message starts.
    pub(super) fn is_over(&self) -> bool {
        self.stop_at
            .is_some_and(|stop_at| Instant::now() >= stop_at)
    }

    /// Lets those go on that wait for this message.
    pub(super) fn ended(&self, position: usize, done: bool) {
        // Who begins to wait later looks first.
        let is_awaited = self.fates.receiver_count() > 0;
        self.fates.send_if_modified(|fates| {
            if let Some(fate) = fates.get_mut(position) {
                *fate = if done {
                    Progress::Done
                } else {
                    Progress::Reported
                };
            }
            is_awaited
        });
    }

    /// Counts a message as started when told so, or when dropped.
    pub(super) fn entry(&self) -> Entry<'_> {
        Entry {
            pace: self,
            counted: false,
        }
    }
}

/// A message on its way to its start.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pace: &'a Pace,
    counted: bool,
}

impl Entry<'_> {
    pub(super) fn started(&mut self) {
        if !std::mem::replace(&mut self.counted, true) {
            let group = self.pace.group;
            // They wait for whole groups.
            self.pace.started.send_if_modified(|started| {
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

#[cfg(test)]
mod tests;
