//! Logs the errors of the layer's own.

use super::error::InvokeError;
use crate::engine::error::{Error, Rejection};

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

/// Logs an event that the hook answered.
pub(super) fn rejected<E>(error: &InvokeError<E>, why: Rejection) {
    let (event, rejection) = ("rejected", why.as_str());
    let (reason, detail) = (error.error_type(), detail(error));
    tracing::warn!(event, rejection, reason, %detail, "invoke");
}

/// Gives the text of an error that is not the handler's.
fn detail<E>(error: &InvokeError<E>) -> String {
    match error {
        InvokeError::Handler(_) => String::new(),
        InvokeError::Obstacle(obstacle) => obstacle.to_string(),
        InvokeError::WrongEvent { reason } | InvokeError::Undecodable { reason } => reason.clone(),
        InvokeError::NoKey => InvokeError::<&str>::NoKey.to_string(),
        InvokeError::Panicked => InvokeError::<&str>::Panicked.to_string(),
    }
}
