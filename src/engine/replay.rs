//! Replays the outcome that an earlier attempt left.

use std::time::SystemTime;

use serde::de::DeserializeOwned;

use crate::engine::error::{Error, Obstacle};
use crate::engine::events;
use crate::engine::{Engine, Request};
use crate::protocol::record::{Failure, Record, Status, StoredOutcome};

/// The attempt that a replayed outcome comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// The time when the request was first processed; `None` where the record doesn't have it
    /// (another library wrote it).
    pub processed_at: Option<SystemTime>,
    /// The attempt that processed it.
    pub attempt: u32,
}

/// The outcome of an earlier attempt, as its record keeps it.
#[derive(Debug)]
pub struct Replayed {
    request: Box<Request>,
    record: Box<Record>,
    /// The text of an outcome that the record has compressed.
    unpacked: Option<String>,
    /// A successor wrote it while this run's own work was done.
    is_successors: bool,
}

/// The text of an outcome that the request does not ask for.
const NOTHING: &str = "null";

impl Replayed {
    /// Returns the attempt that the outcome comes from.
    pub fn replay(&self) -> Replay {
        Replay {
            processed_at: self.record.completed_at.map(Into::into),
            attempt: self.record.attempt,
        }
    }

    /// Gives the outcome's JSON text.
    pub fn into_json(mut self) -> String {
        events::replayed(&self.request, &self.record);
        match (self.unpacked, self.record.outcome.take()) {
            (Some(text), _) | (None, Some(StoredOutcome::Inline(text))) => text,
            _ => NOTHING.to_owned(),
        }
    }

    /// Decodes the outcome.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] where it doesn't decode as `T`; [`Error::LeaseLost`] where this run's
    /// own work was done, too, and a successor's outcome doesn't decode.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Obstacle> {
        self.give(decode(self.json()))
    }

    /// Decodes the outcome in two steps: from JSON, and then by `from`.
    #[cfg(feature = "http")]
    pub(crate) fn decode_with<K: DeserializeOwned, T, F: std::fmt::Display>(
        &self,
        from: impl FnOnce(K) -> Result<T, F>,
    ) -> Result<T, Obstacle> {
        let kept = decode(self.json());
        self.give(
            kept.and_then(|kept| from(kept).map_err(|error| Error::Unreadable(error.to_string()))),
        )
    }

    fn json(&self) -> &str {
        match (&self.unpacked, &self.record.outcome) {
            (Some(text), _) | (None, Some(StoredOutcome::Inline(text))) => text,
            _ => NOTHING,
        }
    }

    fn give<T>(&self, decoded: Result<T, Obstacle>) -> Result<T, Obstacle> {
        match decoded {
            Ok(value) => {
                events::replayed(&self.request, &self.record);
                Ok(value)
            }
            Err(_) if self.is_successors => Err(Error::LeaseLost),
            Err(error) => {
                events::refused(&self.request, &error);
                Err(error)
            }
        }
    }
}

impl Engine {
    /// Gives the outcome that an earlier attempt left. Where it is a successor's, this attempt's
    /// own work was done, and an outcome that can't be given back means a lost lease.
    pub(super) async fn replay(
        &self,
        request: Box<Request>,
        record: Box<Record>,
        is_successors: bool,
    ) -> Result<Replayed, Obstacle> {
        match self.unpacked(&request, &record).await {
            Ok(unpacked) => Ok(Replayed {
                request,
                record,
                unpacked,
                is_successors,
            }),
            Err(error) if !is_successors => {
                events::refused(&request, &error);
                Err(error)
            }
            Err(error @ Error::OutcomeOmitted { .. }) => Err(error),
            Err(_) => Err(Error::LeaseLost),
        }
    }

    /// Returns the outcome's text, where the record has it compressed; `None` where the record has
    /// it as text.
    async fn unpacked(
        &self,
        request: &Request,
        record: &Record,
    ) -> Result<Option<String>, Obstacle> {
        let is_failure = record.status == Status::Failed;
        let omitted = |reason| Error::OutcomeOmitted {
            reason,
            completed_at: record.completed_at.map(Into::into),
        };
        let unpacked = match &record.outcome {
            Some(StoredOutcome::Inline(text)) if is_failure => {
                return Err(Error::Failed(decode(text)?));
            }
            Some(StoredOutcome::Inline(_)) => return Ok(None),
            Some(StoredOutcome::Packed(packed)) => {
                self.unpack(request, packed).await?.map_err(omitted)?
            }
            // A failure that lost its words is a failure still: it must not pass for something
            // done.
            _ if is_failure => return Err(Error::Failed(Failure::unknown())),
            Some(StoredOutcome::Omitted(reason)) => return Err(omitted(*reason)),
            None => {
                let reason = "a final record without an outcome";
                return Err(Error::Unreadable(reason.to_owned()));
            }
        };
        if is_failure {
            return Err(Error::Failed(decode(&unpacked)?));
        }
        Ok(Some(unpacked))
    }
}

/// Decodes an outcome. The error names the column alone: the parser's message may quote the
/// outcome.
fn decode<T: DeserializeOwned>(text: &str) -> Result<T, Obstacle> {
    serde_json::from_str(text).map_err(|error| {
        Error::Unreadable(format!(
            "the stored outcome no longer decodes as {} (column {})",
            std::any::type_name::<T>(),
            error.column()
        ))
    })
}
