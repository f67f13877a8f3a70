//! Packs outcomes over the inline limit, and unpacks them for a replay.

use std::borrow::Cow;
use std::time::Duration;

use crate::engine::claim::Hold;
use crate::engine::error::Obstacle;
use crate::engine::events;
use crate::engine::pace::Turns;
use crate::engine::persist::persist;
use crate::engine::{Engine, Request};
use crate::protocol::clock::EpochSeconds;
use crate::protocol::packed::{LargeOutcome, PackedOutcome, Place};
use crate::protocol::record::{Omission, StoredOutcome};
use crate::store::StoreError;

/// The time by which an outcome is kept longer than its record: a replay that was decided upon in
/// the record's last moment still finds it.
const GRACE: Duration = Duration::from_hours(1);

impl Engine {
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
        let deadline = request.store_deadline(now, end, end.saturating_since(now.time) / 2);
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
    pub(super) async fn unpack(
        &self,
        request: &Request,
        packed: &PackedOutcome,
    ) -> Result<Result<String, Omission>, Obstacle> {
        if !request.options.wants_outcome {
            return Ok(Ok("null".to_owned()));
        }
        let content = match &packed.place {
            Place::Record(content) => Cow::Borrowed(content.as_slice()),
            place => {
                let now = self.moment();
                let until = self.run_until(request, now.time);
                let deadline = request.store_deadline(now, until, self.settings.store_timeout);
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
}
