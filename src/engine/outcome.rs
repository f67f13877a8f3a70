//! Outcomes: what a completion stores, in which form, and how a replay reads it back.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;

use crate::engine::error::{Error, Obstacle};
use crate::engine::fence::Hold;
use crate::engine::pace::Turns;
use crate::engine::persist::persist;
use crate::engine::{Engine, Request, events};
use crate::protocol::clock::EpochSeconds;
use crate::protocol::packed::{LargeOutcome, PackedOutcome, Place};
use crate::protocol::record::{
    Completion, Failure, Omission, Owner, Record, Status, StoredOutcome,
};
use crate::store::StoreError;

/// The time by which an outcome is kept longer than its record: a replay that was decided upon in
/// the record's last moment still finds it.
const GRACE: Duration = Duration::from_hours(1);

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
    /// The attempt that the outcome comes from.
    pub replay: Replay,
    request: Box<Request>,
    record: Box<Record>,
    /// The outcome's text, decompressed, if the record compresses it.
    unpacked: Option<String>,
    /// A successor wrote it while this run's own work was done.
    is_successors: bool,
}

/// The text of an outcome that the request does not ask for.
const NOTHING: &str = "null";

impl Replayed {
    /// Decodes the outcome.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] where it doesn't decode as `T`; [`Error::LeaseLost`] where this run's
    /// own work was done, too, and a successor's outcome doesn't decode.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Error<Infallible>> {
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
    /// Makes the completion of a success.
    pub(super) async fn completion_of(
        &self,
        request: &Request,
        hold: &Hold,
        outcome: Result<String, Omission>,
    ) -> Completion {
        let (mut completion, large) = self.completed(request, hold, outcome);
        if let Some(text) = large {
            // The record that a commit without a claim meets may keep it longer.
            let until = request.longest(&completion);
            completion.outcome = Box::pin(self.pack(request, hold, &text, until)).await;
        }
        completion
    }

    /// Makes the completion of a success, and returns the text of an outcome that is over the
    /// inline limit beside it.
    pub(super) fn completed(
        &self,
        request: &Request,
        hold: &Hold,
        outcome: Result<String, Omission>,
    ) -> (Completion, Option<String>) {
        let (outcome, large) = match outcome {
            Ok(text) if text.len() <= self.settings.inline_limit => {
                (StoredOutcome::Inline(text), None)
            }
            Ok(text) => (StoredOutcome::Omitted(Omission::NotKept), Some(text)),
            Err(reason) => (StoredOutcome::Omitted(reason), None),
        };
        let completion = self.completion(request, &hold.owner, Status::Completed, outcome);
        (completion, large)
    }

    /// Makes the completion of a failure.
    pub(super) fn failure_of(
        &self,
        request: &Request,
        owner: &Owner,
        failure: &Failure,
    ) -> Completion {
        let outcome = match serde_json::to_string(failure) {
            Ok(text) => StoredOutcome::Inline(text),
            Err(_) => StoredOutcome::Omitted(Omission::NotSerializable),
        };
        let mut completion = self.completion(request, owner, Status::Failed, outcome);
        request.keep_longer(&mut completion, request.options.keeps_failures());
        completion
    }

    /// Makes a completion, whose time is fixed before the first send.
    fn completion(
        &self,
        request: &Request,
        owner: &Owner,
        status: Status,
        outcome: StoredOutcome,
    ) -> Completion {
        let completed_at = self.clock.now();
        let retention = match status {
            Status::Failed => self.settings.failure_retention,
            _ => request.retention,
        };
        let expiration = (completed_at + retention).ceil_seconds();
        let (id, owner) = (request.id.clone(), owner.clone());
        Completion {
            status,
            ..Completion::new(id, owner, outcome, completed_at, expiration)
        }
    }

    /// Compresses a text over the inline limit, and keeps it in the first place that takes it. The
    /// record can be completed with the result whatever happens.
    pub(super) async fn pack(
        &self,
        request: &Request,
        hold: &Hold,
        text: &str,
        expiration: EpochSeconds,
    ) -> StoredOutcome {
        if !request.options.wants_outcome {
            return StoredOutcome::Omitted(Omission::TooLarge);
        }
        let (packed, content) = PackedOutcome::pack(text);
        if content.len() <= self.settings.inline_limit {
            return StoredOutcome::Packed(packed(Place::Record(content)));
        }
        let until = expiration.to_millis() + self.settings.skew_margin + GRACE;
        let outcome = LargeOutcome {
            id: request.id.clone(),
            owner: hold.owner.clone(),
            content,
            expiration: until.ceil_seconds(),
        };
        // The completion that is to follow gets as much time as this.
        let end = hold.lease - self.settings.skew_margin;
        let now = self.moment();
        let deadline = self.store_deadline(request, now, end, end.saturating_since(now.time) / 2);
        let keep = || self.store.keep(&outcome, deadline);
        match persist(Turns::Elsewhere, deadline, StoreError::is_transient, keep).await {
            Ok(place) => StoredOutcome::Packed(packed(place)),
            Err(StoreError::TooLarge) => StoredOutcome::Omitted(Omission::TooLarge),
            Err(error) => {
                events::not_kept(request, hold, &error);
                StoredOutcome::Omitted(Omission::NotKept)
            }
        }
    }

    /// Reads the JSON text of a compressed outcome, and verifies it.
    async fn unpack(
        &self,
        request: &Request,
        packed: &PackedOutcome,
    ) -> Result<Result<String, Omission>, Obstacle> {
        if !request.options.wants_outcome {
            return Ok(Ok(NOTHING.to_owned()));
        }
        let content = match &packed.place {
            Place::Record(content) => Cow::Borrowed(content.as_slice()),
            place => {
                let now = self.moment();
                let until = self.run_until(request, now.time);
                let limit = self.settings.store_timeout;
                let deadline = self.store_deadline(request, now, until, limit);
                let again = |error: &StoreError| matches!(error, StoreError::Throttled(_));
                let fetch = || self.store.fetch(&request.id, place, deadline);
                match persist(Turns::Elsewhere, deadline, again, fetch).await? {
                    Some(content) => Cow::Owned(content),
                    None => return Ok(Err(Omission::Lost)),
                }
            }
        };
        Ok(packed.unpack(&content).ok_or(Omission::Damaged))
    }

    /// Returns the outcome that an earlier attempt left. Where it is a successor's, this attempt's
    /// own work was done, and an outcome that can't be given back means a lost lease.
    pub(super) async fn replay(
        &self,
        request: Box<Request>,
        record: Box<Record>,
        is_successors: bool,
    ) -> Result<Replayed, Obstacle> {
        match self.unpacked(&request, &record).await {
            Ok(unpacked) => Ok(Replayed {
                replay: Replay {
                    processed_at: record.completed_at.map(Into::into),
                    attempt: record.attempt,
                },
                request,
                record,
                unpacked,
                is_successors,
            }),
            Err(error) if !is_successors => {
                events::refused(&request, &error);
                Err(error)
            }
            Err(Error::OutcomeOmitted {
                reason,
                completed_at,
                ..
            }) => Err(Error::OutcomeOmitted {
                reason,
                completed_at,
                handler_ran: true,
            }),
            Err(_) => Err(Error::LeaseLost),
        }
    }

    /// Returns the outcome's text, where the record has it compressed; `None` where the record has
    /// it as text, or where it was not kept and the request does not ask for it.
    async fn unpacked(
        &self,
        request: &Request,
        record: &Record,
    ) -> Result<Option<String>, Obstacle> {
        let is_failure = record.status == Status::Failed;
        let omitted = |reason| Error::OutcomeOmitted {
            reason,
            completed_at: record.completed_at.map(Into::into),
            handler_ran: false,
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
            // The work is done, and the outcome that was not kept is not asked for.
            Some(StoredOutcome::Omitted(_)) if !request.options.wants_outcome => return Ok(None),
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
