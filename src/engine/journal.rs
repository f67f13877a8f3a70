//! How a step's notes get into the record.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::claim::{Scribe, Urgency};
use crate::clock::EpochMillis;
use crate::engine::patience::persist;
use crate::engine::{Engine, LEAST_STORE_TIME};
use crate::error::StoreError;
use crate::record::Amendment;
use crate::store::{Answer, Store};

impl<S: Store> Scribe for Engine<S> {
    fn note<'a>(
        &'a self,
        amendment: &'a Amendment,
        until: EpochMillis,
        urgency: Urgency,
    ) -> BoxFuture<'a, Result<Answer, StoreError>> {
        let limit = match urgency {
            Urgency::Begin | Urgency::Confirm => self.settings.store_timeout,
            Urgency::Tell => LEAST_STORE_TIME,
        };
        let deadline = self.moment().store_deadline(until, limit);
        let again = move |error: &StoreError| match urgency {
            Urgency::Confirm => error.is_transient(),
            // What the SDK has not retried already. A store that can't be reached is not asked again: the caller hears of it.
            Urgency::Begin | Urgency::Tell => {
                matches!(error, StoreError::Throttled | StoreError::Conflict)
            }
        };
        let send = move || self.store.amend(amendment, deadline);
        persist(deadline, again, send).boxed()
    }
}
