//! A function that is deployed before its tables, with the wrong role, or to the wrong server.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool, Runtime};
use lambda_idempotency::testing::conformance;
use lambda_idempotency::{Key, Outcome, StoreError};
use lambda_idempotency_postgres::{PostgresStore, Problem, schema, transact};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio_postgres::NoTls;

use super::{add, claimed, engine, insert, says, store_error};
use crate::support::{
    Failed, Store, count, name, pool_of, problem, sql, store_of, table, url, url_with,
};

fn sqlx_pool(url: &str) -> PgPool {
    let options = PgPoolOptions::new().acquire_timeout(Duration::from_secs(2));
    options.connect_lazy(url).unwrap()
}

/// What both forms say, on both drivers, about this server and table. No handler runs.
async fn refused(url: &str, table: &str, words: &str) -> Vec<StoreError> {
    let store = PostgresStore::with_table(pool_of(url, 2), table).unwrap();
    let sqlx = PostgresStore::with_table(sqlx_pool(url), table).unwrap();
    let once = engine(store.clone());
    let open = transact(&once, Key::new("op", "a"), None, async |_| {
        panic!("the handler ran");
        #[allow(unreachable_code)]
        Ok::<i64, Failed>(0)
    });
    let claim = engine(store)
        .run(
            Key::new("op", "a"),
            None,
            async |_| -> Result<i64, Failed> { panic!("the handler ran") },
        )
        .await;
    let on_sqlx = engine(sqlx)
        .run(
            Key::new("op", "a"),
            None,
            async |_| -> Result<i64, Failed> { panic!("the handler ran") },
        )
        .await;
    let errors: Vec<_> = [open.await, claim, on_sqlx].map(store_error).into();
    for error in &errors {
        says(error, words);
    }
    errors
}

#[tokio::test]
async fn without_a_table_it_says_how_to_make_one() {
    for error in refused(&url(), &name("none"), "create_tables").await {
        assert!(matches!(error, StoreError::Misconfigured(_)), "{error:?}");
        assert_eq!(problem(&error), Problem::NoTable);
    }
}

#[tokio::test]
async fn tables_of_another_release_are_left_alone() {
    for (version, words) in [
        (schema::VERSION + 1, "update lambda-idempotency-postgres"),
        (schema::VERSION - 1, "create_tables` of this release"),
    ] {
        let (_, table) = store_of(&url(), 1).await;
        sql(&format!("UPDATE {table}_schema SET version = {version}")).await;
        for error in refused(&url(), &table, words).await {
            assert!(matches!(error, StoreError::Misconfigured(_)), "{error:?}");
            let (found, known) = (version, schema::VERSION);
            assert_eq!(problem(&error), Problem::OtherSchema { found, known });
        }
    }
}

#[tokio::test]
async fn a_missing_column_is_a_missing_table() {
    let (_, table) = store_of(&url(), 1).await;
    sql(&format!("ALTER TABLE {table} DROP COLUMN owner")).await;
    for error in refused(&url(), &table, "create_tables").await {
        assert_eq!(problem(&error), Problem::NoTable);
    }
}

#[tokio::test]
async fn a_read_only_server_names_the_primary() {
    let (_, table) = store_of(&url(), 1).await;
    let read_only = url_with(
        "postgres",
        "postgres",
        "options=-c%20default_transaction_read_only%3Don",
    );
    for error in refused(&read_only, &table, "connect to the primary").await {
        assert!(matches!(error, StoreError::Misconfigured(_)), "{error:?}");
        assert_eq!(problem(&error), Problem::ReadOnly);
    }
}

#[tokio::test]
async fn a_wrong_password_is_the_roles() {
    sql("CREATE ROLE guarded LOGIN PASSWORD 'right'").await;
    let wrong = url_with("guarded:wrong", "postgres", "");
    for error in refused(&wrong, "idempotency", "password").await {
        assert!(matches!(error, StoreError::Denied(_)), "{error:?}");
        assert_eq!(problem(&error), Problem::NotLetIn);
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let none = url_with("postgres", "nowhere", "");
    for error in refused(&none, "idempotency", "the database's name").await {
        assert_eq!(problem(&error), Problem::NotLetIn);
    }
}

#[tokio::test]
async fn a_server_that_wants_tls_says_so() {
    sql("CREATE ROLE encrypted LOGIN").await;
    for mode in ["sslmode=disable", "sslmode=require"] {
        let plain = url_with("encrypted", "postgres", mode);
        for error in refused(&plain, "idempotency", "sslmode=require").await {
            assert!(matches!(error, StoreError::Denied(_)), "{error:?}");
            assert_eq!(problem(&error), Problem::Tls);
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    for error in refused(
        "postgres://postgres@127.0.0.1:1/postgres",
        "keys",
        "reached",
    )
    .await
    {
        assert!(error.is_unreachable(), "{error:?}");
    }
}

#[tokio::test]
async fn a_role_without_privileges_says_which_it_needs() {
    let (role, (store, keys)) = (name("role"), store_of(&url(), 1).await);
    let rows = table(&store, "n bigint").await;
    sql(&format!("CREATE ROLE {role} LOGIN")).await;
    let as_role = url_with(&role, "postgres", "");
    for error in refused(
        &as_role,
        &keys,
        "grant it SELECT, INSERT, UPDATE and DELETE",
    )
    .await
    {
        assert!(matches!(error, StoreError::Denied(_)), "{error:?}");
        assert_eq!(problem(&error), Problem::NoPrivilege);
    }
    // And these are enough.
    sql(&format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON {keys}, {keys}_outcomes, {keys}_schema TO {role}"
    ))
    .await;
    let own = PostgresStore::with_table(pool_of(&as_role, 4), &keys).unwrap();
    conformance(&own).await.unwrap();
    // On a table of the application's own, the words are the statement's.
    let write = lambda_idempotency_postgres::Sql::new(format!("INSERT INTO {rows} VALUES (1)"));
    let error = store_error(claimed(&engine(own), "b", write).await);
    assert_eq!(problem(&error), Problem::Statement);
    says(&error, &rows);
    assert_eq!(count(&store, &rows).await, 0);
}

fn small_pool(wait: Duration) -> Pool {
    let manager = Manager::new(url().parse().unwrap(), NoTls);
    Pool::builder(manager)
        .max_size(1)
        .wait_timeout(Some(wait))
        .runtime(Runtime::Tokio1)
        .build()
        .unwrap()
}

#[tokio::test]
async fn an_exhausted_pool_says_its_size_is_too_small() {
    let (store, keys) = store_of(&url(), 1).await;
    let rows = table(&store, "n bigint").await;
    let pool = small_pool(Duration::from_millis(50));
    let small: Store = PostgresStore::with_table(pool.clone(), &keys).unwrap();
    let taken = pool.get().await.unwrap();
    for error in [
        store_error(add(&small, &rows, "a").await),
        store_error(claimed(&engine(small.clone()), "a", one(&rows)).await),
    ] {
        assert!(matches!(error, StoreError::Throttled(_)), "{error:?}");
        assert_eq!(problem(&error), Problem::PoolExhausted);
        says(&error, "raise the pool's size");
    }
    drop(taken);
    assert!(matches!(
        add(&small, &rows, "a").await,
        Ok(Outcome::Executed(1))
    ));
    assert_eq!(count(&store, &rows).await, 1);
}

#[tokio::test]
async fn a_handler_that_needs_a_second_connection_of_a_pool_of_one_gets_an_error() {
    let (store, keys) = store_of(&url(), 1).await;
    let rows = table(&store, "n bigint").await;
    let pool = small_pool(Duration::from_millis(50));
    let small: Store = PostgresStore::with_table(pool, &keys).unwrap();
    let once = engine(small.clone());
    let nested = transact(&once, Key::new("op", "a"), None, async |tx| {
        insert(tx, &rows).await?;
        add(&small, &rows, "b")
            .await
            .map_err(|_| Failed::Own)
            .map(Outcome::into_inner)
    });
    assert!(nested.await.is_err());
    assert_eq!(count(&store, &rows).await, 0);
    assert!(add(&small, &rows, "a").await.is_ok());
}

fn one(rows: &str) -> lambda_idempotency_postgres::Sql {
    lambda_idempotency_postgres::Sql::new(format!("INSERT INTO {rows} VALUES (1)"))
}

#[tokio::test]
async fn an_exhausted_pool_of_sqlx_says_the_same() {
    let (_, keys) = store_of(&url(), 1).await;
    let options = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(100));
    let pool = options.connect(&url()).await.unwrap();
    let _taken = pool.acquire().await.unwrap();
    let small = PostgresStore::with_table(pool.clone(), &keys).unwrap();
    let done = engine(small)
        .run(Key::new("op", "a"), None, async |_| Ok::<i64, Failed>(1))
        .await;
    let error = store_error(done);
    assert_eq!(problem(&error), Problem::PoolExhausted);
}

#[tokio::test]
async fn a_closed_pool_says_so() {
    let (store, _) = store_of(&url(), 1).await;
    store.pool().close();
    let error = store_error(add(&store, "none", "a").await);
    assert!(matches!(error, StoreError::Misconfigured(_)), "{error:?}");
    assert_eq!(problem(&error), Problem::PoolClosed);
    says(&error, "keep it for as long as the store");
}
