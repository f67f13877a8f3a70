//! What came of a step's effect, on its way to the journal and back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::journal::{MAX_STEP_RESULT_BYTES, StepResult};
use crate::record::Omission;
use crate::step::StepError;

pub(super) fn keep<T: Serialize>(value: &T) -> StepResult {
    // The value's own code runs here. If it panics, the effect has happened all the same.
    match catch_unwind(AssertUnwindSafe(|| serde_json::to_string(value))) {
        Ok(Ok(text)) if text.len() <= MAX_STEP_RESULT_BYTES => StepResult::Text(text),
        Ok(Ok(_)) => StepResult::Omitted(Omission::TooLarge),
        Ok(Err(_)) | Err(_) => StepResult::Omitted(Omission::NotSerializable),
    }
}

/// The parser's own message may quote the result; where it failed is enough to find out why.
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
