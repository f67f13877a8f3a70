//! A record, as an operator or a program reads it.

use std::fmt;

use lambda_idempotency::protocol::journal::{StepEntry, StepState};
use lambda_idempotency::protocol::record::{Found, Owner, Takeover};
use lambda_idempotency::protocol::{Asking, Decision, Rules, decide};
use lambda_idempotency::{EpochMillis, EpochSeconds, OnCrash, RecordId, SagaStatus};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::output::{ALARM, DIM, GOOD, HEADING, NL, Style, WARNING};
use crate::records::acts::{Act, acts};
use crate::records::operate::handlers_steps;
use crate::records::outcome::{Json, OutcomeView};
use crate::time;

/// The state of a record at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// An attempt runs, or died and its lease isn't over.
    InProgress,
    /// An attempt died: its lease is over.
    Stuck,
    /// The last attempt gave the key back.
    Released,
    /// Done.
    Completed,
    /// Failed permanently.
    Failed,
    /// Its retention is over: it counts as absent.
    Expired,
    /// It can't be understood.
    Unreadable,
}

impl State {
    /// The state of a record at this time, for clocks that differ by no more than the margin.
    pub(crate) fn of(found: &Found, now: EpochMillis, margin: std::time::Duration) -> Self {
        let rules = Rules {
            on_crash: OnCrash::Interrupt,
            max_attempts: None,
            skew_margin: margin,
        };
        let other = another(Some(found));
        match decide(Some(found), Asking::new(&other, None, now), &rules) {
            Decision::TakeOver {
                mode: Takeover::Fresh,
                ..
            } => Self::Expired,
            Decision::TakeOver { .. } => Self::Released,
            Decision::Replay(_) => Self::Completed,
            Decision::ReplayFailure(_) => Self::Failed,
            Decision::Interrupted { .. } => Self::Stuck,
            Decision::Unreadable(_) => Self::Unreadable,
            _ => Self::InProgress,
        }
    }

    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::InProgress => "in progress",
            Self::Stuck => "stuck",
            Self::Released => "released",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Unreadable => "unreadable",
        }
    }

    pub(crate) fn style(self) -> Style {
        match self {
            Self::Completed => GOOD,
            Self::InProgress | Self::Released => WARNING,
            Self::Stuck | Self::Failed | Self::Unreadable => ALARM,
            Self::Expired => DIM,
        }
    }
}

/// Another owner than the record's: the one of a delivery, which is a new attempt.
pub(crate) fn another(found: Option<&Found>) -> Owner {
    let owner = found.and_then(|found| found.version.owner.as_deref());
    Owner::from_stored(format!("not {}", owner.unwrap_or_default()))
}

/// A step of a record.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepView {
    /// Its name.
    pub name: String,
    /// `pending`, `confirmed` or `failed`.
    pub state: String,
    /// The number of times that its effect was begun.
    pub tries: u32,
    /// The time at which the entry was written.
    pub at: String,
    /// Its result, where it is confirmed and was kept.
    #[schemars(with = "Option<Value>")]
    pub result: Option<Json>,
    /// The type of the error that it last ended with.
    pub last_error: Option<String>,
}

impl StepView {
    fn of(name: &str, entry: &StepEntry) -> Self {
        let (state, result) = match &entry.state {
            StepState::Confirmed(Ok(text)) => {
                // A result that is no JSON is shown as a text.
                let quoted = || Json::of(&Value::String(text.clone()).to_string());
                ("confirmed", Json::of(text).or_else(quoted))
            }
            StepState::Confirmed(_) => ("confirmed", None),
            StepState::Failed => ("failed", None),
            _ => ("pending", None),
        };
        Self {
            name: name.to_owned(),
            state: state.to_owned(),
            tries: entry.tries,
            at: time::text(entry.at),
            result,
            last_error: entry.last_error.clone(),
        }
    }
}

/// A record. Times are RFC 3339, in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RecordView {
    /// The id, as the table has it.
    pub id: String,
    /// Its state now.
    pub state: State,
    /// The reason why it can't be understood, where it can't.
    pub unreadable: Option<String>,
    /// The number of attempts that the key has had.
    pub attempt: Option<u32>,
    /// The attempt that holds it, or held it last.
    pub owner: Option<String>,
    /// The time at which the last attempt claimed it.
    pub started_at: Option<String>,
    /// The time at which the lease ends, or ended.
    pub lease: Option<String>,
    /// The time at which its outcome was stored.
    pub completed_at: Option<String>,
    /// The time from the last attempt's claim until the outcome was stored, in milliseconds.
    pub duration_ms: Option<i64>,
    /// The time from which it counts as absent.
    pub expires_at: Option<String>,
    /// The type of the error that ended the last attempt, or the word for how it ended.
    pub last_error: Option<String>,
    /// The fingerprint of the payload.
    pub fingerprint: Option<String>,
    /// The outcome, where it has one.
    pub outcome: Option<OutcomeView>,
    /// The number of times that an operator gave it new derived keys; 0 for its first ones.
    pub key_generation: u32,
    /// The status of its saga, where it has one: `running`, `completed`, `compensating`, `compensated`,
    /// `failed`, `stuck`.
    pub saga: Option<&'static str>,
    /// Its steps, by name.
    pub steps: Vec<StepView>,
    /// The acts of operators on it, the oldest first.
    pub acts: Vec<Act>,
}

impl RecordView {
    /// Makes the view of a record at this time.
    pub(crate) fn of(
        id: &RecordId,
        found: &Found,
        now: EpochMillis,
        margin: std::time::Duration,
    ) -> Self {
        let record = found.content.as_deref().ok();
        let lease = record.filter(|record| !record.is_released());
        let lease = lease.and_then(|record| record.lease);
        let started = record.and_then(|record| record.started_at);
        let completed = record.and_then(|record| record.completed_at);
        let times = started.zip(completed);
        let fingerprint = record.and_then(|record| record.fingerprint.as_ref());
        let outcome = record.and_then(|record| record.outcome.as_ref());
        // One that can't be understood may expire, too.
        let expiration = found.version.expiration.map(EpochSeconds);
        let expiration = record.map(|record| record.expiration).or(expiration);
        let steps = record.into_iter().flat_map(handlers_steps);
        let steps = steps.map(|(name, entry)| StepView::of(name, entry));
        Self {
            id: id.as_str().to_owned(),
            state: State::of(found, now, margin),
            unreadable: found.content.as_ref().err().cloned(),
            attempt: record.map(|record| record.attempt),
            owner: found.version.owner.clone(),
            started_at: started.map(time::text),
            lease: lease.map(time::text),
            completed_at: completed.map(time::text),
            duration_ms: times.map(|(started, completed)| completed.0.saturating_sub(started.0)),
            expires_at: expiration.map(|at| time::text(at.to_millis())),
            last_error: record.and_then(|record| record.last_error.clone()),
            fingerprint: fingerprint.map(|fingerprint| fingerprint.as_str().to_owned()),
            outcome: outcome.map(OutcomeView::of),
            key_generation: record.map_or(0, |record| record.journal.key_generation()),
            saga: record.and_then(SagaStatus::of).map(SagaStatus::as_str),
            steps: steps.collect(),
            acts: record.map_or_else(Vec::new, |record| acts(&record.journal)),
        }
    }

    /// Leaves out what `redact` erases.
    pub(crate) fn leave_out_erased(&mut self) {
        let is_erased = |outcome: &mut OutcomeView| !matches!(outcome, OutcomeView::Omitted { .. });
        self.outcome.take_if(is_erased);
        for step in &mut self.steps {
            step.result = None;
        }
    }
}

impl fmt::Display for RecordView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = self.state.style();
        write!(f, "{HEADING}{}{HEADING:#}{NL}", self.id)?;
        write!(f, "  state        {style}{}{style:#}", self.state.word())?;
        let mut line = |name: &str, value: Option<&str>| match value {
            Some(value) => write!(f, "{NL}  {name:<12} {value}"),
            None => Ok(()),
        };
        line("unreadable", self.unreadable.as_deref())?;
        line(
            "attempt",
            self.attempt.map(|attempt| attempt.to_string()).as_deref(),
        )?;
        line("started", self.started_at.as_deref())?;
        line("lease until", self.lease.as_deref())?;
        line("completed", self.completed_at.as_deref())?;
        let took = self.duration_ms.map(|took| format!("{took} ms"));
        line("took", took.as_deref())?;
        line("expires", self.expires_at.as_deref())?;
        line("last error", self.last_error.as_deref())?;
        line("owner", self.owner.as_deref())?;
        line("fingerprint", self.fingerprint.as_deref())?;
        if self.key_generation > 0 {
            let keys = format!("the derived keys of generation {}", self.key_generation);
            line("keys", Some(&keys))?;
        }
        line("saga", self.saga)?;
        if let Some(outcome) = &self.outcome {
            write!(f, "{NL}  {:<12} {outcome}", "outcome")?;
        }
        for step in &self.steps {
            write!(
                f,
                "{NL}  step         {}: {}, {} tries, {}",
                step.name, step.state, step.tries, step.at
            )?;
            if let Some(result) = &step.result {
                write!(f, ", {result}")?;
            }
            if let Some(error) = &step.last_error {
                write!(f, ", {error}")?;
            }
        }
        for act in &self.acts {
            let at = time::text(EpochMillis(act.at));
            let how = act.given.map(|how| format!(" {how}"));
            write!(
                f,
                "{NL}  operator     {at} {}{} by {}: {}",
                act.act,
                how.unwrap_or_default(),
                act.by,
                act.reason
            )?;
            if let Some(left) = &act.left {
                write!(f, "{NL}  {:<12} {WARNING}{left}{WARNING:#}", "to delete")?;
            }
        }
        Ok(())
    }
}
