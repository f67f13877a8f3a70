//! Finds the token of a task of Step Functions: the execution, the state, and where it is in a loop.

use serde::Deserialize;
use serde_json::Value;

use super::error::KindError;
use crate::protocol::fingerprint::Fingerprint;

#[derive(Deserialize)]
struct Payload {
    idempotency: Place,
}

#[derive(Deserialize)]
struct Place {
    execution: String,
    state: String,
    #[serde(default)]
    index: Value,
    #[serde(default)]
    iteration: Value,
}

/// Makes the token of a task's payload. A hash, since the parts may be longer than a token.
pub(super) fn token(payload: &str) -> Result<String, KindError> {
    let Payload { idempotency: place } =
        serde_json::from_str(payload).map_err(|_| KindError::StepFunctions)?;
    let texts = [
        Some(place.execution.clone()),
        Some(place.state.clone()),
        part(place.index)?,
        part(place.iteration)?,
    ];
    let is_path = |text: &String| text.starts_with('$') || text.starts_with("{%");
    if texts.iter().flatten().any(is_path) {
        return Err(KindError::StepFunctionsPath);
    }
    if place.execution.is_empty() || place.state.is_empty() {
        return Err(KindError::StepFunctions);
    }
    if !place.execution.starts_with("arn:") {
        return Err(KindError::StepFunctionsArn);
    }
    let identity = Fingerprint::of(&texts).map_err(|_| KindError::StepFunctions)?;
    Ok(identity.as_str().to_owned())
}

/// Reads a position: `7` and `"7"` are the same.
fn part(value: Value) -> Result<Option<String>, KindError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(KindError::StepFunctionsPart),
    }
}
