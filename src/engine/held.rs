//! The keys that runs of this process hold: under `FailOpen`, none of them runs a second time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::Engine;
use crate::engine::settings::OnStoreUnavailable;
use crate::protocol::clock::EpochMillis;
use crate::protocol::key::RecordId;
use crate::protocol::record::Owner;

/// The keys, each with its owner and lease; those too whose end has no answer.
#[derive(Debug, Default)]
pub(crate) struct HeldKeys(Mutex<Held>);

type Held = HashMap<RecordId, (Owner, EpochMillis)>;

impl Engine {
    /// Returns the keys that runs hold, where they are noted: `FailOpen` alone asks.
    fn held(&self) -> Option<MutexGuard<'_, Held>> {
        let fails_open = self.settings.on_store_unavailable == OnStoreUnavailable::FailOpen;
        fails_open.then(|| {
            self.held_keys
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Notes that a run holds the key until this lease is over.
    pub(super) fn hold_key(&self, id: &RecordId, owner: &Owner, lease: EpochMillis) {
        let Some(mut held) = self.held() else {
            return;
        };
        if held.len() == held.capacity() {
            let now = self.clock.now();
            held.retain(|_, (_, lease)| now < *lease);
            let left = held.len();
            held.reserve(left);
        }
        held.insert(id.clone(), (owner.clone(), lease));
    }

    /// Tells whether a run holds the key, or has held it, and its end has no answer.
    pub(super) fn holds_key(&self, id: &RecordId) -> bool {
        self.held().is_some_and(|held| {
            held.get(id)
                .is_some_and(|(_, lease)| self.clock.now() < *lease)
        })
    }

    /// Notes that the store has answered the end of this owner's run.
    pub(super) fn free_key(&self, id: &RecordId, owner: &Owner) {
        if let Some(mut held) = self.held()
            && held.get(id).is_some_and(|(holder, _)| holder == owner)
        {
            held.remove(id);
        }
    }
}
