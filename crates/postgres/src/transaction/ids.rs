//! The ids whose transactions are open in this process: one connection of the pool for each, however
//! many duplicates come.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lambda_idempotency::RecordId;
use lambda_idempotency::protocol::packed::LargeOutcome;
use lambda_idempotency::protocol::record::Owner;
use lambda_idempotency::store::transaction::Unwritten;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

/// The right to open a transaction for an id, until it is dropped.
pub(crate) struct OpenId {
    ids: Arc<OpenIds>,
    id: RecordId,
    _turn: OwnedMutexGuard<()>,
}

#[derive(Debug, Default)]
pub(crate) struct OpenIds {
    turns: SyncMutex<Turns<RecordId>>,
    /// Of the calls of one run.
    calls: SyncMutex<Turns<Owner>>,
    /// Of those that are open: the record's owner, and the large outcome that their commit is to write,
    /// where there is one.
    outcomes: SyncMutex<HashMap<RecordId, (Owner, Option<LargeOutcome>)>>,
}

/// Locks that last for as long as somebody has them.
type Turns<K> = HashMap<K, Weak<Mutex<()>>>;

impl OpenIds {
    /// Waits until no other call of this run opens its transaction.
    pub(super) async fn alone(&self, unwritten: &Unwritten) -> OwnedMutexGuard<()> {
        turn(&self.calls, &unwritten.owner).lock_owned().await
    }

    /// Waits until no other run of this process has a transaction open for this id; `None` where one
    /// still has after this time.
    pub(super) async fn take(
        self: &Arc<Self>,
        unwritten: &Unwritten,
        wait: Duration,
    ) -> Option<OpenId> {
        let id = &unwritten.id;
        let turn = turn(&self.turns, id);
        let turn = match Arc::clone(&turn).try_lock_owned() {
            Ok(turn) => turn,
            Err(_) => timeout(wait, turn.lock_owned()).await.ok()?,
        };
        let owner = unwritten.owner.clone();
        lock(&self.outcomes).insert(id.clone(), (owner, None));
        Some(OpenId {
            ids: Arc::clone(self),
            id: id.clone(),
            _turn: turn,
        })
    }

    /// Leaves a large outcome to the commit of its run's open transaction; `false` where that run has
    /// none.
    pub(crate) fn leave(&self, outcome: &LargeOutcome) -> bool {
        match lock(&self.outcomes).get_mut(&outcome.id) {
            Some((owner, place)) if *owner == outcome.owner => {
                *place = Some(outcome.clone());
                true
            }
            _ => false,
        }
    }
}

fn turn<K: Clone + Eq + Hash>(turns: &SyncMutex<Turns<K>>, of: &K) -> Arc<Mutex<()>> {
    let mut turns = lock(turns);
    if let Some(turn) = turns.get(of).and_then(Weak::upgrade) {
        return turn;
    }
    // Those that nobody has any more go when the map would grow.
    if turns.len() == turns.capacity() {
        turns.retain(|_, turn| turn.strong_count() > 0);
    }
    let turn = Arc::new(Mutex::new(()));
    turns.insert(of.clone(), Arc::downgrade(&turn));
    turn
}

impl OpenId {
    /// Takes the large outcome that the commit is to write.
    pub(super) fn large_outcome(&self) -> Option<LargeOutcome> {
        lock(&self.ids.outcomes).get_mut(&self.id)?.1.take()
    }
}

impl Drop for OpenId {
    fn drop(&mut self) {
        lock(&self.ids.outcomes).remove(&self.id);
    }
}

fn lock<T>(mutex: &SyncMutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
