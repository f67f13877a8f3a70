//! The permission to complete: no claim is made for work whose completion would be refused.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::engine::Engine;
use crate::protocol::Settled;
use crate::protocol::clock::EpochMillis;
use crate::store::StoreError;

/// The time between two trials.
const PAUSE: Duration = Duration::from_mins(1);

/// No completion was refused, or one has applied since.
const GRANTED: i64 = 0;

/// The state of the permission to complete.
///
/// A function that can claim and can't complete, for lack of a permission or by the set-up of its table,
/// repeats its effect with every delivery: each one runs when the lease of the one before it is over.
/// After the first completion that was refused so, the process claims nothing but one trial a minute. A
/// request that needs no claim is answered meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Permission {
    /// The time of the next trial.
    trial_at: AtomicI64,
}

impl Permission {
    /// Returns whether the last completion was refused so.
    pub(super) fn is_refused(&self) -> bool {
        self.trial_at.load(Ordering::Relaxed) != GRANTED
    }

    /// Returns the right to make a claim, where one may be made now. Of those that ask when a trial is
    /// due, one gets it.
    pub(super) fn claim(&self, now: EpochMillis) -> Option<ClaimRight<'_>> {
        let due = self.trial_at.load(Ordering::Relaxed);
        let next = (now + PAUSE).0;
        // A clock that was put back leaves a trial later than any caller's pause, which is due.
        let is_early = now.0 < due && due <= (now + PAUSE + PAUSE).0;
        if due != GRANTED && (is_early || !self.replace(due, next)) {
            return None;
        }
        let trial = (due != GRANTED).then_some(Trial { due, next });
        Some(ClaimRight {
            permission: self,
            trial,
        })
    }

    /// Records that a completion was refused, as each one is until an operator corrects the cause.
    pub(super) fn refused(&self, now: EpochMillis) {
        self.trial_at.store((now + PAUSE).0, Ordering::Relaxed);
    }

    /// Records that a completion has applied.
    pub(super) fn granted(&self) {
        if self.is_refused() {
            self.trial_at.store(GRANTED, Ordering::Relaxed);
        }
    }

    fn replace(&self, seen: i64, next: i64) -> bool {
        self.trial_at
            .compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// The right to make one claim. A trial whose request ends without a claim tests no completion:
/// dropped unspent, it is due again at once.
#[derive(Debug)]
pub(super) struct ClaimRight<'a> {
    permission: &'a Permission,
    trial: Option<Trial>,
}

#[derive(Debug)]
struct Trial {
    due: i64,
    next: i64,
}

impl ClaimRight<'_> {
    /// Uses the right up: the handler runs.
    pub(super) fn spend(mut self) {
        self.trial = None;
    }
}

impl Drop for ClaimRight<'_> {
    fn drop(&mut self) {
        if let Some(Trial { due, next }) = self.trial {
            self.permission.replace(next, due);
        }
    }
}

impl Engine {
    /// Records whether completions apply. One that meets another attempt tells nothing of that: its
    /// condition fails before the table looks at what it would write.
    pub(super) fn note_permission(&self, finished: &Result<Settled, StoreError>) {
        match finished {
            Ok(Settled::Recorded) => self.permission.granted(),
            Err(StoreError::Denied(_) | StoreError::Misconfigured(_)) => {
                self.permission.refused(self.clock.now());
            }
            Ok(Settled::Superseded(_) | Settled::Lost) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(permission: &Permission, ms: i64) -> bool {
        let right = permission.claim(EpochMillis(ms));
        right.map(ClaimRight::spend).is_some()
    }

    #[test]
    fn after_a_refusal_one_claim_a_minute_is_a_trial_until_a_completion_applies() {
        let permission = Permission::default();
        let runs = |ms| runs(&permission, ms);
        assert!(runs(1_000) && runs(1_000));
        permission.refused(EpochMillis(1_000));
        assert!(permission.is_refused());
        assert!(!runs(1_000) && !runs(60_999));
        assert!(runs(61_000));
        assert!(!runs(61_000) && !runs(120_999));
        assert!(runs(121_000));
        permission.granted();
        assert!(!permission.is_refused());
        assert!(runs(121_000) && runs(121_000));
    }

    #[test]
    fn a_trial_that_makes_no_claim_is_given_back() {
        let permission = Permission::default();
        permission.refused(EpochMillis(1_000));
        let trial = permission.claim(EpochMillis(61_000)).unwrap();
        assert!(permission.claim(EpochMillis(61_000)).is_none());
        drop(trial);
        assert!(runs(&permission, 61_000));
        assert!(!runs(&permission, 61_000));
    }

    #[test]
    fn a_trial_that_is_given_back_changes_nothing_that_was_noted_meanwhile() {
        let permission = Permission::default();
        permission.refused(EpochMillis(1_000));
        let trial = permission.claim(EpochMillis(61_000)).unwrap();
        permission.refused(EpochMillis(62_000));
        drop(trial);
        assert!(!runs(&permission, 121_999));
        let trial = permission.claim(EpochMillis(122_000)).unwrap();
        permission.granted();
        drop(trial);
        assert!(!permission.is_refused());
    }

    #[test]
    fn a_clock_that_was_put_back_by_an_hour_delays_no_trial_by_it() {
        let permission = Permission::default();
        permission.refused(EpochMillis(3_601_000));
        let runs = |ms| runs(&permission, ms);
        assert!(runs(1_000));
        assert!(!runs(1_000) && !runs(60_999));
        assert!(runs(61_000));
        // One that was put back by a minute or less does delay it.
        let permission = Permission::default();
        permission.refused(EpochMillis(121_000));
        assert!(!self::runs(&permission, 61_000));
        assert!(self::runs(&permission, 60_999));
    }
}
