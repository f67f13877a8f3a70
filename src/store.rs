//! Where records live: a compare-and-set map that knows nothing of leases, fingerprints or time.
//!
//! [`Store`] is the contract. [`MemoryStore`] keeps it in a process, `DynamoDbStore` (feature `dynamodb`) in a table;
//! [`CachedStore`] puts a memory of final records before either. A store of your own is right when it passes the conformance
//! suite in `testing` (feature `test-util`).

use std::future::Future;

use tokio::time::Instant;

use crate::error::StoreError;
use crate::key::RecordId;
use crate::packed::{LargeOutcome, Place};
use crate::record::{Amendment, Completion, Found, NewClaim, Release, Renewal, Takeover, Version};
use crate::transaction::{Admission, Commit, Committed};

mod cached;
#[cfg(feature = "dynamodb")]
#[cfg_attr(docsrs, doc(cfg(feature = "dynamodb")))]
pub mod dynamodb;
#[cfg(feature = "sqs")]
mod grouped;
mod memory;
pub mod transition;

pub use cached::CachedStore;
#[cfg(feature = "sqs")]
pub(crate) use grouped::{GROUP, Grouped, Sending};
pub use memory::MemoryStore;

/// What a conditional write answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T = ()> {
    /// The condition held, and the write applied.
    Applied(T),
    /// The condition failed, and nothing changed: this is what was found instead, read in the same atomic step.
    Refused(Option<Found>),
}

impl<T> Answer<T> {
    /// The same answer, with something else to show for a write that applied.
    pub fn map<U>(self, shown: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Applied(value) => Answer::Applied(shown(value)),
            Self::Refused(met) => Answer::Refused(met),
        }
    }
}

/// A compare-and-set map of records.
///
/// # Contract
///
/// - Each write is atomic, and applies if and only if its condition holds. A refused write changes nothing and answers with
///   the record that it met.
/// - [`load`](Self::load) is strongly consistent: it sees every write that was answered before it began.
/// - Each call answers by `deadline`, with [`StoreError::Timeout`] if need be. A deadline that has passed is answered so
///   without a write.
/// - An error leaves it open whether a write applied. Sending the same write again is always safe: the owner inside tells.
/// - Nothing is deleted, except by a sweep of records past their `expiration` (DynamoDB's TTL). When the sweep runs, or
///   whether it ever does, changes nothing that a caller can observe.
///
/// The grouped calls have default implementations that loop, so a store need not care; answers come in the order of the
/// requests.
pub trait Store: Send + Sync + 'static {
    /// Writes a claim, if no record exists.
    fn create(
        &self,
        claim: &NewClaim,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Writes a claim over a record, if it is still exactly `seen`. Answers with the record as it now stands.
    fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer<Found>, StoreError>> + Send;

    /// Makes the record final, if it is in progress and held by the owner.
    fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Lengthens the lease, if the record is in progress, held by the owner, and its lease is shorter than the new one.
    fn renew(
        &self,
        renewal: &Renewal,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Notes something on the record, if it is in progress and held by the owner, and, where a step's entry is noted, if its
    /// revision is newer than the one that stands there.
    fn amend(
        &self,
        amendment: &Amendment,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Ends the lease and puts a tombstone in the owner's place, if the record is in progress and held by the owner.
    fn release(
        &self,
        release: &Release,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// What says whether a business write may join a [`commit`](Self::commit); `None` (default) where the store keeps records
    /// only. Asked when the handler adds the write, before anything has happened.
    fn admission(&self) -> Option<Admission> {
        None
    }

    /// Writes the final record and the business writes in one transaction, if the record is what [`Basis`] says and
    /// every condition of the writes holds. All of it applies, or nothing. A record without business writes is a single write.
    ///
    /// A copy of a commit that applied answers [`Committed::Applied`], where the store knows it by its token, or else
    /// [`Committed::Fenced`] with the record that the commit left.
    ///
    /// The default, for stores that keep records only, refuses; the engine never asks it where
    /// [`admission`](Self::admission) gives nothing.
    ///
    /// [`Basis`]: crate::transaction::Basis
    fn commit(
        &self,
        commit: Commit<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Committed, StoreError>> + Send {
        let _ = (commit, deadline);
        async {
            Err(StoreError::Rejected(
                "this store has no transactions".into(),
            ))
        }
    }

    /// Reads a record, strongly consistent.
    fn load(
        &self,
        id: &RecordId,
        deadline: Instant,
    ) -> impl Future<Output = Result<Option<Found>, StoreError>> + Send;

    /// Keeps a compressed outcome beside its record, before the completion that points at it; says where. The same outcome may
    /// come twice. Nothing else ever has its owner, so no condition is needed.
    ///
    /// A store that keeps nothing so large answers [`StoreError::TooLarge`], as the default does.
    fn keep(
        &self,
        outcome: &LargeOutcome,
        deadline: Instant,
    ) -> impl Future<Output = Result<Place, StoreError>> + Send {
        let _ = (outcome, deadline);
        std::future::ready(Err(StoreError::TooLarge))
    }

    /// What was [kept](Self::keep) there, strongly consistent; `None` where nothing is.
    fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send {
        let _ = (id, place, deadline);
        std::future::ready(Ok(None))
    }

    /// [`create`](Self::create) for each claim. No id may occur twice.
    fn create_all(
        &self,
        claims: &[NewClaim],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Result<Answer, StoreError>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(claims.len());
            for claim in claims {
                answers.push(self.create(claim, deadline).await);
            }
            answers
        }
    }

    /// [`complete`](Self::complete) for each completion. No id may occur twice.
    fn complete_all(
        &self,
        completions: &[Completion],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Result<Answer, StoreError>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(completions.len());
            for completion in completions {
                answers.push(self.complete(completion, deadline).await);
            }
            answers
        }
    }

    /// [`release`](Self::release) for each release. No id may occur twice.
    fn release_all(
        &self,
        releases: &[Release],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Result<Answer, StoreError>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(releases.len());
            for release in releases {
                answers.push(self.release(release, deadline).await);
            }
            answers
        }
    }

    /// [`load`](Self::load) for each id.
    fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Result<Option<Found>, StoreError>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(ids.len());
            for id in ids {
                answers.push(self.load(id, deadline).await);
            }
            answers
        }
    }
}
