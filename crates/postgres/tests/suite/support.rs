//! A table for each test, on the server that `POSTGRES_URL` leads to.

use std::ops::Deref;
use std::time::{Duration, SystemTime};

use deadpool_postgres::{Manager, Pool};
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::{
    Builder, Error, Fingerprint, HandlerError, Idempotency, InFlight, Key, Outcome, StoreError,
};
use lambda_idempotency_postgres::{
    Pool as Connections, PostgresError, PostgresStore, Problem, Transaction, TransactionError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio_postgres::NoTls;

mod activity;
pub(crate) mod bouncer;

pub(crate) use activity::{Closed, Gate, committing, once_there_is, waiting_for};

/// No test waits longer for anything, and none fails on a slow machine before.
pub(crate) const MINUTE: Duration = Duration::from_mins(1);

/// The store that most tests are about.
pub(crate) type Store = PostgresStore<Pool>;

pub(crate) fn url() -> String {
    std::env::var("POSTGRES_URL")
        .expect("run the tests with `scripts/with postgres -- …` before the command")
}

/// A name that no other test has, of this process or of another one.
pub(crate) fn name(what: &str) -> String {
    format!("{what}_{:016x}", fastrand::u64(..))
}

/// A number that the environment may set.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

pub(crate) fn pool_of(url: &str, size: usize) -> Pool {
    let manager = Manager::new(url.parse().unwrap(), NoTls);
    Pool::builder(manager).max_size(size).build().unwrap()
}

/// A store, and the name of its table.
pub(crate) async fn store_of(url: &str, size: usize) -> (Store, String) {
    let table = name("keys");
    let store = PostgresStore::with_table(pool_of(url, size), &table).unwrap();
    let store = store.timeout(MINUTE);
    store.create_tables().await.unwrap();
    (store, table)
}

pub(crate) async fn store() -> Store {
    store_of(&url(), 8).await.0
}

/// A store and another one on the same table, as another process has it.
pub(crate) async fn stores() -> (Store, Store) {
    let (store, table) = store_of(&url(), 8).await;
    let other = PostgresStore::with_table(pool_of(&url(), 8), &table).unwrap();
    (store, other.timeout(MINUTE))
}

pub(crate) async fn sqlx_store() -> PostgresStore<PgPool> {
    let options = PgPoolOptions::new()
        .max_connections(8)
        .acquire_timeout(MINUTE);
    let pool = options.connect(&url()).await.unwrap();
    let store = PostgresStore::with_table(pool, &name("keys")).unwrap();
    let store = store.timeout(MINUTE);
    store.create_tables().await.unwrap();
    store
}

/// An engine, and the store that it is on.
#[derive(Clone)]
pub(crate) struct Engine<P: Connections> {
    pub(crate) once: Idempotency,
    pub(crate) store: PostgresStore<P>,
}

impl<P: Connections> Engine<P> {
    pub(crate) fn of(store: PostgresStore<P>, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let builder = Idempotency::builder(store.clone()).namespace("tests");
        let once = settings(builder).build().unwrap();
        Self { once, store }
    }

    /// The same, bound to an invocation that ends then.
    pub(crate) fn until(&self, deadline: SystemTime) -> Self {
        Self {
            once: self.once.deadline(deadline),
            store: self.store.clone(),
        }
    }
}

impl<P: Connections> Deref for Engine<P> {
    type Target = Idempotency;

    fn deref(&self) -> &Idempotency {
        &self.once
    }
}

pub(crate) async fn transact<P, T, E, M>(
    engine: &Engine<P>,
    key: Key,
    fingerprint: impl Into<Option<Fingerprint>>,
    handler: impl AsyncFnOnce(&mut Transaction<P>) -> Result<T, E>,
) -> Result<Outcome<T>, Error<E>>
where
    P: Connections,
    T: Serialize + DeserializeOwned,
    E: From<TransactionError> + HandlerError<M>,
{
    let Engine { once, store } = engine;
    store.transact(once, key, fingerprint, handler).await
}

pub(crate) fn patient(builder: Builder) -> Builder {
    builder
        .settings(|settings| settings.store_timeout = MINUTE)
        .in_flight(InFlight::WaitUpTo(MINUTE))
}

/// An engine that waits as long as any test does.
pub(crate) fn engine<P: Connections>(store: PostgresStore<P>) -> Engine<P> {
    Engine::of(store, patient)
}

/// An engine that says of a duplicate that its key is in flight.
pub(crate) fn refusing<P: Connections>(store: PostgresStore<P>) -> Engine<P> {
    Engine::of(store, |builder| {
        builder.settings(|settings| settings.store_timeout = MINUTE)
    })
}

/// Looks until there is something, for a minute.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looked = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(MINUTE, looked).await;
    found.unwrap_or_else(|_| panic!("not within a minute: {what}"))
}

/// Makes a table of the application's own, and returns its name.
pub(crate) async fn table(store: &Store, columns: &str) -> String {
    let table = name("rows");
    let client = store.pool().get().await.unwrap();
    client
        .batch_execute(&format!("CREATE TABLE {table} ({columns})"))
        .await
        .unwrap();
    table
}

/// Counts the rows of a table of the application's own.
pub(crate) async fn count(store: &Store, table: &str) -> i64 {
    let client = store.pool().get().await.unwrap();
    let row = client
        .query_one(&format!("SELECT count(*) FROM {table}"), &[])
        .await
        .unwrap();
    row.get(0)
}

/// The URL of another database on the same server, or another role, or with more parameters.
pub(crate) fn url_with(role: &str, database: &str, parameters: &str) -> String {
    let url = url();
    let (_, place) = url.split_once('@').expect("a role before the host");
    let (host, _) = place.split_once('/').expect("a database after the host");
    format!("postgres://{role}@{host}/{database}?{parameters}")
}

/// Runs statements without parameters, as the server's own role.
pub(crate) async fn sql(statements: &str) {
    let client = pool_of(&url(), 1).get().await.unwrap();
    client.batch_execute(statements).await.unwrap();
}

/// The error of the tests' handlers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("no")]
    Own,
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Sql(#[from] tokio_postgres::Error),
    #[error(transparent)]
    Sqlx(#[from] sqlx::Error),
}

/// The problem that a store's error has among its sources.
#[track_caller]
pub(crate) fn problem(error: &StoreError) -> Problem {
    let source = std::error::Error::source(error);
    let mut sources = std::iter::successors(source, |source| source.source());
    let own = sources.find_map(|source| source.downcast_ref::<PostgresError>());
    own.unwrap_or_else(|| panic!("no source: {error:?}"))
        .problem()
}
