//! The keys that runs of this process hold: under `FailOpen`, none of them runs a second time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::engine::Engine;
use crate::engine::settings::OnStoreUnavailable;
use crate::protocol::clock::EpochMillis;
use crate::protocol::key::RecordId;
use crate::protocol::lock::lock;
use crate::protocol::record::Owner;

/// The keys, each with its owner and lease; those too whose end has no answer.
pub(crate) type HeldKeys = Mutex<Held>;

type Held = HashMap<RecordId, (Owner, EpochMillis)>;

impl Engine {
    /// Returns the keys that runs hold, where they are noted: `FailOpen` alone asks.
    fn held(&self) -> Option<MutexGuard<'_, Held>> {
        let fails_open = self.settings.on_store_unavailable == OnStoreUnavailable::FailOpen;
        fails_open.then(|| lock(&self.held_keys))
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

    /// Returns whether a run holds the key, or has held it, and its end has no answer.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Begun;
    use crate::idempotency::Idempotency;
    use crate::protocol::clock::Clock;
    use crate::protocol::key::Key;
    use crate::store::MemoryStore;

    #[derive(Debug)]
    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> EpochMillis {
            EpochMillis(7)
        }
    }

    #[tokio::test]
    async fn keys_whose_lease_is_over_make_room_and_no_others() {
        let once = Idempotency::builder(MemoryStore::new())
            .namespace("tests")
            .clock(Stopped)
            .on_store_unavailable(OnStoreUnavailable::FailOpen)
            .build()
            .unwrap();
        let Begun::Run(run) = once.begin(Key::new("charge", "1"), None).await.unwrap() else {
            panic!("it is new");
        };
        let hold = |name: u32, lease| {
            let id = RecordId::unkeyed(&name.to_string());
            let owner = Owner::from_stored("me");
            run.engine.hold_key(&id, &owner, EpochMillis(lease));
            run.engine.holds_key(&id)
        };
        assert!((0..100).all(|name| !hold(name, 7)));
        assert!(run.engine.held().unwrap().len() < 50);
        assert!((100..200).all(|name| hold(name, 8)));
        assert!(run.engine.held().unwrap().len() > 100);
    }
}
