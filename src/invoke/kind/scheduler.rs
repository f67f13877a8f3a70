//! Finds the token of an event of EventBridge Scheduler: the schedule and its time.

use serde::Deserialize;

use super::error::KindError;
use crate::protocol::fingerprint::Fingerprint;

#[derive(Deserialize)]
struct Input {
    schedule_arn: String,
    scheduled_time: String,
}

/// Makes the token of a schedule's input. A hash, since an ARN and a time may be longer than a
/// token.
pub(super) fn token(input: &str) -> Result<String, KindError> {
    let Input {
        schedule_arn,
        scheduled_time,
    } = serde_json::from_str(input).map_err(|_| KindError::Scheduler)?;
    let parts = [schedule_arn.as_str(), scheduled_time.as_str()];
    if parts.iter().any(|part| part.trim_start().starts_with('<')) {
        return Err(KindError::SchedulerPlaceholder);
    }
    if schedule_arn.is_empty() || scheduled_time.trim().is_empty() {
        return Err(KindError::Scheduler);
    }
    if !schedule_arn.starts_with("arn:") {
        return Err(KindError::SchedulerArn);
    }
    let identity = Fingerprint::of(&parts).map_err(|_| KindError::Scheduler)?;
    Ok(identity.as_str().to_owned())
}
