//! A store that sends the requests of concurrent callers in groups.

use std::sync::Arc;

use tokio::time::Instant;

use crate::protocol::key::RecordId;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, RecordWrite};
use crate::store::groups::Groups;
use crate::store::transaction::{Admission, Commit, Committed};
use crate::store::{Answer, DynStore, Store, StoreError};

/// Sends claims, completions, releases and reads of concurrent callers in groups: a process that
/// works for many at once pays a fraction of the CPU for each.
///
/// Put it around a `DynamoDbStore` where one process has many requests under way: a server, or a
/// function that runs several invocations at once. A function that has one invocation at a time
/// gains nothing, and pays next to nothing. The layers for batches group the writes of a batch by
/// themselves.
///
/// - A request leaves at once where none of its kind is under way; what arrives meanwhile leaves when
///   that one has its answer, when it is 25, or after 250 ms. So a request waits for one round trip to
///   the table at the most, and then for its own. Where requests have met lately, one yields to the
///   runtime once before it leaves: those that the same answer woke join it.
/// - A write that leaves in a group is conditional, and is answered, as by itself. Two requests for
///   one record never share a group: the second leaves at once, alone, so that a key that many ask
///   for slows no other. Takeovers, commits, steps and large outcomes leave alone, too.
/// - Groups need `dynamodb:PartiQLInsert`, `dynamodb:PartiQLUpdate` and `dynamodb:BatchGetItem`.
///   Without them requests leave alone, with one warning. They cost what single requests cost.
/// - A group is sent by a task of its own, so that it does not matter which caller goes away, or is
///   not polled. A request that did not leave in its time fails as
///   [`StoreError::NotSent`](super::StoreError::NotSent).
///
/// ```
/// use lambda_idempotency::store::{GroupedStore, MemoryStore};
/// use lambda_idempotency::{Fingerprint, Idempotency, Key};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In a server: around `DynamoDbStore::from_env().await?`.
/// let store = GroupedStore::new(MemoryStore::new());
/// let once = Idempotency::builder(store).namespace("payments").build()?;
///
/// let charge = |order: &'static str| once.run(Key::new("charge", order), Fingerprint::json(b"{}"), |_| async { Ok::<_, std::io::Error>(7) });
/// let (first, second, third) = tokio::join!(charge("A-1"), charge("A-2"), charge("A-3"));
/// assert_eq!((first?.into_inner(), second?.into_inner(), third?.into_inner()), (7, 7, 7));
/// # Ok(()) }
/// ```
///
/// Clones share their groups. With a [`CachedStore`](super::CachedStore), put the cache around the
/// groups.
///
/// # Cancellation
///
/// A caller may be dropped at any time. A request that has left by then may or may not apply, as
/// with any store; one that waits is taken out of its group.
#[derive(Clone, Debug)]
pub struct GroupedStore {
    inner: Arc<dyn DynStore>,
    groups: Arc<Groups>,
}

impl GroupedStore {
    /// Creates a store that sends to this one.
    pub fn new(inner: impl Store) -> Self {
        let inner: Arc<dyn DynStore> = Arc::new(inner);
        let groups = Groups::new(Arc::clone(&inner), false);
        Self {
            inner,
            groups: Arc::new(groups),
        }
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }
}

impl Store for GroupedStore {
    fn check(&self) -> Result<(), StoreError> {
        self.inner.check()
    }

    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        self.groups.write(write, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.groups.load(id, deadline).await
    }

    async fn write_all(
        &self,
        writes: &[RecordWrite],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        self.inner.write_all(writes, deadline).await
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        self.inner.load_all(ids, deadline).await
    }

    fn max_id_bytes(&self) -> usize {
        self.inner.max_id_bytes()
    }

    fn admission(&self) -> Option<Admission> {
        self.inner.admission()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        self.inner.commit(commit, deadline).await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        self.inner.keep(outcome, deadline).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.fetch(id, place, deadline).await
    }
}
