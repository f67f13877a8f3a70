//! Ends a record in an operator's name: by one conditional write, over exactly what was seen.

use std::time::Duration;

use lambda_idempotency::protocol::journal::{SAGA, SagaState, StepEntry, StepState, UNDO};
use lambda_idempotency::protocol::packed::LargeOutcome;
use lambda_idempotency::protocol::record::{
    Ended, Found, INTERRUPTED_STEP, Intervention, Omission, Owner, Record, RecordWrite, Status,
    StoredOutcome,
};
use lambda_idempotency::protocol::transition;
use lambda_idempotency::store::{Answer, DynStore};
use lambda_idempotency::{EpochMillis, EpochSeconds, RecordId, SagaStatus, StoreError};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::records::acts::{Act, GivenBack, Kept, acts, note};
use crate::time;

/// The end that an order gives a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The key is given back: the next delivery runs.
    Released,
    /// This outcome is stored, until `expiration`.
    Final {
        /// [`Status::Completed`] or [`Status::Failed`].
        status: Status,
        /// The outcome.
        outcome: StoredOutcome,
        /// The time from which the record counts as absent.
        expiration: EpochSeconds,
    },
    /// A step that was pending is confirmed or failed, and the key is given back.
    StepSettled {
        /// The name of the step.
        step: String,
        /// The state that it gets.
        state: StepState,
    },
    /// The outcome and the results of steps are erased. The record stays final.
    Redacted,
    /// The key of a final record is given back, on purpose: the next delivery is its next attempt.
    RunAgain {
        /// Whether its steps fire again, too.
        repeats_steps: bool,
        /// Whether its attempts derive other keys from now on.
        renews_keys: bool,
    },
}

impl Ending {
    /// Returns how a rerun gives the key of this record back.
    pub fn given(&self, record: &Record) -> Option<GivenBack> {
        let Self::RunAgain {
            repeats_steps,
            renews_keys,
        } = *self
        else {
            return None;
        };
        Some(GivenBack {
            attempt: record.attempt,
            new_keys: renews_keys,
            repeats_steps,
        })
    }

    /// Returns whether the record is what this ending makes of one.
    fn is_reached(&self, record: &Record) -> bool {
        match self {
            Self::Released => record.is_released(),
            Self::Final {
                status, outcome, ..
            } => record.status == *status && record.outcome.as_ref() == Some(outcome),
            Self::StepSettled { step, state } => {
                let entry = record.journal.get(step);
                entry.is_some_and(|entry| entry.state == *state)
            }
            Self::Redacted => is_redacted(record),
            // By what the acts say of it.
            Self::RunAgain { .. } => false,
        }
    }
}

/// An operator's act on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The end of the record.
    pub ending: Ending,
    /// The act that is noted.
    pub act: Act,
}

impl Order {
    /// The act by which this very order was carried out before, where it was: the command was given
    /// again, perhaps because it got no answer, perhaps by a colleague who goes on with it.
    ///
    /// # Errors
    ///
    /// The words of why it is refused: an earlier act stands in its way.
    pub(crate) fn carried_out(&self, record: &Record) -> Result<Option<Act>, String> {
        if let Some(asked) = self.ending.given(record) {
            return self.run_again_before(record, asked);
        }
        let is_same = |act: &Act| (&act.act, &act.reason) == (&self.act.act, &self.act.reason);
        // Other acts may have come after it.
        let Some(before) = acts(&record.journal).into_iter().rfind(is_same) else {
            return Ok(None);
        };
        if self.ending.is_reached(record) {
            return Ok(Some(before));
        }
        let would_repeat = match &self.ending {
            Ending::Released => record.status != Status::Completed,
            Ending::StepSettled { step, .. } => {
                let state = record.journal.get(step).map(|entry| &entry.state);
                record.status == Status::InProgress && state == Some(&StepState::Pending)
            }
            _ => false,
        };
        if !would_repeat {
            return Ok(None);
        }
        // What was found out then says nothing of an attempt that has begun since.
        Err(format!(
            "for this reason it was done at {}, and the record has changed since: look at it again (`explain`); to do it once more, \
             give another reason",
            time::text(EpochMillis(before.at))
        ))
    }

    /// A rerun is carried out once for each reason, whatever became of the record since, and a record
    /// on which no attempt has left a trace since isn't given back once more, whatever the reason.
    fn run_again_before(&self, record: &Record, asked: GivenBack) -> Result<Option<Act>, String> {
        let mut acts = acts(&record.journal);
        acts.retain(|act| act.act == self.act.act);
        let of_the_reason = acts.iter().rfind(|act| act.reason == self.act.reason);
        let is_waiting = |act: &&Act| act.given.is_some_and(|how| how.waits(record));
        let waiting = acts.last().filter(is_waiting);
        let is_as_asked = |how: GivenBack| {
            (how.new_keys, how.repeats_steps) == (asked.new_keys, asked.repeats_steps)
        };
        let is_same = |act: &&Act| act.given.is_none_or(is_as_asked);
        let mut before = of_the_reason.into_iter().chain(waiting);
        if let Some(act) = before.find(is_same) {
            return Ok(Some(act.clone()));
        }
        let words = |act: &Act| {
            let at = time::text(EpochMillis(act.at));
            let how = act.given.map(|how| format!(" {how}")).unwrap_or_default();
            format!("it was given back at {at} by `rerun{how}`")
        };
        match (waiting, of_the_reason) {
            (Some(act), _) => {
                // Nothing has been done under what it asks in addition.
                let adds = |how: GivenBack| {
                    asked.new_keys >= how.new_keys && asked.repeats_steps >= how.repeats_steps
                };
                if act.given.is_some_and(adds) {
                    return Ok(None);
                }
                Err(format!(
                    "{}, and no attempt has left a trace since: new keys, and steps that fire again, can't be taken back. \
                     Wait until it has run, or end it by `complete` or `fail`",
                    words(act)
                ))
            }
            (None, Some(act)) => Err(format!(
                "for this reason {}: to have it run once more in another way, give another reason",
                words(act)
            )),
            (None, None) => Ok(None),
        }
    }
}

/// The shortest time for which a record that is to run again is kept.
const KEPT: Duration = Duration::from_hours(7 * 24);
/// The time by which the outcome's own item outlives the record.
const LATER: Duration = Duration::from_hours(1);
/// The most times that a request without an answer is sent.
const SENDS: u32 = 4;

/// Returns whether nothing is left of what the handler returned.
pub(crate) fn is_redacted(record: &Record) -> bool {
    let erased = StoredOutcome::Omitted(Omission::Redacted);
    record.outcome.as_ref() == Some(&erased) && results(record).next().is_none()
}

/// The steps of the handler, and a saga's state, which has the text of its failure.
fn steps_and_saga(record: &Record) -> impl Iterator<Item = (&str, &StepEntry)> {
    let saga = record.journal.get(SAGA).map(|entry| (SAGA, entry));
    handlers_steps(record).chain(saga)
}

/// Those of them that have a result.
pub(crate) fn results(record: &Record) -> impl Iterator<Item = (&str, &StepEntry)> {
    steps_and_saga(record).filter(|(_, entry)| matches!(entry.state, StepState::Confirmed(Ok(_))))
}

/// Returns the steps of the handler. An operator's act is none.
pub(crate) fn handlers_steps(record: &Record) -> impl Iterator<Item = (&str, &StepEntry)> {
    let steps = record.journal.iter();
    // No handler can give a step such a name.
    steps.filter(|(name, _)| !name.starts_with('@'))
}

/// Refuses a record whose next attempt would skip a step and get nothing for it: its result was
/// erased.
pub(crate) fn gives_results(record: &Record) -> Result<(), String> {
    let erased = StepState::Confirmed(Err(Omission::Redacted));
    let steps = handlers_steps(record).filter(|(_, entry)| entry.state == erased);
    let names: Vec<&str> = steps.map(|(name, _)| name).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the results of its steps {names:?} were erased by `redact`, so that an attempt which skips them gets none: \
         `rerun --steps repeat` fires them again"
    ))
}

/// Returns whether the record is of a saga that was undone.
pub(crate) fn is_compensated(record: &Record) -> bool {
    SagaStatus::of(record) == Some(SagaStatus::Compensated)
}

/// Returns whether the record is of a saga that is being undone, or waits for an operator: no delivery
/// would go on with it behind an outcome.
pub(crate) fn is_half_done(record: &Record) -> bool {
    let saga = SagaStatus::of(record);
    matches!(saga, Some(SagaStatus::Compensating | SagaStatus::Stuck))
}

/// Returns the steps that the record's saga is to undo; `None` where it goes forward, or its state was erased.
pub(crate) fn to_undo(record: &Record) -> Option<Vec<String>> {
    let state = SagaState::of(&record.journal)?;
    state.failure.map(|_| state.confirmed)
}

/// Returns whether the record is final, and its saga was ended before all was undone, or may have been: its
/// state was erased.
pub(crate) fn was_ended_half_done(record: &Record) -> bool {
    let is_final = record.status != Status::InProgress;
    let saga = SagaState::of(&record.journal).filter(|_| is_final && !is_compensated(record));
    saga.is_some_and(|state| state.is_erased || state.failure.is_some())
}

/// The steps that may wait for an operator: a handler that runs again meets them.
pub(crate) fn waiting_steps(record: &Record) -> Vec<&str> {
    // One was settled by an operator, and others may wait beside it.
    let waits = |error: &str| error == INTERRUPTED_STEP || error.starts_with("settle-step ");
    if !record.is_released() || !record.last_error.as_deref().is_some_and(waits) {
        return Vec::new();
    }
    pending_steps(record)
}

/// The steps that were under way when an attempt ended. A compensation counts only if its step is confirmed or
/// has no entry.
pub(crate) fn pending_steps(record: &Record) -> Vec<&str> {
    let is_done = |step: &str| {
        let entry = record.journal.get(step);
        entry.is_none_or(|entry| matches!(entry.state, StepState::Confirmed(_)))
    };
    let pending = handlers_steps(record).filter(|(name, entry)| {
        entry.state == StepState::Pending && name.strip_suffix(UNDO).is_none_or(is_done)
    });
    pending.map(|(name, _)| name).collect()
}

/// The write that carries an order out.
pub(crate) fn intervention(
    id: &RecordId,
    found: &Found,
    record: &Record,
    order: &Order,
    owner: Owner,
    now: EpochMillis,
) -> Intervention {
    let released = || Ended::Released {
        last_error: Some(format!("{} by an operator", order.act.act)),
    };
    // The record's knowledge of earlier attempts outlives the next one.
    let kept = record.expiration.max((now + KEPT).ceil_seconds());
    let (mut steps, mut act) = (Vec::new(), order.act.clone());
    let (end, expiration) = match &order.ending {
        Ending::Released => (released(), kept),
        Ending::Final {
            status,
            outcome,
            expiration,
        } => {
            let end = Ended::Final {
                status: *status,
                outcome: outcome.clone(),
                completed_at: now,
            };
            (end, record.expiration.max(*expiration))
        }
        Ending::StepSettled { step, state } => {
            let before = record.journal.get(step).cloned();
            let begun = before.unwrap_or_else(|| StepEntry::begun(None, now));
            steps.push((step.clone(), begun.ended(state.clone(), None, now)));
            (released(), kept)
        }
        Ending::Redacted => {
            let erased = StepState::Confirmed(Err(Omission::Redacted));
            let erase = |(name, entry): (&str, &StepEntry)| {
                let erased = entry.ended(erased.clone(), None, entry.at);
                (name.to_owned(), erased)
            };
            steps.extend(results(record).map(erase));
            let end = Ended::Final {
                status: record.status,
                outcome: StoredOutcome::Omitted(Omission::Redacted),
                completed_at: record.completed_at.unwrap_or(now),
            };
            (end, record.expiration)
        }
        Ending::RunAgain {
            repeats_steps,
            renews_keys,
        } => {
            // A saga begins anew. A pending step was not begun under its new key.
            let again = steps_and_saga(record).filter(|(_, entry)| match entry.state {
                StepState::Confirmed(_) => *repeats_steps,
                StepState::Pending => *repeats_steps && *renews_keys,
                _ => false,
            });
            let again = again.map(|(name, entry)| {
                let why = Some("rerun by an operator");
                let entry = entry.ended(StepState::Failed, why, now);
                (name.to_owned(), entry)
            });
            steps.extend(again);
            steps.extend(renews_keys.then(|| record.journal.next_keys(now)));
            act.given = order.ending.given(record);
            (released(), kept)
        }
    };
    if order.ending != Ending::Redacted {
        // The record names it no more.
        steps.extend(Kept::note(record, now));
    }
    steps.push(note(&record.journal, act, now));
    Intervention {
        id: id.clone(),
        seen: found.version.clone(),
        owner,
        expiration,
        steps: steps.into_iter().collect(),
        end,
    }
}

/// Returns the record that was found, or the failure that it can't be understood.
pub(crate) fn readable(found: &Found) -> Result<&Record, Failure> {
    found.content.as_deref().map_err(|reason| {
        Failure::usage(format!(
            "the record can't be understood, so it is left alone: {reason}"
        ))
    })
}

/// Carries an order out, over exactly the record that was seen, and returns the record that it left.
///
/// One write makes all changes, so that an end of this process in between leaves the record as it
/// was, or as it is to be. A large outcome is erased before that.
///
/// # Errors
///
/// [`Failure::Moved`] when the record is no longer what was seen: it was left alone. When the store
/// fails: the same command goes on from what the record is.
pub async fn carry_out(
    store: &dyn DynStore,
    id: &RecordId,
    found: &Found,
    order: &Order,
    now: EpochMillis,
    timeout: Duration,
) -> Result<Found, Failure> {
    let record = readable(found)?;
    let owner = Owner::random().map_err(|error| Failure::usage(error.to_string()))?;
    let mut erased = "";
    let failed = |error: StoreError, may_be_written: bool, erased: &str| {
        let is_final = !error.is_transient() && erased.is_empty();
        let error = Failure::from(error);
        let known = match (may_be_written, is_final) {
            (true, _) => "It isn't known whether it was written",
            (false, true) => return error,
            (false, false) => "The record was left alone",
        };
        Failure::Service {
            doing: format!("{} the record", order.act.act),
            reason: format!(
                "{error}. {known}{erased}: give the same command again, and it goes on from what the record is"
            ),
        }
    };
    if order.ending == Ending::Redacted {
        for kept in Kept::all(record).iter().filter_map(Kept::item) {
            let sent = erase(store, id, record, kept, timeout).await;
            if sent.as_ref().err().is_none_or(StoreError::may_have_applied) {
                erased = ", and a large outcome of it may be erased already";
            }
            sent.map_err(|error| failed(error, false, erased))?;
        }
    }
    let write = intervention(id, found, record, order, owner, now);
    let write = RecordWrite::Intervene(write);
    let answer = again(|| store.write(&write, Instant::now() + timeout)).await;
    let answer = answer.map_err(|error| {
        let may_be_written = error.may_have_applied();
        failed(error, may_be_written, erased)
    })?;
    let is_own = |met: &Found| met.version.owner.as_deref() == Some(write.owner().as_str());
    let has_act = |met: &Found| {
        let met = met.content.as_ref();
        met.is_ok_and(|met| acts(&met.journal).iter().any(|act| act.is_same(&order.act)))
    };
    match answer {
        // It applied, its answer was lost, and an attempt has taken the record over since.
        Answer::Refused(Some(met)) if has_act(&met) => Ok(met),
        Answer::Refused(met) if !met.as_ref().is_some_and(is_own) => Err(Failure::Moved(format!(
            "the record moved after it was looked at, and was left alone{erased}: explain it again"
        ))),
        // It applied, or an earlier send of it had: nobody else has its owner.
        Answer::Refused(Some(met)) => Ok(met),
        _ => Ok(transition(Some(record), &write).map_or_else(|| found.clone(), Found::readable)),
    }
}

/// Erases an outcome that is kept in its own item, under the name of this attempt.
async fn erase(
    store: &dyn DynStore,
    id: &RecordId,
    record: &Record,
    owner: Owner,
    timeout: Duration,
) -> Result<(), StoreError> {
    let expiration = (record.expiration.to_millis() + LATER).ceil_seconds();
    let nothing = LargeOutcome {
        id: id.clone(),
        owner,
        content: Vec::new(),
        expiration,
    };
    again(|| store.keep(&nothing, Instant::now() + timeout)).await?;
    Ok(())
}

/// Names what a redaction can't erase: outcomes that are kept in a bucket, and those that an earlier attempt
/// may have kept under a name that the record doesn't have.
pub(crate) fn left_by_redaction(
    id: &RecordId,
    record: &Record,
    is_in_dynamodb: bool,
) -> Option<String> {
    let kept = Kept::all(record);
    let objects = kept.iter().filter(|kept| kept.item().is_none());
    let names: Vec<_> = objects
        .map(|kept| format!("PREFIX{}/{}", id.hash(), kept.owner))
        .collect();
    let known = format!("in the bucket of outcomes: {}", names.join(", "));
    let possible = if is_in_dynamodb {
        format!(
            "of an earlier attempt, perhaps items whose ids begin with {}#outcome#, which expire an hour after the record, and \
             objects in the bucket of outcomes: PREFIX{}/…",
            id.as_str(),
            id.hash()
        )
    } else {
        "of an earlier attempt, perhaps an outcome beside the record, which expires an hour after it".to_owned()
    };
    // The record names those that an act has noted.
    let is_possible = (1..record.attempt).len() > Kept::before(record).len();
    let left = (!names.is_empty()).then_some(known).into_iter();
    let left: Vec<_> = left.chain(is_possible.then_some(possible)).collect();
    (!left.is_empty()).then(|| left.join("; "))
}

/// Sends a request, again where no answer comes. Its error tells whether any of the sends may have applied.
async fn again<T, F: Future<Output = Result<T, StoreError>>>(
    send: impl Fn() -> F,
) -> Result<T, StoreError> {
    let (mut sends, mut may_have_applied) = (0, false);
    loop {
        sends += 1;
        match send().await {
            Err(error) if error.is_transient() && sends < SENDS => {
                may_have_applied |= error.may_have_applied();
                tokio::time::sleep(Duration::from_millis(100 * u64::from(sends))).await;
            }
            Err(error) if may_have_applied && !error.may_have_applied() => {
                return Err(error.uncertain());
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests;
