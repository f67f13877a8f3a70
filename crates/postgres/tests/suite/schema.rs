//! The tables: who makes them, when, and in which schema they are found.

use lambda_idempotency::{EpochMillis, Error, Key, Outcome, StoreError};
use lambda_idempotency_postgres::{
    Isolation, PostgresStore, Problem, Sql, TransactionError, schema,
};
use tokio::time::Instant;

use crate::support::{
    Failed, MINUTE, Store, count, engine, name, pool_of, problem, sql, store_of, table, transact,
    url, url_with,
};

async fn run(store: &Store, token: &str) -> Outcome<i64> {
    let once = engine(store.clone());
    let done = transact(&once, Key::new("op", token), None, async |_| {
        Ok::<i64, Failed>(1)
    });
    done.await.unwrap()
}

#[tokio::test]
async fn creating_tables_that_are_there_waits_for_no_handler_and_stops_none() {
    let (store, keys) = store_of(&url(), 4).await;
    let starting = PostgresStore::with_table(pool_of(&url(), 2), &keys).unwrap();
    let once = engine(store.clone());
    let held = transact(&once, Key::new("op", "a"), None, async |_| {
        starting.create_tables().await.unwrap();
        assert!(!run(&starting, "b").await.is_replayed());
        Ok::<i64, Failed>(1)
    });
    held.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn first_starts_at_once_make_the_tables_once() {
    let keys = name("keys");
    let starts = (0..12).map(|_| {
        let store = PostgresStore::with_table(pool_of(&url(), 1), &keys).unwrap();
        tokio::spawn(async move { store.timeout(MINUTE).create_tables().await })
    });
    for start in futures_util::future::join_all(starts).await {
        start.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_table_and_a_version_that_are_missing_are_made_again() {
    for lost in [
        "DROP TABLE keys",
        "DROP TABLE keys_outcomes",
        "DROP TABLE keys_schema",
        "DELETE FROM keys_schema",
    ] {
        let (_, keys) = store_of(&url(), 1).await;
        sql(&lost.replace("keys", &keys)).await;
        let store = PostgresStore::with_table(pool_of(&url(), 1), &keys).unwrap();
        let missing = store.sweep(EpochMillis(0), 1).await.unwrap_err();
        assert_eq!(missing.problem(), Problem::NoTable, "{lost}");
        store.create_tables().await.unwrap();
        assert!(!run(&store, "a").await.is_replayed(), "{lost}");
        for part in ["", "_outcomes", "_schema"] {
            count(&store, &format!("{keys}{part}")).await;
        }
    }
}

#[tokio::test]
async fn a_role_that_may_not_create_tables_finds_them() {
    let (role, (_, keys)) = (name("role"), store_of(&url(), 1).await);
    sql(&format!(
        "CREATE ROLE {role} LOGIN; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON {keys}, {keys}_outcomes, {keys}_schema TO {role}"
    ))
    .await;
    let as_role = url_with(&role, "postgres", "");
    let own = PostgresStore::with_table(pool_of(&as_role, 2), &keys).unwrap();
    own.create_tables().await.unwrap();
    let none = PostgresStore::with_table(pool_of(&as_role, 2), &name("none")).unwrap();
    let refused = none.create_tables().await.unwrap_err();
    assert_eq!(refused.problem(), Problem::NoPrivilege);
    let words = refused.to_string();
    assert!(
        words.contains("let a role that may create tables"),
        "{words}"
    );
}

/// Two schemas with tables of records, and a store of one connection that finds those of the first.
async fn two_schemas() -> (Store, [String; 2]) {
    let schemas = [name("a"), name("b")];
    for schema in &schemas {
        let tables = schema::statements(&format!("{schema}.idempotency")).unwrap();
        sql(&format!(
            "CREATE SCHEMA {schema}; {tables}; CREATE TABLE {schema}.rows (n bigint)"
        ))
        .await;
    }
    let path = format!("options=-c%20search_path%3D{}", schemas[0]);
    let pool = pool_of(&url_with("postgres", "postgres", &path), 1);
    (PostgresStore::new(pool), schemas)
}

#[tokio::test]
async fn a_search_path_that_the_application_leaves_behind_changes_nothing() {
    let (store, [first, second]) = two_schemas().await;
    // Also where it was left before the store's first statement.
    for (token, path) in [("a", &second), ("b", &first), ("c", &second)] {
        let client = store.pool().get().await.unwrap();
        let leave = format!("SET search_path = {path}");
        client.batch_execute(&leave).await.unwrap();
        drop(client);
        assert!(!run(&store, token).await.is_replayed(), "{token}");
        let client = store.pool().get().await.unwrap();
        let leave = format!("SET search_path = {second}, {first}");
        client.batch_execute(&leave).await.unwrap();
        drop(client);
        assert!(run(&store, token).await.is_replayed(), "{token}");
        let claimed = engine(store.clone());
        let claimed = claimed.run(Key::new("op", token), None, async |_| Ok::<i64, Failed>(1));
        assert!(claimed.await.unwrap().is_replayed(), "{token}");
    }
    assert_eq!(count(&store, &format!("{first}.idempotency")).await, 3);
    assert_eq!(count(&store, &format!("{second}.idempotency")).await, 0);
}

#[tokio::test]
async fn a_claim_refuses_an_open_transaction_of_another_isolation_before_it_opens() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let (store, _) = store_of(&url(), 2).await;
        let rows = table(&store, "n bigint").await;
        let strict = store.clone().isolation(isolation);
        let once = engine(strict.clone());
        let insert = Sql::new(format!("INSERT INTO {rows} VALUES (1)"));
        let claimed = once.run(Key::new("op", "a"), None, async |claim| {
            let mut tx = strict.transaction(&claim).await?;
            tx.apply(&insert).await.map_err(|_| Failed::Own)?;
            Ok::<i64, Failed>(1)
        });
        let Err(Error::Handler(Failed::Transaction(TransactionError::Store(refused)))) =
            claimed.await
        else {
            panic!("it was opened");
        };
        assert_matches!(refused, StoreError::Misconfigured(_));
        assert_eq!(problem(&refused), Problem::Isolation);
        assert_eq!(count(&store, &rows).await, 0);
        // The claimless form has no record that changes meanwhile.
        for is_replayed in [false, true] {
            let open = transact(&once, Key::new("op", "b"), None, async |tx| {
                tx.apply(&insert).await.map_err(|_| Failed::Own)?;
                Ok::<i64, Failed>(1)
            });
            assert_eq!(open.await.unwrap().is_replayed(), is_replayed);
        }
        assert_eq!(count(&store, &rows).await, 1);
    }
}

/// The statements that the page gives to `pg_cron`.
fn scheduled() -> Vec<&'static str> {
    let page = include_str!("../../../../docs/recipes/postgres.md");
    page.split("$$").skip(1).step_by(2).collect()
}

#[tokio::test]
async fn the_lines_for_pg_cron_delete_what_has_expired_and_read_no_more() {
    let (store, [first, _]) = two_schemas().await;
    sql(&format!(
        "INSERT INTO {first}.idempotency (id, status, expiration, attempt, journal) SELECT n::text, 'COMPLETED', \
         extract(epoch FROM now()) + CASE WHEN n % 2 = 0 THEN 1000 ELSE -1000 END, 1, '{{}}' FROM generate_series(1, 10) n; \
         INSERT INTO {first}.idempotency_outcomes (id, owner, content, expiration) \
         SELECT id, 'o', '', expiration FROM {first}.idempotency"
    ))
    .await;
    assert_eq!(scheduled().len(), 2);
    for statement in scheduled() {
        let client = store.pool().get().await.unwrap();
        client
            .batch_execute("SET enable_seqscan = off")
            .await
            .unwrap();
        let plan = client.query(&format!("EXPLAIN {statement}"), &[]).await;
        let plan: Vec<String> = plan.unwrap().iter().map(|line| line.get(0)).collect();
        let by_index = |line: &String| line.contains("Index Cond: (expiration <");
        assert!(plan.iter().any(by_index), "{plan:#?}");
        client.batch_execute(statement).await.unwrap();
    }
    for table in ["idempotency", "idempotency_outcomes"] {
        assert_eq!(count(&store, &format!("{first}.{table}")).await, 5);
    }
}

#[tokio::test]
async fn a_name_without_a_schema_is_found_as_the_role_finds_it() {
    let (role, keys) = (name("role"), name("keys"));
    sql(&format!(
        "CREATE ROLE {role} LOGIN; CREATE SCHEMA {role} AUTHORIZATION {role}"
    ))
    .await;
    let as_role = url_with(&role, "postgres", "");
    let by_url = format!("options=-c%20search_path%3D{role}");
    let by_url = url_with("postgres", "postgres", &by_url);
    // "$user" comes before public.
    let own = PostgresStore::with_table(pool_of(&as_role, 1), &keys).unwrap();
    own.create_tables().await.unwrap();
    for (url, is_replayed) in [(as_role, false), (by_url, true)] {
        let store = PostgresStore::with_table(pool_of(&url, 1), &keys).unwrap();
        assert_eq!(run(&store, "a").await.is_replayed(), is_replayed);
    }
    assert_eq!(count(&own, &format!("{role}.{keys}")).await, 1);
}

#[tokio::test]
async fn a_schema_may_have_a_name_that_needs_quotes() {
    let schema = name("o'b");
    sql(&format!("CREATE SCHEMA \"{schema}\"")).await;
    let path = format!("options=-c%20search_path%3D%22{schema}%22");
    let store = PostgresStore::new(pool_of(&url_with("postgres", "postgres", &path), 2));
    store.create_tables().await.unwrap();
    assert!(!run(&store, "a").await.is_replayed());
    let estimated = store.estimated_records(Instant::now() + MINUTE).await;
    assert!(estimated.is_ok(), "{estimated:?}");
}

#[tokio::test]
async fn a_role_that_takes_another_one_at_its_start_finds_what_that_one_finds() {
    let (login, owner, other) = (name("login"), name("owner"), name("other"));
    sql(&format!(
        "CREATE ROLE {owner}; CREATE ROLE {other}; CREATE ROLE {login} LOGIN NOINHERIT; \
         GRANT {owner}, {other} TO {login}; ALTER ROLE {login} SET role = {owner}; \
         CREATE SCHEMA {owner} AUTHORIZATION {owner}; CREATE SCHEMA {other} AUTHORIZATION {other}"
    ))
    .await;
    let url = url_with(&login, "postgres", "");
    let own = PostgresStore::new(pool_of(&url, 1));
    own.create_tables().await.unwrap();
    assert!(!run(&own, "a").await.is_replayed());
    assert_eq!(count(&own, &format!("{owner}.idempotency")).await, 1);
    // A role that a handler has left behind changes nothing.
    sql(&format!(
        "SET ROLE {other}; {}",
        schema::statements(&format!("{other}.idempotency")).unwrap()
    ))
    .await;
    sql(&format!("GRANT {owner} TO {other}")).await;
    let store = PostgresStore::new(pool_of(&url, 1));
    let client = store.pool().get().await.unwrap();
    let leave = format!("SET ROLE {other}");
    client.batch_execute(&leave).await.unwrap();
    drop(client);
    assert!(run(&store, "a").await.is_replayed());
}
