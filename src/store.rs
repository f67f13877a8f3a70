//! The store contract: a compare-and-set map of records that knows nothing of leases, fingerprints
//! or time.
//!
//! A [`Store`] must have [`write`](Store::write) and [`load`](Store::load). Groups, transactions
//! and large outcomes are optional. [`MemoryStore`] keeps records in a process, `DynamoDbStore`
//! (feature `dynamodb`) in a table; [`CachedStore`] remembers final records in front of either. A
//! store of your own is right when it passes the conformance suite in `testing` (feature
//! `test-util`); `docs/internals/own-store.md` walks through one.

use std::fmt;
use std::future::Future;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::protocol::key::{MAX_ID_BYTES, RecordId};
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, RecordWrite};
use crate::store::transaction::{Admission, Commit, Committed};

mod cached;
mod error;
pub(crate) mod grouped;
mod memory;
#[cfg(feature = "test-util")]
pub(crate) mod process;
#[cfg(test)]
mod tests;
pub mod transaction;
pub mod version;

pub use crate::store::cached::CachedStore;
#[cfg(any(feature = "dynamodb", feature = "http", feature = "test-util"))]
pub(crate) use crate::store::error::BoxError;
pub use crate::store::error::StoreError;
pub use crate::store::memory::MemoryStore;

/// The number of requests that leave together. A store that takes fewer in one call of its database
/// splits the group.
pub(crate) const GROUP: usize = 25;

/// The answer to a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The condition held, and the write applied. A takeover answers with the record that it
    /// leaves, with all that its predecessor wrote before it; other writes may answer without.
    Applied(Option<Found>),
    /// The condition failed, and nothing changed: this is what the write met instead, read in the
    /// same atomic step.
    Refused(Option<Found>),
}

impl Answer {
    /// Returns whether the write applied.
    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Applied(_))
    }
}

/// A compare-and-set map of records.
///
/// # Contract
///
/// - Each write is atomic, and applies if and only if its condition holds:
///   [`transition`](crate::protocol::transition) is the whole of it. A refused write changes
///   nothing and answers with the record that it met.
/// - [`load`](Self::load) is strongly consistent: it sees every write that was answered before it
///   began.
/// - Each call answers by `deadline`, with [`StoreError::Timeout`] if need be. One that was not
///   sent by then is answered with [`StoreError::NotSent`], and so is a call whose deadline has
///   passed: it says nothing of the store. One that a full pool gave no connection may be
///   [`StoreError::Throttled`].
/// - An error leaves it open whether a write applied. Sending the same write again is always safe:
///   its owner shows whether it has applied.
/// - Nothing is deleted, except by a sweep of records past their `expiration`. The time of the
///   sweep, and whether it ever runs, change nothing that a caller can observe.
///
/// Every other method has a default: the grouped calls send each request by itself, all at once, and
/// a store without transactions or room for large outcomes says so.
pub trait Store: Send + Sync + 'static {
    /// Carries out a conditional write, if its condition holds.
    fn write(
        &self,
        write: &RecordWrite,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Reads a record, strongly consistent.
    fn load(
        &self,
        id: &RecordId,
        deadline: Instant,
    ) -> impl Future<Output = Result<Option<Found>, StoreError>> + Send;

    /// Carries out several writes, answered in their order, each as [`write`](Self::write) does. No
    /// id may occur twice. One that can't leave in a group, or that the group
    /// didn't settle, may be answered with [`StoreError::NotSent`], which is
    /// [`uncertain`](StoreError::uncertain) where it may have applied: its caller sends it by `write`.
    /// The default sends all at once. 250 ms after the last answer it drops the writes without one,
    /// and answers them so: a dropped `write` may still apply.
    fn write_all(
        &self,
        writes: &[RecordWrite],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Result<Answer, StoreError>>> + Send {
        async move {
            let sent = writes.iter().map(|write| self.write(write, deadline));
            let answers = grouped::answers(sent.collect(), self.answers_in_order()).await;
            let left = || Err(StoreError::NotSent.uncertain());
            let answers = answers.into_iter();
            answers.map(|answer| answer.unwrap_or_else(left)).collect()
        }
    }

    /// Reads several records, answered in the order of the ids, each as [`load`](Self::load) does. One
    /// that can't be read in a group is answered as in [`write_all`](Self::write_all).
    fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Result<Option<Found>, StoreError>>> + Send {
        async move {
            let sent = ids.iter().map(|id| self.load(id, deadline));
            let answers = grouped::answers(sent.collect(), self.answers_in_order()).await;
            answers
                .into_iter()
                .map(|answer| answer.unwrap_or(Err(StoreError::NotSent)))
                .collect()
        }
    }

    /// Returns whether one connection gives all answers in their order: then the default of
    /// [`write_all`](Self::write_all) waits for all, since a write sent again would be the last.
    #[doc(hidden)]
    fn answers_in_order(&self) -> bool {
        false
    }

    /// Checks the store's own settings, when an engine is built on it. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`StoreError::Misconfigured`] says what must be corrected. The default finds nothing.
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns how many bytes the id of a record may have. A key whose id has more is refused before
    /// anything is sent.
    fn max_id_bytes(&self) -> usize {
        MAX_ID_BYTES
    }

    /// Returns the check whether a business write may join a [`commit`](Self::commit); `None`
    /// (default) where the store keeps records only. Asked when the handler adds the write, before
    /// anything has happened.
    fn admission(&self) -> Option<Admission> {
        None
    }

    /// Returns whether a [`commit`](Self::commit) that is sent again with the same
    /// [token](Commit::token) applies once even if it has no record. Default: `false`, and such a
    /// commit isn't sent again after a send that got no answer.
    fn honours_tokens(&self) -> bool {
        false
    }

    /// Writes the final record and the business writes in one transaction, if the condition of the
    /// record's [`claim`], or the fence, and every condition of the writes hold:
    /// [`transition_to_final`] is the record's part of it. All of it applies, or nothing. A record
    /// without business writes is a single write.
    ///
    /// Each call sends the commit once: a store doesn't send it again by itself after a send that got
    /// no answer, and reports [`StoreError::Timeout`] or [`StoreError::Unavailable`] instead. The
    /// engine sends it again, and knows then that an earlier send may still apply after a later one
    /// was refused.
    ///
    /// A copy of a commit that applied answers [`Committed::Applied`], where the store knows it by
    /// its token, or else [`Committed::Fenced`] with the record that the commit left.
    ///
    /// The default refuses; the engine never asks it where [`admission`](Self::admission) gives
    /// nothing.
    ///
    /// [`claim`]: crate::protocol::record::Final::claim
    /// [`transition_to_final`]: crate::protocol::transition_to_final
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

    /// Keeps a compressed outcome beside its record, before the completion that points at it, and
    /// returns the place. The same outcome may come twice. Nothing else ever has its owner, so no
    /// condition is needed.
    ///
    /// The default answers [`StoreError::TooLarge`], as a store without room for it does.
    fn keep(
        &self,
        outcome: &LargeOutcome,
        deadline: Instant,
    ) -> impl Future<Output = Result<Place, StoreError>> + Send {
        let _ = (outcome, deadline);
        std::future::ready(Err(StoreError::TooLarge))
    }

    /// Reads an outcome that was [kept](Self::keep), strongly consistent; `None` where the place
    /// has none.
    fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send {
        let _ = (id, place, deadline);
        std::future::ready(Ok(None))
    }
}

/// Declares the methods of [`Store`] with futures that a trait object can return, and passes each
/// call on to the method of the same name.
macro_rules! erased {
    ($($method:ident($($argument:ident: $type:ty),+) -> $answer:ty;)+) => {
        /// A [`Store`] that can be a trait object, which an engine and the command line call.
        #[doc(hidden)]
        pub trait DynStore: Send + Sync + 'static {
            fn check(&self) -> Result<(), StoreError>;
            fn max_id_bytes(&self) -> usize;
            fn admission(&self) -> Option<Admission>;
            fn honours_tokens(&self) -> bool;

            fn commit<'a>(
                &'a self,
                commit: Commit<'a>,
                deadline: Instant,
            ) -> BoxFuture<'a, Result<Committed, StoreError>>;

            $(fn $method<'a>(
                &'a self,
                $($argument: &'a $type,)+
                deadline: Instant,
            ) -> BoxFuture<'a, $answer>;)+
        }

        impl<S: Store> DynStore for S {
            fn check(&self) -> Result<(), StoreError> {
                Store::check(self)
            }

            fn max_id_bytes(&self) -> usize {
                Store::max_id_bytes(self)
            }

            fn admission(&self) -> Option<Admission> {
                Store::admission(self)
            }

            fn honours_tokens(&self) -> bool {
                Store::honours_tokens(self)
            }

            fn commit<'a>(
                &'a self,
                commit: Commit<'a>,
                deadline: Instant,
            ) -> BoxFuture<'a, Result<Committed, StoreError>> {
                Box::pin(Store::commit(self, commit, deadline))
            }

            $(fn $method<'a>(
                &'a self,
                $($argument: &'a $type,)+
                deadline: Instant,
            ) -> BoxFuture<'a, $answer> {
                Box::pin(Store::$method(self, $($argument,)+ deadline))
            })+
        }
    };
}

erased! {
    write(write: RecordWrite) -> Result<Answer, StoreError>;
    load(id: RecordId) -> Result<Option<Found>, StoreError>;
    write_all(writes: [RecordWrite]) -> Vec<Result<Answer, StoreError>>;
    load_all(ids: [RecordId]) -> Vec<Result<Option<Found>, StoreError>>;
    keep(outcome: LargeOutcome) -> Result<Place, StoreError>;
    fetch(id: RecordId, place: Place) -> Result<Option<Vec<u8>>, StoreError>;
}

impl fmt::Debug for dyn DynStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
