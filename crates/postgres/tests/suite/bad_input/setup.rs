//! A function that is deployed before its tables, with the wrong role, or to the wrong server.

use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Hook, HookError, Manager, Metrics, Pool, Runtime};
use lambda_idempotency::protocol::record::{NewClaim, Owner, RecordWrite};
use lambda_idempotency::store::transaction::{Commit, Write};
use lambda_idempotency::store::{MemoryStore, Store as Records};
use lambda_idempotency::testing::conformance;
use lambda_idempotency::{EpochMillis, EpochSeconds, Error, Idempotency, Key, Outcome, StoreError};
use lambda_idempotency_postgres::guard::Guard;
use lambda_idempotency_postgres::{Pool as Connections, PostgresStore, Problem, Sql, schema};
use sqlx::postgres::PgPoolOptions;
use tokio::time::Instant;
use tokio_postgres::NoTls;

use super::{add, claimed, insert, says, store_error};
use crate::support::bouncer::{bouncer, bouncer_with};
use crate::support::{
    Engine, Failed, MINUTE, Store, count, engine, eventually, name, pool_of, problem, sql,
    store_of, table, transact, url, url_with,
};

/// The time to wait for something that never comes.
const SHORT: Duration = Duration::from_millis(50);

/// Returns the errors of both forms, on both drivers, with this server and table. No handler runs.
async fn refused(url: &str, table: &str, words: &str) -> Vec<StoreError> {
    refused_within([MINUTE; 2], url, table, words).await
}

/// The same, where the pool of `sqlx` tries to connect, and the engine tries what may go better, for this long.
async fn refused_within(
    [wait, time]: [Duration; 2],
    url: &str,
    table: &str,
    words: &str,
) -> Vec<StoreError> {
    let store = PostgresStore::with_table(pool_of(url, 2), table).unwrap();
    let options = PgPoolOptions::new().acquire_timeout(wait);
    let sqlx = PostgresStore::with_table(options.connect_lazy(url).unwrap(), table).unwrap();
    let once = tried_for(time, store.clone());
    let open = transact(&once, Key::new("op", "a"), None, async |_| {
        panic!("the handler ran");
        #[allow(unreachable_code)]
        Ok::<i64, Failed>(0)
    });
    let unrun = async |_| -> Result<i64, Failed> { panic!("the handler ran") };
    let (claiming, on_sqlx) = (tried_for(time, store), tried_for(time, sqlx));
    let claim = claiming.run(Key::new("op", "a"), None, unrun);
    let on_sqlx = on_sqlx.run(Key::new("op", "a"), None, unrun);
    let (open, claim, on_sqlx) = tokio::join!(open, claim, on_sqlx);
    let errors: Vec<_> = [open, claim, on_sqlx].map(store_error).into();
    for error in &errors {
        says(error, words);
    }
    errors
}

fn tried_for<P: Connections>(time: Duration, store: PostgresStore<P>) -> Engine<P> {
    Engine::of(store, |builder| {
        builder.settings(|settings| settings.store_timeout = time)
    })
}

#[tokio::test]
async fn without_a_table_it_says_how_to_make_one() {
    for error in refused(&url(), &name("none"), "create_tables").await {
        assert_matches!(error, StoreError::Misconfigured(_));
        assert_eq!(problem(&error), Problem::NoTable);
    }
}

#[tokio::test]
async fn each_request_of_a_group_has_the_stores_own_error() {
    let store = PostgresStore::with_table(pool_of(&url(), 1), &name("none")).unwrap();
    let once = engine(store.clone());
    let ids = ["a", "b"].map(|token| once.record_id(&Key::new("op", token)).unwrap());
    let claims = ids.clone().map(|id| {
        let (now, later) = (EpochMillis(1), EpochSeconds(4_102_444_800));
        let claim = NewClaim::new(id, Owner::from_stored("me"), now, EpochMillis(9), later);
        RecordWrite::from(claim)
    });
    let soon = Instant::now() + MINUTE;
    let written = store.write_all(&claims, soon).await.into_iter();
    let loaded = store.load_all(&ids, soon).await.into_iter();
    let errors = written.map(Result::unwrap_err);
    for error in errors.chain(loaded.map(Result::unwrap_err)) {
        assert_eq!(problem(&error), Problem::NoTable);
    }
}

#[tokio::test]
async fn tables_of_another_release_are_left_alone() {
    for (version, words) in [
        (schema::VERSION + 1, "update lambda-idempotency-postgres"),
        (schema::VERSION - 1, "and their version, to what"),
    ] {
        let (_, table) = store_of(&url(), 1).await;
        let statements = schema::statements(&table).unwrap();
        sql(&format!(
            "UPDATE {table}_schema SET version = {version}; {statements}"
        ))
        .await;
        for error in refused(&url(), &table, words).await {
            assert_matches!(error, StoreError::Misconfigured(_));
            let (found, known) = (version, schema::VERSION);
            assert_eq!(problem(&error), Problem::OtherSchema { found, known });
        }
    }
}

#[tokio::test]
async fn a_missing_column_is_a_missing_table() {
    let (_, table) = store_of(&url(), 1).await;
    sql(&format!("ALTER TABLE {table} DROP COLUMN owner")).await;
    let words = "if only a column is missing, add it by hand";
    for error in refused(&url(), &table, words).await {
        assert_eq!(problem(&error), Problem::NoTable);
    }
}

#[tokio::test]
async fn a_read_only_server_names_the_primary_and_the_setting() {
    let (_, table) = store_of(&url(), 1).await;
    let read_only = url_with(
        "postgres",
        "postgres",
        "options=-c%20default_transaction_read_only%3Don",
    );
    // Another server may become the primary, so that it is tried again.
    let times = [MINUTE, Duration::from_secs(10)];
    let words = "the cluster's writer endpoint), or turn `default_transaction_read_only` off";
    for error in refused_within(times, &read_only, &table, words).await {
        assert_matches!(error, StoreError::Throttled(_));
        assert_eq!(problem(&error), Problem::ReadOnly);
    }
}

/// `PgBouncer` answers with another code than the server, and a driver may answer itself.
#[tokio::test]
async fn a_wrong_password_and_a_missing_one_are_the_roles() {
    for role in ["guarded:wrong", "guarded"] {
        let wrong = url_with(role, "postgres", "");
        let (_bouncer, through) = bouncer_with(&wrong, "auth_type = md5").await;
        for url in [wrong, through] {
            for error in refused(&url, "idempotency", "password").await {
                assert_matches!(error, StoreError::Unauthenticated(_));
                assert_eq!(problem(&error), Problem::NotLetIn);
            }
        }
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_a_setting_or_a_transaction_has_answered() {
    let (_bouncer, through) = bouncer(&url()).await;
    let through = format!("{through}?options=-c%20geqo%3Doff");
    let (_other, statements) = bouncer_with(&url(), "pool_mode = statement").await;
    for (through, words) in [
        (through, "unsupported startup parameter"),
        (statements, "statement pooling mode"),
    ] {
        for error in refused(&through, "idempotency", words).await {
            assert_matches!(error, StoreError::Rejected(_));
            assert_eq!(problem(&error), Problem::Refused);
        }
    }
}

#[tokio::test]
async fn a_column_of_another_type_is_an_answer() {
    let (store, table) = store_of(&url(), 1).await;
    let engine = engine(store);
    let done = engine.run(Key::new("op", "a"), None, async |_| Ok::<i64, Failed>(1));
    done.await.unwrap();
    sql(&format!(
        "ALTER TABLE {table} ALTER COLUMN status TYPE varchar"
    ))
    .await;
    for error in refused(&url(), &table, "another type").await {
        assert_matches!(error, StoreError::Rejected(_));
        assert_eq!(problem(&error), Problem::Answer);
        assert!(error.may_have_applied());
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let none = url_with("postgres", "nowhere", "");
    for error in refused(&none, "idempotency", "no database of this name").await {
        assert_matches!(error, StoreError::Misconfigured(_));
        assert_eq!(problem(&error), Problem::NoDatabase);
    }
}

/// The outcome would be refused, and not recorded, once the handler has run.
#[tokio::test]
async fn a_database_that_lacks_characters_runs_no_handler() {
    let latin = name("latin");
    sql(&format!(
        "CREATE DATABASE {latin} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    ))
    .await;
    let latin = url_with("postgres", &latin, "");
    let store = PostgresStore::with_table(pool_of(&latin, 1), "idempotency").unwrap();
    let unmade = store.create_tables().await.unwrap_err();
    assert_eq!(unmade.problem(), Problem::Encoding);
    for error in refused(&latin, "idempotency", "`ENCODING 'UTF8'`").await {
        assert_matches!(error, StoreError::Misconfigured(_));
        assert_eq!(problem(&error), Problem::Encoding);
    }
}

#[tokio::test]
async fn a_server_that_wants_tls_says_so() {
    for mode in ["sslmode=disable", "sslmode=require"] {
        let plain = url_with("encrypted", "postgres", mode);
        for error in refused(&plain, "idempotency", "sslmode=require").await {
            assert_matches!(error, StoreError::Denied(_));
            assert_eq!(problem(&error), Problem::Tls);
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let nowhere = "postgres://postgres@127.0.0.1:1/postgres";
    for error in refused_within([SHORT, MINUTE], nowhere, "keys", "reached").await {
        assert_matches!(error, StoreError::Unavailable(_));
    }
}

/// The pool of `sqlx` tries again, without a word.
#[tokio::test]
async fn a_server_that_has_no_room_for_a_connection_has_answered() {
    let (role, (_, keys)) = (name("role"), store_of(&url(), 1).await);
    sql(&format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 0")).await;
    let as_role = url_with(&role, "postgres", "");
    let time = Duration::from_secs(20);
    let refused = [Duration::from_secs(1), MINUTE]
        .map(|wait| refused_within([wait, time], &as_role, &keys, "out of connections"));
    for error in futures_util::future::join_all(refused)
        .await
        .into_iter()
        .flatten()
    {
        assert_matches!(error, StoreError::Throttled(_));
        assert_eq!(problem(&error), Problem::OutOfResources);
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
        assert_matches!(error, StoreError::Denied(_));
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
    let (once, write) = (
        engine(own),
        Sql::new(format!("INSERT INTO {rows} VALUES (1)")),
    );
    let error = store_error(claimed(&once, "b", write.clone()).await);
    assert_eq!(problem(&error), Problem::Statement);
    says(&error, &rows);
    for is_guard in [false, true] {
        let open = transact(&once, Key::new("op", "c"), None, async |tx| {
            let refused = if is_guard {
                let guard = Guard::once(rows.as_str(), "a", "1").apply(tx).await;
                guard.unwrap_err()
            } else {
                tx.apply(&write).await.unwrap_err()
            };
            assert_eq!(refused.problem(), Problem::Statement, "{refused}");
            Err::<i64, _>(Failed::Own)
        });
        assert!(open.await.is_err());
    }
    assert_eq!(count(&store, &rows).await, 0);
}

/// A pool of one connection, for which nobody waits long.
fn small_pool() -> Pool {
    let manager = Manager::new(url().parse().unwrap(), NoTls);
    Pool::builder(manager)
        .max_size(1)
        .wait_timeout(Some(SHORT))
        .runtime(Runtime::Tokio1)
        .build()
        .unwrap()
}

/// Returns the error of a claim, which the engine would send again until its time is over.
async fn claim_error<P: lambda_idempotency_postgres::Pool>(store: &PostgresStore<P>) -> StoreError {
    let write = [Write::from(Sql::new("SELECT 1"))];
    let commit = Commit::new("token", None, &write);
    let done = store.commit(commit, Instant::now() + MINUTE).await;
    done.unwrap_err()
}

#[track_caller]
fn says_exhausted(error: &StoreError) {
    assert_matches!(error, StoreError::Throttled(_));
    assert_eq!(problem(error), Problem::PoolExhausted);
    says(error, "raise the pool's size");
}

#[tokio::test]
async fn a_pool_whose_hook_fails_is_no_lost_server() {
    let of_server = Hook::async_fn(|client: &mut ClientWrapper, _: &Metrics| {
        Box::pin(async move {
            let done = client.batch_execute("SELECT 1 / 0").await;
            done.map_err(HookError::Backend)
        })
    });
    let of_its_own = Hook::sync_fn(|_, _| Err(HookError::message("no")));
    for hook in [of_server, of_its_own] {
        let manager = Manager::new(url().parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(1).post_create(hook);
        let store = PostgresStore::new(pool.build().unwrap());
        assert_eq!(problem(&claim_error(&store).await), Problem::Refused);
    }
}

#[tokio::test]
async fn an_exhausted_pool_says_its_size_is_too_small() {
    let (store, keys) = store_of(&url(), 1).await;
    let rows = table(&store, "n bigint").await;
    let pool = small_pool();
    let small: Store = PostgresStore::with_table(pool.clone(), &keys).unwrap();
    let taken = pool.get().await.unwrap();
    says_exhausted(&store_error(add(&small, &rows, "a").await));
    says_exhausted(&claim_error(&small).await);
    drop(taken);
    assert_matches!(add(&small, &rows, "a").await, Ok(Outcome::Executed(1)));
    assert_eq!(count(&store, &rows).await, 1);
}

#[tokio::test]
async fn a_handler_that_needs_a_second_connection_of_a_pool_of_one_gets_an_error() {
    let (store, keys) = store_of(&url(), 1).await;
    let rows = table(&store, "n bigint").await;
    let small: Store = PostgresStore::with_table(small_pool(), &keys).unwrap();
    let once = engine(small.clone());
    let nested = transact(&once, Key::new("op", "a"), None, async |tx| {
        insert(tx, &rows).await?;
        says_exhausted(&store_error(add(&small, &rows, "b").await));
        Err::<i64, _>(Failed::Own)
    });
    let nested = nested.await;
    assert_matches!(nested, Err(Error::Handler(Failed::Own)));
    assert_eq!(count(&store, &rows).await, 0);
    assert!(add(&small, &rows, "a").await.is_ok());
}

#[tokio::test]
async fn an_exhausted_pool_of_sqlx_says_the_same() {
    let (_, keys) = store_of(&url(), 1).await;
    let options = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(1));
    let pool = options.connect_lazy(&url()).unwrap();
    let _taken = eventually("a connection", async || pool.acquire().await.ok()).await;
    let small = PostgresStore::with_table(pool.clone(), &keys).unwrap();
    says_exhausted(&claim_error(&small).await);
}

#[tokio::test]
async fn a_closed_pool_says_so() {
    let (store, _) = store_of(&url(), 1).await;
    store.pool().close();
    let error = store_error(add(&store, "none", "a").await);
    assert_matches!(error, StoreError::Misconfigured(_));
    assert_eq!(problem(&error), Problem::PoolClosed);
    says(&error, "keep it for as long as the store");
}

/// An engine on another table, or on another store, can't end the transaction: nothing is written.
#[tokio::test]
async fn a_transaction_of_another_store_than_the_engines_commits_nothing() {
    let ((store, keys), (other, _)) = (store_of(&url(), 4).await, store_of(&url(), 4).await);
    let rows = table(&store, "n bigint").await;
    let memory = Idempotency::builder(MemoryStore::new()).namespace("tests");
    for once in [engine(other).once, memory.build().unwrap()] {
        let done = store.transact(&once, Key::new("op", "a"), None, async |tx| {
            insert(tx, &rows).await?;
            Ok::<_, Failed>(1)
        });
        let done = done.await;
        assert!(done.is_err(), "{done:?}");
        assert_eq!(count(&store, &rows).await, 0);
        assert_eq!(count(&store, &keys).await, 0);
    }
    let done = add(&store, &rows, "a").await;
    assert_matches!(done, Ok(Outcome::Executed(_)));
}
