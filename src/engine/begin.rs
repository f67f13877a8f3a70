//! Begins a request: gives it a run, or the outcome of an earlier one.

use std::sync::Arc;

use tokio::time::Instant;

use crate::engine::acquire::Acquired;
use crate::engine::claim::{Claim, ClaimTime, Hold, Subject};
use crate::engine::error::{Error, Obstacle};
use crate::engine::events;
use crate::engine::protection::Protection;
use crate::engine::settings::{OnMissingKey, OnStoreUnavailable};
use crate::engine::{Begun, Engine, Options, Request, Run};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, KeyError, RecordId};
use crate::protocol::record::Owner;
use crate::store::transaction::{Collected, Unwritten};

/// The reason why nothing protects the runs of an engine that was built with the kill switch.
const SWITCHED_OFF: &str = "protection is switched off";

impl Engine {
    /// Begins a request.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        key: Option<Key>,
        fingerprint: Option<Fingerprint>,
        options: Options,
    ) -> Result<Begun, Obstacle> {
        if self.is_observing() {
            return Box::pin(self.begin_shadow(key, fingerprint, options)).await;
        }
        let Some(key) = key else {
            return self.begin_without_key(&options);
        };
        if self.disabled {
            return self.begin_disabled(&key, &options);
        }
        if options.deadline.is_none() {
            self.deadlines.missing(self.settings.lease);
        }
        let request = Box::new(self.request(&key, fingerprint, options)?);
        self.send_unsent(&request).await;
        if request.options.claimless {
            return Box::pin(self.begin_claimless(request)).await;
        }
        match self.acquire(&request).await {
            Ok(Acquired::Claimed(hold)) => Ok(Begun::Run(self.claimed(request, hold))),
            Ok(Acquired::Replay(record)) => Box::pin(self.replay(request, record, false))
                .await
                .map(Begun::Replay),
            Err(Error::Store(error))
                if error.is_unreachable()
                    && !request.is_answered()
                    && self.settings.on_store_unavailable == OnStoreUnavailable::FailOpen =>
            {
                let id = request.id.clone();
                self.begin_unprotected(Some(&key), id, &request.options, &error)
            }
            Err(error) => {
                events::refused(&request, &error);
                Err(error)
            }
        }
    }

    fn begin_without_key(self: &Arc<Self>, options: &Options) -> Result<Begun, Obstacle> {
        let policy = options.missing_key.unwrap_or(self.settings.on_missing_key);
        if !self.disabled && policy == OnMissingKey::Refuse {
            return Err(KeyError::Missing.into());
        }
        self.begin_unprotected(None, unkeyed()?, options, &KeyError::Missing)
    }

    /// Begins a run while the engine is switched off: a key that can't be used is no obstacle. What
    /// is derived from the key stays the same, whether or not the engine was observing before.
    fn begin_disabled(self: &Arc<Self>, key: &Key, options: &Options) -> Result<Begun, Obstacle> {
        let id = match self.derived_id(key) {
            Some(id) => id,
            None => unkeyed()?,
        };
        self.begin_unprotected(Some(key), id, options, &SWITCHED_OFF)
    }

    /// Returns the id that a key will have once protection is on, so that what is derived from it
    /// stays the same. `None` for a key that can't be used.
    pub(super) fn derived_id(&self, key: &Key) -> Option<RecordId> {
        let namespace = self.observed.as_ref().unwrap_or(&self.namespace);
        key.resolve(namespace, self.settings.max_token_chars).ok()
    }

    fn claimed(self: &Arc<Self>, request: Box<Request>, hold: Hold) -> Run {
        let until = hold.lease - self.settings.rules.skew_margin;
        let journal = Some(Arc::clone(self));
        let longest = self.settings.max_duration;
        let time = if self.lease_beyond(&request.options).is_some() {
            ClaimTime::beyond(until, until + longest)
        } else {
            let renewed = self.renewed_lease(&request.options);
            let limit = renewed.map_or(until, |lease| until - lease + longest);
            ClaimTime::renewed(until, limit)
        };
        let hold_of = Some(hold.clone());
        let claim = self.claim_of(request.subject(), hold_of, journal, Some(time), None);
        let end = request.options.store_end();
        self.run(claim, Protection::Claimed(request, hold), end)
    }

    pub(super) fn run(
        self: &Arc<Self>,
        claim: Claim,
        protection: Protection,
        store_end: Option<Instant>,
    ) -> Run {
        Run {
            engine: Arc::clone(self),
            claim,
            protection,
            store_end,
        }
    }

    /// Makes a claim, as [`Claim::new`] does.
    pub(super) fn claim_of(
        &self,
        subject: Subject,
        hold: Option<Hold>,
        journal: Option<Arc<Self>>,
        time: Option<impl Into<ClaimTime>>,
        unwritten: Option<Unwritten>,
    ) -> Claim {
        let clock = Arc::clone(&self.clock);
        let collected = Collected::new(self.store.admission(), unwritten);
        let time = time.map(Into::into);
        Claim::new(subject, hold, journal, time, clock, collected)
    }
}

/// Makes a random id for a request without a usable key.
pub(super) fn unkeyed() -> Result<RecordId, Obstacle> {
    Ok(RecordId::unkeyed(Owner::random()?.as_str()))
}
