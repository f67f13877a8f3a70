//! The ids whose transactions are open in this process: one connection of the pool for each, however
//! many duplicates come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError, Weak};
use std::time::Duration;

use lambda_idempotency::RecordId;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

/// The right to open a transaction for an id, until it is dropped.
pub(crate) type OpenId = OwnedMutexGuard<()>;

#[derive(Debug, Default)]
pub(crate) struct OpenIds(SyncMutex<HashMap<RecordId, Weak<Mutex<()>>>>);

impl OpenIds {
    /// Waits until no other run of this process has a transaction open for this id; `None` where one
    /// still has after this time.
    pub(super) async fn take(&self, id: &RecordId, wait: Duration) -> Option<OpenId> {
        let turn = self.turn(id);
        match Arc::clone(&turn).try_lock_owned() {
            Ok(open) => Some(open),
            Err(_) => timeout(wait, turn.lock_owned()).await.ok(),
        }
    }

    fn turn(&self, id: &RecordId) -> Arc<Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(id).and_then(Weak::upgrade) {
            return turn;
        }
        // Those whose transactions have ended go when the map would grow.
        if turns.len() == turns.capacity() {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::new(Mutex::new(()));
        turns.insert(id.clone(), Arc::downgrade(&turn));
        turn
    }
}
