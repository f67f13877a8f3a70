//! What a caller is given: the handler's value, or what an earlier attempt left.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use super::Idempotency;
use crate::engine::{Finished, Request};
use crate::error::Error;
use crate::observe;
use crate::outcome::{Outcome, Replay};
use crate::record::{Failure, Record, Status, StoredOutcome};
use crate::settings::Unrecorded;
use crate::store::Store;

impl<S: Store> Idempotency<S> {
    pub(super) async fn conclude<T, E>(
        &self,
        request: &Request,
        finished: Finished,
        value: T,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: DeserializeOwned,
    {
        match finished {
            Finished::Recorded => Ok(Outcome::Executed(value)),
            // This handler has run: a successor's outcome that can't be given back doesn't change that.
            Finished::Superseded(record) => {
                let replayed = Box::pin(self.replay(request, &record)).await;
                replayed.map_err(|error| match error {
                    Error::OutcomeOmitted { .. } => error,
                    _ => Error::LeaseLost,
                })
            }
            Finished::Lost => Err(Error::LeaseLost),
            Finished::Unrecorded(error) => match self.engine.settings.unrecorded {
                Unrecorded::Return => Ok(Outcome::Unrecorded(value)),
                Unrecorded::Fail => Err(Error::Unrecorded(error)),
            },
        }
    }

    /// What an earlier attempt left, given back.
    pub(super) async fn replay<T: DeserializeOwned, E>(
        &self,
        request: &Request,
        record: &Record,
    ) -> Result<Outcome<T>, Error<E>> {
        let completed_at = record.completed_at.map(Into::into);
        let text = match &record.outcome {
            Some(StoredOutcome::Inline(text)) => Ok(Cow::Borrowed(text)),
            Some(StoredOutcome::Packed(packed)) => {
                let text = self.engine.unpack(request, packed).await?;
                text.map(Cow::Owned)
            }
            // A failure that lost its words is a failure still: it must not pass for something done.
            _ if record.status == Status::Failed => return Err(Error::Failed(Failure::unknown())),
            Some(StoredOutcome::Omitted(reason)) => Err(*reason),
            None => {
                return Err(Error::Unreadable(
                    "a final record without an outcome".to_owned(),
                ));
            }
        };
        let text = text.map_err(|reason| Error::OutcomeOmitted {
            reason,
            completed_at,
        })?;
        if record.status == Status::Failed {
            return Err(Error::Failed(decode(&text)?));
        }
        let replay = Replay {
            processed_at: completed_at,
            attempt: record.attempt,
        };
        let value = decode(&text)?;
        observe::replayed(request, record);
        Ok(Outcome::Replayed(value, replay))
    }
}

/// The parser's own message may quote the outcome; where it failed is enough to find out why.
fn decode<T: DeserializeOwned, E>(text: &str) -> Result<T, Error<E>> {
    serde_json::from_str(text).map_err(|error| {
        Error::Unreadable(format!(
            "the stored outcome no longer decodes as {} (column {})",
            std::any::type_name::<T>(),
            error.column()
        ))
    })
}
