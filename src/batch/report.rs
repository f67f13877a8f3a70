//! Gives each message its fate, and a reported one its reason, which is logged without the message's
//! content.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use tokio::time::Instant;

use crate::batch::Source;
use crate::batch::source::BodyError;
use crate::engine::error::{Error, Obstacle};
use crate::engine::rejection::Rejection;
use crate::protocol::causes;
use crate::protocol::record::Failure;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

/// The reason why a message is reported. It neither holds nor shows anything of its body, its token or
/// its outcome.
#[derive(Debug)]
pub(super) enum Reason {
    /// The message has not run yet: unless it does, it is delivered again.
    NotRun,
    /// The invocation's time was nearly over.
    OutOfTime,
    /// An earlier message of its group was reported.
    GroupStopped,
    /// The message has no body, or one that can't be read.
    NoBody(BodyError),
    /// The body is not in the declared envelope.
    Envelope(&'static str),
    /// The payload that the body points to was not fetched, for this reason.
    NotFetched(String),
    /// The body doesn't decode, for this reason.
    Undecodable(String),
    Panicked,
    /// The handler was ended: shortly before the invocation's deadline, or with its lease.
    TimedOut,
    /// The store is not set up as it is configured, or the function lacks a permission.
    Misconfigured {
        code: &'static str,
        detail: String,
    },
    /// The message in this position, before it in the batch, has the same key and another body, and its
    /// key has no outcome yet: this message, delivered again, may be the one that gets it.
    Mismatch {
        leader: usize,
    },
    /// A message before it in the batch is the same request, and was reported.
    Leader,
    /// The engine or the handler ended the run without success: the engine's code, and a detail.
    Run {
        code: &'static str,
        detail: String,
        rejection: Option<Rejection>,
        /// The time at which the lease of the attempt that is in flight ends.
        free_at: Option<Instant>,
    },
}

impl Reason {
    /// Makes the reason of the parser's error. Its message is taken where `quotes` allows it, because it
    /// quotes the body.
    pub(super) fn undecodable(error: &serde_json::Error, quotes: bool) -> Self {
        Self::Undecodable(causes::of_parser(error, quotes))
    }

    /// Makes the reason of the handler's own error. The error's text may quote the message, so its
    /// type names it, unless `quotes` allows the text.
    pub(super) fn of_error<E: fmt::Display + 'static>(
        error: &E,
        is_permanent: bool,
        quotes: bool,
    ) -> Self {
        Self::Run {
            code: Error::Handler(()).code(),
            detail: of_failure(Failure::of(error), quotes),
            rejection: is_permanent.then_some(Rejection::Failed),
            free_at: None,
        }
    }

    /// Makes the reason of an obstacle. The text of an earlier failure is taken where `quotes` allows
    /// it.
    pub(super) fn of_obstacle(obstacle: &Obstacle, quotes: bool) -> Self {
        if obstacle.is_misconfigured() {
            return Self::Misconfigured {
                code: obstacle.code(),
                detail: obstacle.to_string(),
            };
        }
        let detail = match obstacle {
            Error::Failed(failure) => of_failure(failure.clone(), quotes),
            other => other.to_string(),
        };
        Self::Run {
            code: obstacle.code(),
            detail,
            rejection: Rejection::of(obstacle),
            free_at: match obstacle {
                // A lease may be stored that is longer than the clock's range.
                Error::InFlight { lease, .. } => Instant::now().checked_add(*lease),
                _ => None,
            },
        }
    }

    /// Returns the instant when the lease of the attempt that is in flight ends.
    pub(super) fn free_at(&self) -> Option<Instant> {
        match self {
            Self::Run { free_at, .. } => *free_at,
            _ => None,
        }
    }

    /// Returns why no retry will fix the message; `None` where a retry may, or where an operator must
    /// look.
    pub(super) fn rejection(&self) -> Option<Rejection> {
        match self {
            Self::NoBody(error) if error.is_passing() => None,
            Self::NoBody(_) | Self::Envelope(_) | Self::Undecodable(_) => {
                Some(Rejection::Undecodable)
            }
            Self::Run { rejection, .. } => *rejection,
            Self::Mismatch { .. }
            | Self::NotRun
            | Self::OutOfTime
            | Self::GroupStopped
            | Self::Panicked
            | Self::TimedOut
            | Self::NotFetched(_)
            | Self::Misconfigured { .. }
            | Self::Leader => None,
        }
    }

    /// Returns the code, one of a small fixed set that is shared with [`Error::code`], and the detail
    /// for people.
    pub(super) fn words(&self) -> (&'static str, Cow<'_, str>) {
        let (code, detail) = match self {
            Self::NotRun => ("not_run", "the message did not run"),
            Self::OutOfTime => ("out_of_time", "the invocation's time was nearly over"),
            Self::GroupStopped => (
                "group_stopped",
                "an earlier message of its group was reported",
            ),
            Self::NoBody(error) => {
                let code = if error.is_passing() {
                    "not_run"
                } else {
                    "no_body"
                };
                return (code, error.to_string().into());
            }
            Self::Envelope(why) => ("bad_envelope", *why),
            Self::NotFetched(detail) => ("not_fetched", detail.as_str()),
            Self::Undecodable(why) => return ("undecodable_body", undecodable(why).into()),
            Self::Panicked => (
                "panicked",
                "the handler panicked, or what reads the message",
            ),
            Self::TimedOut => (
                "timed_out",
                "the handler was ended before it was done: its time was over, or its lease could not be renewed",
            ),
            Self::Mismatch { .. } => (
                "mismatch",
                "another message of this batch has the same idempotency key, and asks for something else",
            ),
            Self::Leader => (
                "duplicate_of_reported",
                "another message of this batch is the same request, and was reported itself",
            ),
            Self::Misconfigured { code, detail } | Self::Run { code, detail, .. } => {
                (*code, detail.as_str())
            }
        };
        (code, detail.into())
    }

    /// Logs one event for a message that is reported.
    pub(super) fn log(&self, source: &str, message_id: &str) {
        let event = "reported";
        let (reason, detail) = self.words();
        // Another attempt is at work on it, which is no mistake.
        if reason == "in_flight" {
            tracing::info!(event, reason, message_id, %detail, source, "batch");
        } else {
            tracing::warn!(event, reason, message_id, %detail, source, "batch");
        }
    }
}

/// Names what failed: by the error's text where `quotes` allows it, else by its type.
fn of_failure(failure: Failure, quotes: bool) -> String {
    if quotes {
        failure.message
    } else {
        failure.kind
    }
}

fn undecodable(why: &str) -> String {
    format!("the body doesn't decode: {why}{}", see!("undecodable"))
}

/// Logs the counts of a batch in which a message was rejected or reported.
pub(super) fn log_batch(source: &str, messages: usize, rejected: usize, reported: usize) {
    if rejected + reported > 0 {
        let event = "batch";
        tracing::info!(event, messages, rejected, reported, source, "batch");
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().1)
    }
}

/// The end of a message, or what it depends on.
#[derive(Debug)]
pub(super) enum Fate {
    /// Its work is done: the source may delete it.
    Done,
    /// It is the same request as the message in this position, and shares the fate of that one.
    Follows(usize),
    /// The source must deliver it again.
    Reported(Reason),
}

impl Fate {
    /// Returns whether the message has ended for good: it is done, or no retry will fix it.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Done => true,
            Self::Follows(_) => false,
            Self::Reported(reason) => reason.rejection().is_some(),
        }
    }
}

/// Lists the messages that differ from one that has ended for good meanwhile.
pub(super) fn differing(fates: &[Fate]) -> Vec<usize> {
    let is_ready = |fate: &Fate| match fate {
        Fate::Reported(Reason::Mismatch { leader }) => {
            fates.get(*leader).is_some_and(Fate::is_final)
        }
        _ => false,
    };
    let ready = fates.iter().enumerate().filter(|(_, fate)| is_ready(fate));
    ready.map(|(position, _)| position).collect()
}

/// Makes the fates before any message has run: all are reported until they are known to be done.
pub(super) fn unknown(messages: usize) -> Vec<Fate> {
    std::iter::repeat_with(|| Fate::Reported(Reason::NotRun))
        .take(messages)
        .collect()
}

/// Takes the id of each message; an error is the position of the first message that has none.
pub(super) fn ids<S: Source>(messages: &[S::Record]) -> Result<Vec<String>, usize> {
    let id = |(position, message)| match S::id(message) {
        Some(id) if !id.is_empty() => Ok(id.to_owned()),
        _ => Err(position),
    };
    messages.iter().enumerate().map(id).collect()
}

/// Lists the messages that are delivered again, each with its reason, in the order of the batch.
pub(super) fn reported<'a>(
    ids: &'a [String],
    fates: &'a [Fate],
) -> impl Iterator<Item = (&'a str, &'a Reason)> {
    let reason = |fate| match fate {
        &Fate::Done => None,
        Fate::Reported(reason) => Some(reason),
        Fate::Follows(leader) => match fates.get(*leader) {
            Some(Fate::Done) => None,
            _ => Some(&Reason::Leader),
        },
    };
    ids.iter()
        .zip(fates)
        .filter_map(move |(id, fate)| Some((id.as_str(), reason(fate)?)))
}

/// Returns what is wrong with the store, its permissions or the layer, where that kept every message of
/// the batch from being done.
pub(super) fn misconfigured(fates: &[Fate]) -> Option<String> {
    if fates.iter().any(|fate| matches!(fate, Fate::Done)) {
        return None;
    }
    fates.iter().find_map(|fate| match fate {
        Fate::Reported(Reason::Misconfigured { detail, .. }) => Some(detail.clone()),
        _ => None,
    })
}

/// Keeps each id once, in the order given.
pub(super) fn distinct<'a>(ids: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut seen = HashSet::new();
    let ids = ids.into_iter().filter(|id| seen.insert(*id));
    ids.map(str::to_owned).collect()
}
