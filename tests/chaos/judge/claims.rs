//! One key's record, from its first claim to its outcome.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::history::{Change, Image};
use crate::pool::{CALM_TIMEOUT, TIMEOUT};

/// The time that a lease may last from a claim on, beside the function's: the margin, and the part that a clock in milliseconds cuts off.
const MARGIN: Duration = Duration::from_millis(1_001);

const RELEASED: i64 = 0;
const NOT_STARTED: &str = "not started";

/// The reason why a key was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    First,
    /// The attempt before it was released.
    Released,
    /// The lease of the attempt before it had run out.
    LeaseOver,
}

/// A claim that stood.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The time by which it stood.
    pub at: SystemTime,
    pub why: Why,
}

/// The history of a key.
#[derive(Debug)]
pub struct Story {
    pub claims: Vec<Claim>,
    pub end: Image,
    pub broken: Vec<String>,
    calm_since: SystemTime,
}

impl Story {
    /// `None` where nothing ever happened.
    pub fn of(
        changes: &[Change],
        claimed_at: &HashMap<String, SystemTime>,
        calm_since: SystemTime,
    ) -> Option<Self> {
        let end = changes.last()?.after.clone();
        let mut story = Self {
            claims: Vec::new(),
            end: end.or_else(|| changes.last()?.before.clone())?,
            broken: Vec::new(),
            calm_since,
        };
        let mut stands: Option<&Image> = None;
        for change in changes {
            if change.before.as_ref() != stands {
                story
                    .broken
                    .push(format!("the stream has a gap: {change:?} after {stands:?}"));
            }
            story.take(change, claimed_at);
            stands = change.after.as_ref();
        }
        Some(story)
    }

    pub fn is_completed(&self) -> bool {
        self.end.status == "COMPLETED"
    }

    /// Returns the number of claims that stood by then.
    pub fn claims_by(&self, time: SystemTime) -> usize {
        self.claims.iter().filter(|claim| claim.at <= time).count()
    }

    fn take(&mut self, change: &Change, claimed_at: &HashMap<String, SystemTime>) {
        let Some(after) = &change.after else {
            self.broken.push("it was deleted".to_owned());
            return;
        };
        let Some(before) = &change.before else {
            if after.attempt != 1 {
                self.broken
                    .push(format!("it began with attempt {}", after.attempt));
            }
            self.claimed(after, Why::First, claimed_at);
            return;
        };
        if before.status != "INPROGRESS" {
            self.broken
                .push(format!("it changed after it was final: {change:?}"));
            return;
        }
        if before.owner == after.owner {
            if before.attempt != after.attempt {
                self.broken
                    .push(format!("an attempt was renumbered: {change:?}"));
            }
            return;
        }
        match (after.status.as_str(), after.lease) {
            ("INPROGRESS", Some(RELEASED)) => {}
            ("INPROGRESS", _) => self.taken_over(before, after, claimed_at),
            _ => self
                .broken
                .push(format!("it was ended by a stranger: {change:?}")),
        }
    }

    fn taken_over(
        &mut self,
        before: &Image,
        after: &Image,
        claimed_at: &HashMap<String, SystemTime>,
    ) {
        // An attempt that was released before its work began need not count.
        let counted =
            before.lease != Some(RELEASED) || before.last_error.as_deref() != Some(NOT_STARTED);
        let lowest = before.attempt + i64::from(counted);
        if !(lowest..=before.attempt + 1).contains(&after.attempt) {
            self.broken.push(format!(
                "attempt {} came after attempt {}",
                after.attempt, before.attempt
            ));
        }
        let lease = before.lease.unwrap_or(i64::MAX);
        let why = if lease == RELEASED {
            Why::Released
        } else {
            Why::LeaseOver
        };
        let claim = self.claimed(after, why, claimed_at);
        let stood = claim.map_or(i64::MAX, |claim| millis(claim.at));
        // By the wire's clock, and by the claimer's own.
        if lease > stood || lease > after.started_at {
            self.broken.push(format!(
                "attempt {} was taken over while its lease ran, until {lease}: at {stood}, {}",
                before.attempt, after.started_at
            ));
        }
    }

    fn claimed(
        &mut self,
        claim: &Image,
        why: Why,
        claimed_at: &HashMap<String, SystemTime>,
    ) -> Option<Claim> {
        let lasting = claim.lease.map(|lease| lease - claim.started_at);
        let time = if claim.started_at < millis(self.calm_since) {
            TIMEOUT
        } else {
            CALM_TIMEOUT
        };
        let longest = i64::try_from((time + MARGIN).as_millis()).expect("minutes");
        if !lasting.is_some_and(|lasting| (0..=longest).contains(&lasting)) {
            self.broken.push(format!("a lease of {lasting:?} ms"));
        }
        let Some(at) = claimed_at.get(&claim.owner) else {
            self.broken.push(format!(
                "attempt {} was never seen on the wire",
                claim.attempt
            ));
            return None;
        };
        let claim = Claim { at: *at, why };
        self.claims.push(claim);
        Some(claim)
    }
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292 million")
}
