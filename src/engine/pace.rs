//! Spaces the claims of a process while its store throttles.
//!
//! The rate that a store admits isn't known: it is found by asking, as TCP finds the rate of a
//! path. A throttled request cuts the rate, and the cubic function of
//! [RFC 9438](https://www.rfc-editor.org/rfc/rfc9438#section-4) raises it again: back to where it
//! was, and then beyond, so that a limit that is over is forgotten by itself.
//!
//! Only a request that begins something waits for its turn. One that ends something is sent at
//! once, and takes a turn from the claims, but no more than a second of them at once: many handlers
//! may end together, and a store that takes what they send shows that it takes more.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::protocol::key::RecordId;
use crate::protocol::lock::lock;

/// The share of the rate that a throttled request leaves: β of the RFC.
const KEPT: f64 = 0.7;
/// The rise of the rate, in requests a second, per second cubed: C of the RFC.
const RISE: f64 = 0.4;
/// The least that the first throttled request leaves, in requests a second: one that is throttled
/// by chance hardly waits.
const FIRST: f64 = 20.0;
/// The least share of a rate that each further cut leaves, however little was sent.
const LEFT: f64 = 0.5;
/// The lowest rate, in requests a second: a store that throttles everything is still asked, and a
/// run by itself gets its turn within half of the default store timeout.
const LEAST: f64 = 0.2;
/// From this rate on, in requests a second, nothing is spaced any more.
const MOST: f64 = 5_000.0;
/// For so long, a key that was throttled says nothing more about the others.
const SAME_KEY: Duration = Duration::from_secs(10);
/// So many keys are remembered for that.
const MOST_KEYS: usize = 16;
/// The factor on the pause of a request that begins something, when its key was throttled already.
const LONGER_TO_BEGIN: u32 = 4;
/// The longest pause that the pace asks of a request that ends something.
const LONGEST_TO_END: Duration = Duration::from_secs(1);
/// The time over which requests are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// The pace of one engine's requests, shared by all its runs.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<State>);

#[derive(Debug)]
struct State {
    sent: Sent,
    limit: Option<Limit>,
    /// The first turn that nobody has taken.
    free: Instant,
    /// The first turn that ending requests have left, as if nothing had begun.
    free_of_ends: Instant,
    /// The keys that were throttled last, and when.
    keys: VecDeque<(RecordId, Instant)>,
}

/// The number of requests that were sent in this window, and in the one before.
#[derive(Debug)]
struct Sent {
    since: Instant,
    now: f64,
    before: f64,
}

/// The rate at which the store throttled last, and when.
#[derive(Clone, Copy, Debug)]
struct Limit {
    highest: f64,
    since: Instant,
}

/// The turns of one request, which may be sent several times.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turns<'a> {
    /// It begins a run, which can as well begin later: it waits for its turn.
    Begin(&'a Pace, &'a RecordId),
    /// It ends or keeps what has begun: it is sent at once.
    End(&'a Pace, &'a RecordId),
    /// It goes to other places, too, and says nothing about this store.
    Elsewhere,
}

impl Pace {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(State {
            sent: Sent {
                since: now,
                now: 0.0,
                before: 0.0,
            },
            limit: None,
            free: now,
            free_of_ends: now,
            keys: VecDeque::new(),
        }))
    }
}

impl Turns<'_> {
    /// Waits for the next turn, and returns its time. `None` where it would come after the deadline,
    /// which is known at once.
    pub(super) async fn next(self, deadline: Instant) -> Option<Instant> {
        let now = Instant::now();
        match self {
            Self::Elsewhere => Some(now),
            Self::End(pace, _) => {
                lock(&pace.0).pass_end(now);
                Some(now)
            }
            Self::Begin(pace, _) => {
                let turn = lock(&pace.0).take(now, deadline)?;
                if turn > now {
                    Box::pin(sleep_until(turn)).await;
                }
                Some(turn)
            }
        }
    }

    /// Notes that the request was throttled in this turn. Returns how long it waits before it asks
    /// for its next one, where it would wait so long by itself.
    pub(super) fn throttled(self, turn: Instant, by_itself: Duration) -> Duration {
        let (pace, key, longest) = match self {
            Self::Elsewhere => return by_itself,
            Self::Begin(pace, key) => (pace, key, Duration::MAX),
            Self::End(pace, key) => (pace, key, LONGEST_TO_END),
        };
        let now = Instant::now();
        let mut state = lock(&pace.0);
        if state.is_news(now, key) {
            state.cut(now, turn);
            if matches!(self, Self::Begin(..)) {
                // The next turn is pause enough.
                return Duration::ZERO;
            }
        }
        // The rate rises, but not for a key that is throttled again.
        let cut = state.limit.map(|limit| gap(limit.rate(limit.since)));
        let by_itself = if matches!(self, Self::Begin(..)) {
            by_itself * LONGER_TO_BEGIN
        } else {
            by_itself
        };
        by_itself.max(cut.unwrap_or_default().min(longest))
    }
}

impl State {
    /// Takes the first free turn before the deadline.
    fn take(&mut self, now: Instant, deadline: Instant) -> Option<Instant> {
        let turn = match self.rate(now) {
            Some(_) => self.free.max(now),
            None => now,
        };
        if turn >= deadline && turn > now {
            return None;
        }
        self.pass(now);
        Some(turn)
    }

    /// Counts a request, and moves the turns of those who wait.
    fn pass(&mut self, now: Instant) {
        self.sent.count(now);
        if let Some(rate) = self.rate(now) {
            self.free = self.free.max(now) + gap(rate);
        }
    }

    /// The same for a request that ends something.
    fn pass_end(&mut self, now: Instant) {
        self.sent.count(now);
        if let Some(rate) = self.rate(now) {
            let free = self.free_of_ends.max(now);
            self.free_of_ends = (free + gap(rate)).min(now + WINDOW).max(free);
            self.free = self.free.max(now) + (self.free_of_ends - free);
        }
    }

    /// Returns whether this key's being throttled says something about the others. One key that gets
    /// more requests than a partition takes is throttled again and again, and they aren't.
    fn is_news(&mut self, now: Instant, key: &RecordId) -> bool {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= SAME_KEY;
        self.keys.retain(|(_, at)| !is_old(*at));
        let is_news = self.keys.iter().all(|(other, _)| other != key);
        if is_news {
            self.keys.truncate(MOST_KEYS - 1);
            self.keys.push_front((key.clone(), now));
        }
        is_news
    }

    /// Cuts the rate. A request from before the last cut says nothing about the rate since.
    fn cut(&mut self, now: Instant, sent: Instant) {
        if self.limit.is_some_and(|limit| sent < limit.since) {
            return;
        }
        // The rate that was admitted may be less than the one that would have been allowed.
        let allowed = self.rate(now).unwrap_or(MOST);
        let least = self.limit.map_or(FIRST, |limit| limit.highest * LEFT);
        let limit = Limit {
            highest: self.sent.a_second(now).min(allowed).max(least).max(LEAST),
            since: now,
        };
        self.limit = Some(limit);
        self.free = self.free.max(now + gap(limit.rate(now)));
    }

    /// The rate at this time; `None` where nothing is spaced.
    fn rate(&mut self, now: Instant) -> Option<f64> {
        let rate = self.limit?.rate(now);
        if rate >= MOST {
            self.limit = None;
            (self.free, self.free_of_ends) = (now, now);
            return None;
        }
        Some(rate)
    }
}

impl Limit {
    fn rate(&self, now: Instant) -> f64 {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        let until_highest = (self.highest * (1.0 - KEPT) / RISE).cbrt();
        let rate = RISE.mul_add((seconds - until_highest).powi(3), self.highest);
        rate.max(LEAST)
    }
}

impl Sent {
    fn count(&mut self, now: Instant) {
        let windows =
            now.saturating_duration_since(self.since).as_secs_f64() / WINDOW.as_secs_f64();
        if windows >= 1.0 {
            self.before = self.now / windows;
            self.now = 0.0;
            self.since = now;
        }
        self.now += 1.0;
    }

    /// The rate of the last whole window, or what this one shows already. Its first request shows
    /// nothing.
    fn a_second(&self, now: Instant) -> f64 {
        let seconds = now.saturating_duration_since(self.since).max(WINDOW);
        self.before.max((self.now - 1.0) / seconds.as_secs_f64())
    }
}

fn gap(rate: f64) -> Duration {
    Duration::from_secs_f64(rate.recip())
}

#[cfg(test)]
mod tests;
