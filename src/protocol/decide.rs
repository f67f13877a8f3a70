//! Decides what to do about a key, and settles a completion whose fence did not hold.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::protocol::clock::EpochMillis;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::{Journal, StepEntry, StepState};
use crate::protocol::record::{
    Completion, Found, LAYOUT, NOT_STARTED, Omission, Owner, Record, Status, Takeover, Version,
};

#[cfg(test)]
mod tests;

/// The policy for an attempt that outlived its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnCrash {
    /// The handler runs again, with the same derived keys (default).
    #[default]
    RunAgain,
    /// The engine answers [`Error::Interrupted`](crate::Error::Interrupted) until an operator has
    /// looked, or the record expires and the request counts as new: for effects that can't be
    /// repeated and whose provider honours no keys.
    Interrupt,
    /// The handler runs again when this time has passed since the end of the lease; until then the
    /// key is in flight: for work that shows what it did only after a while, or that somebody may want
    /// to look at first. A run that panics or is dropped waits for it, too. Let it be shorter than the
    /// retention; a queue's `maxReceiveCount` and Lambda's asynchronous retries may be used up before,
    /// and a stream's shard stands still. A [step](crate::Step) has no lease: there it is `RunAgain`.
    RunAgainAfter(Duration),
}

impl OnCrash {
    /// Returns the time between the end of the lease and the next attempt; `None` where there is no
    /// next one until an operator has looked.
    pub(crate) fn pause(self) -> Option<Duration> {
        match self {
            Self::RunAgain => Some(Duration::ZERO),
            Self::RunAgainAfter(pause) => Some(pause),
            Self::Interrupt => None,
        }
    }
}

/// The settings on which decisions depend.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The policy for an attempt that outlived its lease.
    pub on_crash: OnCrash,
    /// The number of attempts that a key may have before a crashed one is no longer taken over;
    /// `None` for no limit.
    pub max_attempts: Option<NonZeroU32>,
    /// The time by which the clocks of two machines may differ.
    pub skew_margin: Duration,
}

/// The attempt that asks for a decision, with its payload and the time.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Asking<'a> {
    /// The owner that this attempt will claim as, made before its first write.
    pub owner: &'a Owner,
    /// The payload's fingerprint; `None` where the caller opted out.
    pub fingerprint: Option<&'a Fingerprint>,
    /// The current time.
    pub now: EpochMillis,
}

#[doc(hidden)]
impl<'a> Asking<'a> {
    /// Makes the question of one attempt.
    pub fn new(owner: &'a Owner, fingerprint: Option<&'a Fingerprint>, now: EpochMillis) -> Self {
        Self {
            owner,
            fingerprint,
            now,
        }
    }
}

/// The decision about a key.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision<'a> {
    /// The key has no record: create one.
    Create,
    /// The record is this attempt's own claim: its write applied, the reply was lost.
    Mine(&'a Record),
    /// The record may be taken over, if it is still at this version.
    TakeOver {
        /// The version that the write must compare.
        seen: &'a Version,
        /// The mode, which says what it keeps.
        mode: Takeover,
        /// The number of the new attempt.
        attempt: u32,
    },
    /// The outcome is final: replay it.
    Replay(&'a Record),
    /// The failure is final: replay it.
    ReplayFailure(&'a Record),
    /// The key was first used with another payload.
    Mismatch {
        /// The end of the lease of the attempt with that payload, while it runs: it may fail and leave
        /// the key free.
        until: Option<EpochMillis>,
    },
    /// Another attempt holds the claim.
    InFlight {
        /// The instant from which the record may be taken over.
        until: EpochMillis,
    },
    /// An attempt crashed, and the policy wants an operator to look.
    Interrupted {
        /// The time when its lease ran out.
        since: EpochMillis,
    },
    /// An attempt crashed, and the key has used up its attempts.
    Exhausted {
        /// The number of attempts that it had.
        attempts: u32,
    },
    /// The record can't be understood; it is left alone, and the handler doesn't run.
    Unreadable(&'a str),
}

impl Decision<'_> {
    /// Returns the journal of the attempt that this decision about a record lets begin, or of those
    /// before it; `None` where it starts without.
    fn journal<'f>(&self, found: Option<&'f Found>) -> Option<&'f Journal> {
        match self {
            Self::Create
            | Self::TakeOver {
                mode: Takeover::Fresh,
                ..
            } => None,
            _ => Some(&found?.record()?.journal),
        }
    }

    /// Returns the generation of that attempt's derived keys.
    pub(crate) fn key_generation(&self, found: Option<&Found>) -> u32 {
        self.journal(found).map_or(0, Journal::key_generation)
    }

    /// Returns whether the final record of that attempt [is to be kept](Journal::is_to_be_kept).
    pub(crate) fn is_to_be_kept(&self, found: Option<&Found>) -> bool {
        self.journal(found).is_some_and(Journal::is_to_be_kept)
    }
}

/// Decides what to do about a key, given its record. The function is pure; the rows are tried from
/// top to bottom.
#[doc(hidden)]
pub fn decide<'a>(found: Option<&'a Found>, asking: Asking<'_>, rules: &Rules) -> Decision<'a> {
    let Some(found) = found else {
        return Decision::Create;
    };
    let mine = found.version.owner.as_deref() == Some(asking.owner.as_str());
    if !mine && is_expired(&found.version, asking.now, rules.skew_margin) {
        return Decision::TakeOver {
            seen: &found.version,
            mode: Takeover::Fresh,
            attempt: 1,
        };
    }
    let record = match &found.content {
        Ok(record) => record,
        Err(reason) => return Decision::Unreadable(reason),
    };
    if !mine && differs(record, asking.fingerprint) {
        let is_running = record.status == Status::InProgress;
        let until = lease_end(&found.version, rules.skew_margin);
        let until = until.filter(|until| is_running && asking.now < *until);
        return Decision::Mismatch { until };
    }
    match record.status {
        Status::Completed => Decision::Replay(record),
        Status::Failed => Decision::ReplayFailure(record),
        Status::InProgress if mine => Decision::Mine(record),
        Status::InProgress if record.is_released() => resume(found, record),
        Status::InProgress => decide_in_progress(found, record, asking.now, rules),
    }
}

fn decide_in_progress<'a>(
    found: &'a Found,
    record: &'a Record,
    now: EpochMillis,
    rules: &Rules,
) -> Decision<'a> {
    let Some(until) = lease_end(&found.version, rules.skew_margin) else {
        return Decision::InFlight {
            until: record.expiration.to_millis() + rules.skew_margin,
        };
    };
    if now < until {
        return Decision::InFlight { until };
    }
    if rules
        .max_attempts
        .is_some_and(|max| record.attempt >= max.get())
    {
        return Decision::Exhausted {
            attempts: record.attempt,
        };
    }
    match rules.on_crash.pause().map(|pause| until + pause) {
        Some(again) if now < again => Decision::InFlight { until: again },
        Some(_) => resume(found, record),
        None => Decision::Interrupted { since: until },
    }
}

/// A released attempt whose work never began doesn't count: its number is the next one's.
fn resume<'a>(found: &'a Found, record: &Record) -> Decision<'a> {
    let is_unstarted = record.last_error.as_deref() == Some(NOT_STARTED) && record.is_released();
    let (mode, attempt) = if is_unstarted {
        (Takeover::Unstarted, record.attempt)
    } else {
        (Takeover::Resume, record.attempt.saturating_add(1))
    };
    Decision::TakeOver {
        seen: &found.version,
        mode,
        attempt,
    }
}

/// Returns whether two fingerprints differ. Another library's is a different hash, and is not
/// compared.
fn differs(record: &Record, fingerprint: Option<&Fingerprint>) -> bool {
    match (record.layout, &record.fingerprint, fingerprint) {
        (Some(LAYOUT), Some(stored), Some(presented)) => stored.differs(presented),
        _ => false,
    }
}

/// Returns the end of the lease. This crate's leases include the margin; another library's, which
/// has no owner, do not.
fn lease_end(version: &Version, margin: Duration) -> Option<EpochMillis> {
    let lease = EpochMillis(version.lease?);
    Some(if version.owner.is_some() {
        lease
    } else {
        lease + margin
    })
}

/// Returns whether the record counts as absent. One whose status is not known to be final also needs
/// its lease to be over.
fn is_expired(version: &Version, now: EpochMillis, margin: Duration) -> bool {
    let Some(expiration) = version.expiration else {
        return false;
    };
    let gone_at = EpochMillis(expiration.saturating_mul(1_000)) + margin;
    let is_final = version
        .status
        .as_deref()
        .and_then(Status::parse)
        .is_some_and(|status| status != Status::InProgress);
    let lease_over = is_final || lease_end(version, margin).is_none_or(|end| now >= end);
    now >= gone_at && lease_over
}

/// The result of a completion.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// The fence held: the record has this attempt's outcome.
    Recorded,
    /// The lease ran out, and a successor finished first, with the same payload: its outcome counts.
    Superseded(Box<Record>),
    /// The lease ran out, and another attempt holds the claim, or the record is gone.
    Lost,
}

/// Settles a completion whose condition failed, given what the store found instead. The function is
/// pure.
///
/// A record that is completed by this owner counts as its own only if the time and the outcome are
/// the ones that it wrote: a library that completes without a fence could have written over it.
#[doc(hidden)]
pub fn settle(
    found: Option<&Found>,
    sent: &Completion,
    fingerprint: Option<&Fingerprint>,
) -> Settled {
    let Some(record) = found.and_then(|found| found.content.as_ref().ok()) else {
        return Settled::Lost;
    };
    if record.owner.as_ref() == Some(&sent.owner)
        && record.status == sent.status
        && record.completed_at == Some(sent.completed_at)
        && record.outcome.as_ref() == Some(&sent.outcome)
    {
        return Settled::Recorded;
    }
    if record.status == Status::Completed && !differs(record, fingerprint) {
        return Settled::Superseded(record.clone());
    }
    Settled::Lost
}

/// The decision about a step.
#[doc(hidden)]
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepDecision<'a> {
    /// Record it as pending, then let its effect happen.
    Fire,
    /// Its effect happened, with this result.
    Skip(&'a Result<String, Omission>),
    /// It may have happened, and the policy wants an operator to look.
    Interrupted {
        /// The time when it began.
        since: EpochMillis,
    },
}

/// Shows no result: it may hold anything.
impl fmt::Debug for StepDecision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fire => f.write_str("Fire"),
            Self::Skip(_) => f.write_str("Skip(..)"),
            Self::Interrupted { since } => write!(f, "Interrupted({since:?})"),
        }
    }
}

/// Decides what to do about a step, given its entry. The function is pure.
#[doc(hidden)]
pub fn decide_step(known: Option<&StepEntry>, crashed: OnCrash) -> StepDecision<'_> {
    match known.map(|entry| (&entry.state, entry.at)) {
        Some((StepState::Confirmed(result), _)) => StepDecision::Skip(result),
        Some((StepState::Pending, since)) if crashed == OnCrash::Interrupt => {
            StepDecision::Interrupted { since }
        }
        _ => StepDecision::Fire,
    }
}
