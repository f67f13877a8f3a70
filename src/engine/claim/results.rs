//! Encodes outcomes and the results of steps, and decodes them again.

use std::any::type_name;
use std::fmt::Display;
use std::mem::discriminant;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::step::StepError;
use crate::protocol::digest::Digest;
use crate::protocol::journal::{MAX_STEP_RESULT_BYTES, StepResult};
use crate::protocol::json_error::unquoted;
use crate::protocol::record::Omission;

/// Writes a value as JSON text, for readers who take the text as it is. A panic of the value's own
/// code is caught: the work that the value came of has happened all the same.
#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String, Omission> {
    match catch_unwind(AssertUnwindSafe(|| serde_json::to_string(value))) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(_)) | Err(_) => Err(Omission::NotSerializable),
    }
}

/// Writes a value as JSON text that reads back as the same value.
pub(crate) fn to_faithful_json<T: Serialize + DeserializeOwned>(
    value: &T,
) -> Result<String, Omission> {
    faithful(value).map_err(|reason| {
        let wanted = type_name::<T>();
        tracing::warn!(event = "unfaithful", wanted, %reason, "idempotency");
        Omission::NotSerializable
    })
}

/// Writes a value as JSON text, and says what keeps it from being read back as the same value. No
/// reason quotes the value.
pub(crate) fn faithful<T: Serialize + DeserializeOwned>(value: &T) -> Result<String, String> {
    let compare = || {
        let unwritten = |error: serde_json::Error| format!("it has no JSON form: {}", kind(&error));
        let text = serde_json::to_string(value).map_err(unwritten)?;
        let back: T = serde_json::from_str(&text)
            .map_err(|error| format!("its JSON form does not decode: {}", unquoted(&error)))?;
        let (written, read) = (Digest::of(value), Digest::of(&back));
        // An untagged variant serialises as what it holds.
        if written == read && discriminant(value) == discriminant(&back) {
            return Ok(text);
        }
        Err(if written.is_some_and(Digest::is_lossy) {
            LOSSY.to_owned()
        } else {
            "its JSON form reads back as another value".to_owned()
        })
    };
    catch_unwind(AssertUnwindSafe(compare))
        .unwrap_or_else(|_| Err("its own code panicked".to_owned()))
}

/// The reason of a value whose JSON form belongs to another value, too.
pub(crate) const LOSSY: &str =
    "JSON has `null` for a number that is not finite, and for `Some` of what is `null`";

fn kind(error: &serde_json::Error) -> impl Display + use<> {
    format!("{:?} error", error.classify())
}

pub(super) fn keep<T: Serialize + DeserializeOwned>(value: &T) -> StepResult {
    match to_faithful_json(value) {
        Ok(text) if text.len() <= MAX_STEP_RESULT_BYTES => StepResult::Text(text),
        Ok(_) => StepResult::Omitted(Omission::TooLarge),
        Err(reason) => StepResult::Omitted(reason),
    }
}

/// Decodes a result. The error names the column alone: the parser's message may quote the result.
pub(super) fn give_back<T: DeserializeOwned, E>(
    step: String,
    result: StepResult,
) -> Result<T, StepError<E>> {
    match result {
        StepResult::Omitted(reason) => Err(StepError::ResultOmitted { step, reason }),
        StepResult::Text(text) => serde_json::from_str(&text).map_err(|error| {
            let wanted = type_name::<T>();
            let reason = format!(
                "it no longer decodes as {wanted} (column {})",
                error.column()
            );
            StepError::Unreadable { step, reason }
        }),
    }
}

#[cfg(test)]
mod tests;
