//! Why a message goes back to its queue, and saying so without quoting it.

use std::fmt;

use serde_json::error::Category;
#[cfg(feature = "visibility")]
use tokio::time::Instant;

use crate::error::Error;
use crate::key::KeyError;
use crate::record::error_kind;
use crate::sqs::rejection::Rejection;

/// Why a message is reported as failed. Neither holds nor shows anything of its body, its token or its outcome.
#[derive(Debug)]
pub(super) enum Reason {
    /// Where every message stands before it has run: what isn't known to be done comes again.
    NotRun,
    /// The invocation's time was nearly over.
    OutOfTime,
    /// The time of the message's own claim was over before it could start.
    TooLate,
    /// An earlier message of its FIFO group was reported.
    GroupStopped,
    NoBody,
    Undecodable {
        category: Category,
        line: usize,
        column: usize,
    },
    Panicked,
    Key(KeyError),
    /// The message in this position, before it in the batch, has the same key and another body.
    Mismatch {
        leader: usize,
    },
    /// A message before it in the batch is the same request, and was reported.
    Leader,
    /// The engine's word for it, and what may be said beyond.
    Run {
        code: &'static str,
        detail: String,
        rejection: Option<Rejection>,
        /// When the lease of the attempt that is in flight ends.
        #[cfg(feature = "visibility")]
        free_at: Option<Instant>,
    },
}

impl Reason {
    /// Takes the place and the kind of the error, never the parser's message, which quotes what it met.
    pub(super) fn undecodable(error: &serde_json::Error) -> Self {
        Self::Undecodable {
            category: error.classify(),
            line: error.line(),
            column: error.column(),
        }
    }

    /// `permanent` where no retry will mend the handler's error.
    pub(super) fn of_run<E: fmt::Display>(error: &Error<E>, permanent: bool) -> Self {
        let rejection = match error {
            Error::Handler(_) if permanent => Some(Rejection::Failed),
            Error::Failed(_) => Some(Rejection::Failed),
            Error::Mismatch => Some(Rejection::Mismatch),
            Error::Key(error) => of_key(error),
            _ => None,
        };
        let detail = match error {
            // The handler's words may quote the message; its type tells where to look.
            Error::Handler(_) => error_kind::<E>().to_owned(),
            Error::Failed(failure) => failure.kind.clone(),
            other => other.to_string(),
        };
        Self::Run {
            code: error.code(),
            detail,
            rejection,
            #[cfg(feature = "visibility")]
            free_at: match error {
                // A lease may be stored that is longer than the clock's range.
                Error::InFlight { retry_after } => Instant::now().checked_add(*retry_after),
                _ => None,
            },
        }
    }

    /// When somebody may work on it again, where another attempt does so now.
    #[cfg(feature = "visibility")]
    pub(super) fn free_at(&self) -> Option<Instant> {
        match self {
            Self::Run { free_at, .. } => *free_at,
            _ => None,
        }
    }

    /// Why no retry will mend it; `None` where one may, or where a person must look.
    pub(super) fn rejection(&self) -> Option<Rejection> {
        match self {
            Self::NoBody | Self::Undecodable { .. } => Some(Rejection::Undecodable),
            Self::Key(error) => of_key(error),
            Self::Mismatch { .. } => Some(Rejection::Mismatch),
            Self::Run { rejection, .. } => *rejection,
            Self::NotRun
            | Self::OutOfTime
            | Self::TooLate
            | Self::GroupStopped
            | Self::Panicked
            | Self::Leader => None,
        }
    }

    /// One of a small fixed set, shared with [`Error::code`].
    fn code(&self) -> &'static str {
        match self {
            Self::NotRun => "not_run",
            Self::OutOfTime => "out_of_time",
            Self::TooLate => "too_late",
            Self::GroupStopped => "group_stopped",
            Self::NoBody => "no_body",
            Self::Undecodable { .. } => "undecodable_body",
            Self::Panicked => "panicked",
            Self::Key(_) => "invalid_key",
            Self::Mismatch { .. } => "mismatch",
            Self::Leader => "duplicate_of_reported",
            Self::Run { code, .. } => code,
        }
    }

    /// One event for each message that is reported.
    pub(super) fn log(&self, message_id: &str) {
        let (event, reason) = ("reported", self.code());
        // Somebody else is at work on it, which is nobody's mistake.
        if reason == "in_flight" {
            tracing::info!(event, reason, message_id, detail = %self, "sqs");
        } else {
            tracing::warn!(event, reason, message_id, detail = %self, "sqs");
        }
    }
}

/// What is wrong with the layer's settings is no message's fault.
fn of_key(error: &KeyError) -> Option<Rejection> {
    let settings = matches!(error, KeyError::EmptyOperation | KeyError::Namespace { .. });
    (!settings).then_some(Rejection::UnusableKey)
}

/// One event for each batch that was not simply done: counts, for those who count by logs.
pub(super) fn log_batch(messages: usize, rejected: usize, reported: usize) {
    if rejected + reported > 0 {
        let event = "batch";
        tracing::info!(event, messages, rejected, reported, "sqs");
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRun => f.write_str("the message did not run"),
            Self::OutOfTime => f.write_str("the invocation's time was nearly over"),
            Self::TooLate => f.write_str("the message waited until the time of its claim was over"),
            Self::GroupStopped => f.write_str("an earlier message of its FIFO group was reported"),
            Self::NoBody => f.write_str("the message has no body"),
            Self::Undecodable {
                category,
                line,
                column,
            } => write!(
                f,
                "the body doesn't decode: {category:?} error at line {line}, column {column}"
            ),
            Self::Panicked => f.write_str("the handler panicked"),
            Self::Key(error) => error.fmt(f),
            Self::Mismatch { .. } => f.write_str(
                "another message of this batch has the same idempotency key and another body",
            ),
            Self::Leader => f.write_str(
                "another message of this batch is the same request, and was reported itself",
            ),
            Self::Run { detail, .. } => f.write_str(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_does_not_decode_is_not_quoted() {
        let error = serde_json::from_str::<u8>(r#""hunter2""#).unwrap_err();
        assert!(error.to_string().contains("hunter2"), "the premise");
        let said = Reason::undecodable(&error).to_string();
        assert_eq!(
            said,
            "the body doesn't decode: Data error at line 1, column 9"
        );
    }

    #[test]
    fn a_handlers_error_is_named_by_its_type_alone() {
        let error = Error::Handler(std::io::Error::other("hunter2"));
        let said = Reason::of_run(&error, false).to_string();
        assert!(said.contains("io::error::Error"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
