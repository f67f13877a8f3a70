//! Outcomes over the inline limit: how they get out of the record's way, and back for a replay.

use std::borrow::Cow;
use std::time::Duration;

use crate::claim::Hold;
use crate::clock::EpochSeconds;
use crate::engine::patience::persist;
use crate::engine::{Engine, Request};
use crate::error::{Error, StoreError};
use crate::observe;
use crate::packed::{LargeOutcome, PackedOutcome, Place};
use crate::record::{Omission, StoredOutcome};
use crate::store::Store;

/// How much longer than its record an outcome is kept elsewhere: a replay that was decided upon in the record's last moment
/// still finds it.
const GRACE: Duration = Duration::from_hours(1);

impl<S: Store> Engine<S> {
    /// What stands in the record for a text over the inline limit. Whatever happens, the record can be completed with it.
    pub(crate) async fn pack(
        &self,
        request: &Request,
        hold: &Hold,
        text: &str,
        expiration: EpochSeconds,
    ) -> StoredOutcome {
        if !request.wants_outcome {
            return StoredOutcome::Omitted(Omission::TooLarge);
        }
        let (packed, content) = PackedOutcome::pack(text);
        if content.len() <= self.settings.inline_limit {
            return StoredOutcome::Packed(packed(Place::Record(content)));
        }
        let until = expiration.to_millis() + self.settings.rules.skew_margin + GRACE;
        let outcome = LargeOutcome {
            id: request.id.clone(),
            owner: hold.owner.clone(),
            content,
            expiration: until.ceil_seconds(),
        };
        // The completion that is to follow gets as much time as this.
        let end = hold.lease - self.settings.rules.skew_margin;
        let now = self.moment();
        let deadline = now.store_deadline(end, end.saturating_since(now.time) / 2);
        let keep = || self.store.keep(&outcome, deadline);
        match persist(deadline, StoreError::is_transient, keep).await {
            Ok(place) => StoredOutcome::Packed(packed(place)),
            Err(StoreError::TooLarge) => StoredOutcome::Omitted(Omission::TooLarge),
            Err(error) => {
                observe::not_kept(request, hold, &error);
                StoredOutcome::Omitted(Omission::NotKept)
            }
        }
    }

    /// The JSON text of a compressed outcome, verified.
    pub(crate) async fn unpack<E>(
        &self,
        request: &Request,
        packed: &PackedOutcome,
    ) -> Result<Result<String, Omission>, Error<E>> {
        if !request.wants_outcome {
            return Ok(Ok("null".to_owned()));
        }
        let content = match &packed.place {
            Place::Record(content) => Cow::Borrowed(content.as_slice()),
            place => {
                let now = self.moment();
                let until = self.run_until(request, now.time);
                let deadline = now.store_deadline(until, self.settings.store_timeout);
                let again = |error: &StoreError| matches!(error, StoreError::Throttled);
                let fetch = || self.store.fetch(&request.id, place, deadline);
                match persist(deadline, again, fetch).await? {
                    Some(content) => Cow::Owned(content),
                    None => return Ok(Err(Omission::Lost)),
                }
            }
        };
        Ok(packed.unpack(&content).ok_or(Omission::Damaged))
    }
}
