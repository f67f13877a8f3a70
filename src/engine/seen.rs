//! What may be told of the record that a request met.

use crate::clock::EpochMillis;
use crate::record::Found;

/// Of the record that a request met last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) attempt: Option<u32>,
    /// How long ago it was completed, or else claimed.
    pub(crate) age_ms: Option<u64>,
    pub(crate) is_released: bool,
}

impl Seen {
    pub(crate) fn of(found: Option<&Found>, now: EpochMillis) -> Self {
        let Some(record) = found.and_then(|found| found.content.as_ref().ok()) else {
            return Self::default();
        };
        let age = |since: EpochMillis| now.saturating_since(since).as_millis().try_into().ok();
        Self {
            attempt: Some(record.attempt),
            age_ms: record.completed_at.or(record.started_at).and_then(age),
            is_released: record.is_released(),
        }
    }
}
