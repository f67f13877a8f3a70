//! A store of any type, behind one type.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::protocol::key::RecordId;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, RecordWrite};
use crate::store::transaction::{Admission, Commit, Committed};
use crate::store::{Answer, Store, StoreError};

#[cfg(test)]
mod tests;

/// Holds any store behind one type, for application state that names no store.
///
/// An application holds one `Idempotency<AnyStore>`, with DynamoDB behind it in production and
/// memory in tests. Each call then costs one small allocation, beside the store's own work. Clones
/// share the store.
///
/// ```
/// use lambda_idempotency::store::{AnyStore, MemoryStore};
/// use lambda_idempotency::{Error, Fingerprint, Idempotency, Key, Outcome};
///
/// #[derive(Clone)]
/// struct App {
///     once: Idempotency<AnyStore>,
/// }
///
/// impl App {
///     fn new(store: AnyStore) -> Result<Self, Box<dyn std::error::Error>> {
///         let once = Idempotency::builder(store).namespace("payments").build()?;
///         Ok(Self { once })
///     }
///
///     async fn charge(&self, order: &str) -> Result<Outcome<u32>, Error<std::io::Error>> {
///         let handler = async |claim: lambda_idempotency::Claim| Ok(claim.attempt());
///         self.once.run(Key::new("charge", order), Fingerprint::json(b"{}"), handler).await
///     }
/// }
///
/// # #[cfg(feature = "dynamodb")]
/// async fn in_production() -> Result<App, Box<dyn std::error::Error>> {
///     use lambda_idempotency::dynamodb::DynamoDbStore;
///     App::new(AnyStore::new(DynamoDbStore::from_env().await?))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let in_tests = App::new(AnyStore::new(MemoryStore::new()))?;
/// assert_eq!(in_tests.charge("A-17").await?, Outcome::Executed(1));
/// assert!(in_tests.charge("A-17").await?.is_replayed());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct AnyStore(Arc<dyn Erased>);

impl AnyStore {
    /// Erases the type of this store.
    pub fn new(store: impl Store) -> Self {
        Self::of(Arc::new(store))
    }

    pub(crate) fn of(store: Arc<impl Store>) -> Self {
        Self(store)
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyStore").finish_non_exhaustive()
    }
}

/// Declares the methods of [`Store`] with futures that a trait object can return, and passes each
/// call on to the method of the same name.
macro_rules! erased {
    ($($method:ident($($argument:ident: $type:ty),+) -> $answer:ty;)+) => {
        trait Erased: Send + Sync + 'static {
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

        impl<S: Store> Erased for S {
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

        impl Store for AnyStore {
            fn check(&self) -> Result<(), StoreError> {
                self.0.check()
            }

            fn max_id_bytes(&self) -> usize {
                self.0.max_id_bytes()
            }

            fn admission(&self) -> Option<Admission> {
                self.0.admission()
            }

            async fn commit(
                &self,
                commit: Commit<'_>,
                deadline: Instant,
            ) -> Result<Committed, StoreError> {
                self.0.commit(commit, deadline).await
            }

            $(async fn $method(&self, $($argument: &$type,)+ deadline: Instant) -> $answer {
                self.0.$method($($argument,)+ deadline).await
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
