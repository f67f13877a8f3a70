//! The error of an invocation that gave no answer, the word that a caller matches it by, and its log
//! event.

use std::convert::Infallible;
use std::fmt;

use lambda_runtime::Diagnostic;

use crate::engine::error::Error;
use crate::engine::rejection::Rejection;

#[cfg(test)]
mod tests;

/// Says why an invocation gave no answer. `E` is the handler's own error.
///
/// Lambda's caller gets it as `errorType` and `errorMessage`. The handler's own error keeps the
/// type that its conversion to a `Diagnostic` gives it; each of the others has a stable word,
/// [`error_type`](Self::error_type), which `Retry` and `Catch` of a Step Functions state can match
/// in `ErrorEquals`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InvokeError<E> {
    /// The handler failed. Its claim was released, or the failure stored where it is
    /// [permanent](super::InvokeLayer::permanent).
    #[error("the handler failed: {0}")]
    Handler(E),
    /// The engine's own reason; [`Error`] says what each means.
    #[error(transparent)]
    Obstacle(Error<Infallible>),
    /// The event is not one of the source that the layer was made for, or lacks what the source
    /// must be set up to send. Nothing ran.
    #[error("{reason}{}", see!("wrong-event"))]
    WrongEvent {
        /// The reason says what the event lacks, without quoting it.
        reason: String,
    },
    /// The payload doesn't decode as the handler's type, or the key's JMESPath expression can't read
    /// it. Nothing ran.
    #[error("the payload doesn't decode: {reason}{}", see!("undecodable"))]
    Undecodable {
        /// The field that it lacks, or the kind of error, and the place; the payload is not quoted
        /// unless [`log_errors`](crate::Settings::log_errors) is set.
        reason: String,
    },
    /// The layer was given no key. Nothing ran. A hash of the payload would be unsafe as a default:
    /// two equal payments are two payments.
    #[error(
        "the layer has no idempotency key: call `.key(…)`, `.key_from(…)` or `.raw_id(…)` with an identity of the work, such as a payment id{}", see!("no-key")
    )]
    NoKey,
    /// The handler panicked. Its claim was released, unless crashed attempts wait for an operator
    /// ([`OnCrash`](crate::OnCrash)). If a closure of the layer or the decoder panicked instead,
    /// nothing ran.
    #[error("the handler panicked, or what reads the event{}", see!("panicked"))]
    Panicked,
}

/// Is the text, since `lambda_runtime` logs the `Debug` of what an invocation failed with. A stored
/// failure's text may quote the payload, and stays out of the log.
impl<E: fmt::Debug + fmt::Display> fmt::Debug for InvokeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(error) => f.debug_tuple("Handler").field(error).finish(),
            Self::Obstacle(obstacle) => fmt::Debug::fmt(obstacle, f),
            other => fmt::Display::fmt(other, f),
        }
    }
}

impl<E> InvokeError<E> {
    /// Returns the word that the caller gets as `errorType`; `None` for the handler's own error.
    /// [The module](super#errors) lists the words.
    pub fn error_type(&self) -> Option<&'static str> {
        Some(match self {
            Self::Handler(_) => return None,
            Self::Obstacle(obstacle) => obstacle.kind().facts().2,
            Self::WrongEvent { .. } => "Idempotency.WrongEvent",
            Self::Undecodable { .. } => "Idempotency.Undecodable",
            Self::NoKey => "Idempotency.Misconfigured",
            Self::Panicked => "Idempotency.Panicked",
        })
    }
}

impl<E> From<Error<Infallible>> for InvokeError<E> {
    fn from(obstacle: Error<Infallible>) -> Self {
        Self::Obstacle(obstacle)
    }
}

impl<E: Into<Diagnostic>> From<InvokeError<E>> for Diagnostic {
    fn from(error: InvokeError<E>) -> Self {
        let word = error.error_type().unwrap_or_default();
        let error_message = match error {
            InvokeError::Handler(error) => return error.into(),
            InvokeError::Obstacle(obstacle) => obstacle.to_string(),
            InvokeError::WrongEvent { reason } => said(&InvokeError::WrongEvent { reason }),
            InvokeError::Undecodable { reason } => said(&InvokeError::Undecodable { reason }),
            InvokeError::NoKey => said(&InvokeError::NoKey),
            InvokeError::Panicked => said(&InvokeError::Panicked),
        };
        Self {
            error_type: word.to_owned(),
            error_message,
        }
    }
}

/// Returns the text of an error that is not the handler's, whose type need have no `Display`.
fn said(error: &InvokeError<std::convert::Infallible>) -> String {
    error.to_string()
}

/// Logs an error of the layer's own. The engine logs its own, and the runtime the handler's.
pub(super) fn log<E>(error: &InvokeError<E>) {
    let event = "reported";
    let Some(reason) = error.error_type() else {
        return;
    };
    match error {
        InvokeError::Obstacle(obstacle) if !matches!(obstacle, Error::Key(_)) => {}
        error => {
            let detail = detail(error);
            tracing::warn!(event, reason, %detail, "invoke");
        }
    }
}

/// Logs an event that the hook answered. The text of an earlier failure, which may quote the event, is
/// taken where `quotes` allows it.
pub(super) fn rejected<E>(error: &InvokeError<E>, why: Rejection, quotes: bool) {
    let (event, rejection) = ("rejected", why.as_str());
    let reason = error.error_type();
    let detail = match error {
        InvokeError::Obstacle(Error::Failed(failure)) if !quotes => failure.kind.clone(),
        error => detail(error),
    };
    tracing::warn!(event, rejection, reason, %detail, "invoke");
}

/// Returns the text of an error that is not the handler's.
fn detail<E>(error: &InvokeError<E>) -> String {
    match error {
        InvokeError::Handler(_) => String::new(),
        InvokeError::Obstacle(obstacle) => obstacle.to_string(),
        InvokeError::WrongEvent { reason } | InvokeError::Undecodable { reason } => reason.clone(),
        InvokeError::NoKey => InvokeError::<&str>::NoKey.to_string(),
        InvokeError::Panicked => InvokeError::<&str>::Panicked.to_string(),
    }
}
