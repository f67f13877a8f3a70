//! The failures of commands.

use std::error::Error;
use std::path::Path;
use std::time::Duration;
use std::{io, iter};

use lambda_idempotency::dynamodb::DynamoDbError;
use lambda_idempotency::{KeyError, StoreError};
pub(crate) use lambda_idempotency_audit::words;

use crate::exit::Exit;
use crate::time::length;

/// A failure, in words that say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The command can't be applied, as its words say.
    #[error("{0}")]
    Usage(String),
    /// The record is no longer what it was when it was looked at.
    #[error("{0}")]
    Moved(String),
    /// The store of the records failed.
    #[error("{}", to_operator(.0))]
    Store(#[from] StoreError),
    /// Another service failed, or one that a store stands on.
    #[error("{doing}: {reason}")]
    Service {
        /// The action that failed, such as "read the queue's attributes".
        doing: String,
        /// The service's answer.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        error: io::Error,
    },
    /// The report could not be printed.
    #[error("the standard output: {0}")]
    Output(io::Error),
    /// The record was written, and the report of it could not be printed.
    #[error("the record was written, but not all of the report: the standard output: {0}")]
    Written(io::Error),
    /// The reader of the output went away.
    #[error("the reader of the output went away")]
    BrokenPipe,
}

/// Words a failure of the store for an operator: the store's own words are for a function.
fn to_operator(error: &StoreError) -> String {
    let mut sources = iter::successors(error.source(), |error| (*error).source());
    let dynamodb = sources.find_map(|error| error.downcast_ref::<DynamoDbError>());
    match (error, dynamodb) {
        (StoreError::TooLarge, _) => {
            "the record would be larger than the store takes: of a large outcome, store a reference to it".to_owned()
        }
        (_, Some(refused @ DynamoDbError::AccessDenied { .. })) => refused.to_string(),
        (_, Some(DynamoDbError::TableNotFound { table })) => missing(table),
        _ => error.to_string(),
    }
}

/// The words for a table that isn't there.
pub(crate) fn missing(table: &str) -> String {
    format!("the table `{table}` is not there: look at --table, --region and --profile")
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl Failure {
    /// A usage failure with these words.
    pub fn usage(words: impl Into<String>) -> Self {
        Self::Usage(words.into())
    }

    /// The same failure, of a command that had written a record before.
    pub(crate) fn written(self) -> Self {
        match self {
            Self::Output(error) => Self::Written(error),
            Self::BrokenPipe => Self::Written(io::ErrorKind::BrokenPipe.into()),
            other => other,
        }
    }

    /// The same failure, of a command that stops before all is done.
    pub(crate) fn stopped(self) -> Self {
        match self {
            Self::BrokenPipe => Self::Output(io::ErrorKind::BrokenPipe.into()),
            other => other,
        }
    }

    /// A failure of another service, with the innermost words of its error.
    pub fn service(doing: impl Into<String>, error: &dyn Error) -> Self {
        Self::Service {
            doing: doing.into(),
            reason: words(error),
        }
    }

    /// A failure of a service that gave no answer in this time.
    pub(crate) fn no_answer(doing: &str, time: Duration) -> Self {
        Self::Service {
            doing: doing.to_owned(),
            reason: format!("no answer within {}", length(time)),
        }
    }

    /// A failure to read or write a file.
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File {
            path: path.display().to_string(),
            error,
        }
    }

    /// The exit code of this failure.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::File { .. } => Exit::Usage,
            Self::Moved(_) => Exit::Moved,
            Self::Store(_) | Self::Service { .. } | Self::Output(_) | Self::Written(_) => {
                Exit::Store
            }
            Self::BrokenPipe => Exit::Fine,
        }
    }
}
