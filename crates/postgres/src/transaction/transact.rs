//! A handler that is one transaction.

use lambda_idempotency::{Error, Fingerprint, HandlerError, Idempotency, Key, Outcome, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Transaction, TransactionError};
use crate::driver::Pool;
use crate::store::PostgresStore;

impl<P: Pool> PostgresStore<P> {
    /// Runs the handler once for this key, in a transaction that ends with its outcome; or replays what it
    /// produced.
    ///
    /// Nothing is written before the transaction: a crash at any moment leaves nothing. A duplicate doesn't
    /// run the handler; a concurrent one waits for as long as [`InFlight`](lambda_idempotency::InFlight)
    /// says, and then replays. An error of the handler's rolls back, and a retry runs again. The handler is
    /// called once: a serialization failure (`40001`) is its caller's to repeat.
    ///
    /// `once` is built on this store, or on a clone of it.
    ///
    /// ```
    /// use deadpool_postgres::Pool;
    /// use lambda_idempotency::{Error, Fingerprint, Idempotency, Key};
    /// use lambda_idempotency_postgres::{PostgresStore, TransactionError};
    ///
    /// #[derive(Debug, thiserror::Error)]
    /// enum DebitError {
    ///     #[error("no such account, or not enough on it")]
    ///     NotEnough,
    ///     #[error(transparent)]
    ///     Transaction(#[from] TransactionError),
    ///     #[error(transparent)]
    ///     Sql(#[from] tokio_postgres::Error),
    /// }
    ///
    /// # #[cfg(feature = "tokio-postgres")]
    /// async fn debit(
    ///     store: &PostgresStore<Pool>,
    ///     once: &Idempotency,
    ///     request: &str,
    ///     account: &str,
    ///     cents: i64,
    /// ) -> Result<i64, Error<DebitError>> {
    ///     let fingerprint = Fingerprint::of(&(account, cents))?;
    ///     let done = store.transact(once, Key::new("debit", request), fingerprint, async |tx| {
    ///         let debit = "UPDATE accounts SET cents = cents - $2 WHERE id = $1 AND cents >= $2 RETURNING cents";
    ///         let row = tx.query_opt(debit, &[&account, &cents]).await?;
    ///         Ok(row.ok_or(DebitError::NotEnough)?.get::<_, i64>(0))
    ///     });
    ///     Ok(done.await?.into_inner())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Idempotency::run`]. Where the transaction could not be opened, the handler's own error made of
    /// [`TransactionError`].
    ///
    /// # Panics
    ///
    /// When the handler panics: the transaction is rolled back, then the panic continues.
    ///
    /// # Cancellation
    ///
    /// Dropped, it closes the connection, and the server rolls back; unless `COMMIT` was sent, whose outcome
    /// the record then shows.
    pub async fn transact<T, E, M, F>(
        &self,
        once: &Idempotency,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
        handler: F,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        E: From<TransactionError> + HandlerError<M>,
        F: AsyncFnOnce(&mut Transaction<P>) -> Result<T, E>,
    {
        self.transact_with(once, key, fingerprint, handler, |result| result.into())
            .await
    }

    /// Runs the handler as [`transact`](Self::transact) does, and lets `verdict` decide what becomes of an error:
    /// [`Verdict::Fail`] stores it, and duplicates get it again. The handler's writes are rolled back
    /// either way.
    ///
    /// # Errors
    ///
    /// As [`transact`](Self::transact).
    pub async fn transact_with<T, E, M, F>(
        &self,
        once: &Idempotency,
        key: impl Into<Option<Key>>,
        fingerprint: impl Into<Option<Fingerprint>>,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        E: From<TransactionError> + HandlerError<M>,
        F: AsyncFnOnce(&mut Transaction<P>) -> Result<T, E>,
    {
        let in_transaction = async |claim| {
            let mut transaction = self.transaction(&claim).await?;
            handler(&mut transaction).await
        };
        let claimless = once.claimless();
        claimless
            .run_with(key, fingerprint, in_transaction, verdict)
            .await
    }
}
