//! Writes the notes of steps into the record.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::engine::claim::{Scribe, Urgency};
use crate::engine::pace::Turns;
use crate::engine::persist::{is_rejected_for_now, persist};
use crate::engine::{Engine, LEAST_STORE_TIME};
use crate::protocol::clock::EpochMillis;
use crate::protocol::record::RecordWrite;
use crate::store::{Answer, Store, StoreError};

impl<S: Store> Scribe for Engine<S> {
    fn note<'a>(
        &'a self,
        amendment: &'a RecordWrite,
        until: EpochMillis,
        urgency: Urgency,
    ) -> BoxFuture<'a, Result<Answer, StoreError>> {
        let limit = match urgency {
            Urgency::Begin | Urgency::Confirm => self.settings.store_timeout,
            Urgency::Tell => LEAST_STORE_TIME,
        };
        let deadline = self.moment().store_deadline(until, limit, None);
        let again = move |error: &StoreError| match urgency {
            Urgency::Confirm => error.is_transient(),
            // What the SDK does not retry. A store that can't be reached is not asked again: the
            // caller gets the error.
            Urgency::Begin | Urgency::Tell => is_rejected_for_now(error),
        };
        let send = move || self.store.write(amendment, deadline);
        persist(
            Turns::End(&self.pace, amendment.id()),
            deadline,
            again,
            send,
        )
        .boxed()
    }
}
