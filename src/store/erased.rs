//! A store of any type, behind a trait object.

use std::fmt;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::protocol::key::RecordId;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, RecordWrite};
use crate::store::transaction::{Admission, Commit, Committed};
use crate::store::{Answer, Store, StoreError};

/// Declares the methods of [`Store`] with futures that a trait object can return, and passes each
/// call on to the method of the same name.
macro_rules! erased {
    ($($method:ident($($argument:ident: $type:ty),+) -> $answer:ty;)+) => {
        /// A [`Store`] that can be a trait object, which an engine and the command line call.
        #[expect(missing_docs, clippy::missing_errors_doc, reason = "`Store` documents them")]
        pub trait DynStore: Send + Sync + 'static {
            fn check(&self) -> Result<(), StoreError>;
            fn max_id_bytes(&self) -> usize;
            fn admission(&self) -> Option<Admission>;

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

#[cfg(test)]
mod tests;
