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
