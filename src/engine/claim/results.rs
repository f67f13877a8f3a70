//! Encodes the result of a step for the journal, and decodes it again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::step::StepError;
use crate::protocol::journal::{MAX_STEP_RESULT_BYTES, StepResult};
use crate::protocol::record::Omission;

/// Writes a value as JSON text. A panic of the value's own code is caught: the work that the value
/// came of has happened all the same.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String, Omission> {
    match catch_unwind(AssertUnwindSafe(|| serde_json::to_string(value))) {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(_)) | Err(_) => Err(Omission::NotSerializable),
    }
}

pub(super) fn keep<T: Serialize>(value: &T) -> StepResult {
    match to_json(value) {
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
            let wanted = std::any::type_name::<T>();
            let reason = format!(
                "it no longer decodes as {wanted} (column {})",
                error.column()
            );
            StepError::Unreadable { step, reason }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_the_largest_size_is_kept_and_one_more_byte_is_too_many() {
        // A text has two quotes around it in JSON.
        let text = |bytes: usize| "x".repeat(bytes - 2);
        assert!(matches!(
            keep(&text(MAX_STEP_RESULT_BYTES)),
            StepResult::Text(_)
        ));
        assert_eq!(
            keep(&text(MAX_STEP_RESULT_BYTES + 1)),
            StepResult::Omitted(Omission::TooLarge)
        );
    }
}
