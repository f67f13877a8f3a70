//! Why a message goes back to its queue, and saying so without quoting it.

use std::fmt;

use serde_json::error::Category;

use crate::error::Error;
use crate::key::KeyError;
use crate::record::error_kind;

/// Why a message is reported as failed. Neither holds nor shows anything of its body, its token or its outcome.
#[derive(Debug)]
pub(super) enum Reason {
    /// Where every message stands before it has run: what isn't known to be done comes again.
    NotRun,
    /// The invocation's time was nearly over.
    OutOfTime,
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
    /// A message before it in the batch has the same key and another body.
    Mismatch,
    /// A message before it in the batch is the same request, and was reported.
    Leader,
    /// The engine's word for it, and what may be said beyond.
    Run {
        code: &'static str,
        detail: String,
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

    pub(super) fn of_run<E: fmt::Display>(error: &Error<E>) -> Self {
        let detail = match error {
            // The handler's words may quote the message; its type tells where to look.
            Error::Handler(_) => error_kind::<E>().to_owned(),
            Error::Failed(failure) => failure.kind.clone(),
            other => other.to_string(),
        };
        Self::Run {
            code: error.code(),
            detail,
        }
    }

    /// One of a small fixed set, shared with [`Error::code`].
    fn code(&self) -> &'static str {
        match self {
            Self::NotRun => "not_run",
            Self::OutOfTime => "out_of_time",
            Self::GroupStopped => "group_stopped",
            Self::NoBody => "no_body",
            Self::Undecodable { .. } => "undecodable_body",
            Self::Panicked => "panicked",
            Self::Key(_) => "invalid_key",
            Self::Mismatch => "mismatch",
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRun => f.write_str("the message did not run"),
            Self::OutOfTime => f.write_str("the invocation's time was nearly over"),
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
            Self::Mismatch => f.write_str(
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
        let said = Reason::of_run(&error).to_string();
        assert!(said.contains("io::error::Error"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
