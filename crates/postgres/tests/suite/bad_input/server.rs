//! Connections that die, statements that the server cancels, and locks that cross.

use std::sync::Arc;

use lambda_idempotency::store::Store as Records;
use lambda_idempotency::store::transaction::{Commit, Write};
use lambda_idempotency::{Error, Key, Outcome};
use lambda_idempotency_postgres::{PostgresStore, Problem, Sql};
use tokio::sync::Barrier;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;

use super::{add, claimed, insert, says, store_error};
use crate::support::{
    Closed, Failed, Gate, MINUTE, committing, count, engine, eventually, name, once_there_is,
    pool_of, problem, sql, store, store_of, table, transact, url, url_with, waiting_for,
};

/// Ends the connections that are in `COMMIT`, once there is one, and lets later ones pass.
async fn end_commits(application: &str, _closed: Closed) {
    once_there_is(&committing(application), "pg_terminate_backend(pid)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_dies_in_commit_leaves_nothing_and_a_retry_runs() {
    let (store, keys) = store_of(&url(), 2).await;
    let rows = table(&store, "n bigint").await;
    let gate = Gate::before_commits_to(&rows).await;
    let application = name("dies");
    let parameters = format!("application_name={application}");
    let named = url_with("postgres", "postgres", &parameters);
    let own = PostgresStore::with_table(pool_of(&named, 4), &keys).unwrap();

    // The handler's transaction is gone: its caller sends the request again.
    let closed = gate.close().await;
    let (done, ()) = tokio::join!(add(&own, &rows, "open"), end_commits(&application, closed));
    assert_matches!(done, Err(Error::NotCommitted(_)));
    says(&store_error(done), "send the request again");
    assert_eq!(count(&store, &rows).await, 0);
    assert_matches!(add(&own, &rows, "open").await, Ok(Outcome::Executed(1)));

    // Writes that were handed over are sent again by the engine.
    let closed = gate.close().await;
    let (own, write) = (
        engine(own),
        Sql::new(format!("INSERT INTO {rows} VALUES (2)")),
    );
    let (done, ()) = tokio::join!(
        claimed(&own, "claim", write),
        end_commits(&application, closed)
    );
    assert_matches!(done, Ok(Outcome::Executed(1)));
    assert_eq!(count(&store, &rows).await, 2);
}

#[tokio::test]
async fn a_connection_that_dies_under_the_handler_leaves_nothing() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    let done = transact(
        &engine(store.clone()),
        Key::new("op", "a"),
        None,
        async |tx| {
            insert(tx, &rows).await?;
            let pid: i32 = tx.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
            sql(&format!("SELECT pg_terminate_backend({pid})")).await;
            Ok::<i64, Failed>(1)
        },
    )
    .await;
    assert_matches!(done, Err(Error::NotCommitted(_)));
    assert_eq!(count(&store, &rows).await, 0);
    assert_matches!(add(&store, &rows, "a").await, Ok(Outcome::Executed(1)));
}

#[tokio::test]
async fn connections_that_died_in_the_pool_are_replaced() {
    let (_, keys) = store_of(&url(), 1).await;
    let application = name("idle");
    let parameters = format!("application_name={application}");
    let named = url_with("postgres", "postgres", &parameters);
    let own = PostgresStore::with_table(pool_of(&named, 1), &keys).unwrap();
    let rows = table(&own, "n bigint").await;
    for token in ["a", "b", "c"] {
        add(&own, &rows, token).await.unwrap();
        let client = own.pool().get().await.unwrap();
        sql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{application}'"
        ))
        .await;
        let is_closed = async || client.is_closed().then_some(());
        eventually("the connection is closed", is_closed).await;
    }
    assert_eq!(count(&own, &rows).await, 3);
}

#[tokio::test]
async fn a_statement_timeout_says_which_setting_it_is() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    // Other statements take as long as they like.
    let hasty = || Sql::new("SET LOCAL statement_timeout = '100ms'");
    let slow = || Sql::new(format!("INSERT INTO {rows} SELECT 1 FROM pg_sleep(120)"));
    let once = engine(store.clone()).claimless();
    let open = once.run(Key::new("op", "open"), None, async |claim| {
        let tx = store.transaction(&claim).await?;
        tx.batch_execute("SELECT 1").await?;
        claim.write(hasty())?;
        claim.write(slow())?;
        Ok(1)
    });
    let open = open.await;
    assert_matches!(open, Err(Error::NotCommitted(_)));
    // The engine sends the writes of a claim again until its time is over.
    let writes = [Write::from(hasty()), Write::from(slow())];
    let commit = Commit::new("token", None, &writes);
    let claim = store.commit(commit, Instant::now() + MINUTE).await;
    for error in [store_error(open), claim.unwrap_err()] {
        assert_eq!(problem(&error), Problem::Cancelled);
        says(&error, "raise the role's `statement_timeout`");
    }
    assert_eq!(count(&store, &rows).await, 0);
    assert!(add(&store, &rows, "open").await.is_ok());
    assert_eq!(count(&store, &rows).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_cross_end_one_transaction_and_its_retry_runs() {
    let store = store().await;
    let rows = table(&store, "id bigint, n bigint").await;
    sql(&format!("INSERT INTO {rows} VALUES (1, 0), (2, 0)")).await;
    let both_hold_one = Arc::new(Barrier::new(2));
    let crossing = async |token: &'static str, order: [i64; 2], meets: Option<Arc<Barrier>>| {
        let engine = engine(store.clone());
        let done = transact(&engine, Key::new("op", token), None, async |tx| {
            let add = format!("UPDATE {rows} SET n = n + 1 WHERE id = $1");
            tx.execute(&add, &[&order[0]]).await?;
            if let Some(meets) = meets {
                meets.wait().await;
            }
            tx.execute(&add, &[&order[1]]).await?;
            Ok::<i64, Failed>(1)
        });
        done.await
    };
    let (first, second) = tokio::join!(
        crossing("a", [1, 2], Some(Arc::clone(&both_hold_one))),
        crossing("b", [2, 1], Some(Arc::clone(&both_hold_one))),
    );
    let failed: Vec<_> = [&first, &second]
        .into_iter()
        .filter(|d| d.is_err())
        .collect();
    let [Err(Error::Handler(Failed::Sql(error)))] = failed[..] else {
        panic!("one of them is ended: {first:?} {second:?}");
    };
    assert_eq!(error.code().map(SqlState::code), Some("40P01"));
    for token in ["a", "b"] {
        crossing(token, [1, 2], None).await.unwrap();
    }
    let client = store.pool().get().await.unwrap();
    let sums = client.query(&format!("SELECT n FROM {rows}"), &[]).await;
    let sums: Vec<i64> = sums.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(sums, [2, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_of_writes_that_were_handed_over_is_the_engines_to_repeat() {
    let store = store().await;
    let rows = table(&store, "id bigint, n bigint").await;
    sql(&format!("INSERT INTO {rows} VALUES (1, 0), (2, 0)")).await;
    let gate = Gate::before_commits_to(&rows).await;
    let closed = gate.close().await;
    // The user's own transaction holds row 2. It never looks for a deadlock: the other one is ended.
    let mut own = pool_of(&url(), 1).get().await.unwrap();
    let transaction = own.transaction().await.unwrap();
    let hold =
        format!("SET LOCAL deadlock_timeout = '1h'; UPDATE {rows} SET n = n + 10 WHERE id = 2");
    transaction.batch_execute(&hold).await.unwrap();
    let commit = {
        let (rows, gate) = (rows.clone(), gate.name.clone());
        tokio::spawn(async move {
            let write = |id: i64| {
                Sql::new(format!("UPDATE {rows} SET n = n + 1 WHERE id = $1"))
                    .bind(id)
                    .affects(1)
            };
            let once = engine(store);
            let done = once.run(Key::new("op", "a"), None, async |claim| {
                claim.write(Sql::new("SET LOCAL deadlock_timeout = '10ms'"))?;
                claim.write(write(1))?;
                claim.write(Sql::new(format!(
                    "SELECT pg_advisory_xact_lock_shared(hashtext('{gate}'))"
                )))?;
                claim.write(write(2))?;
                Ok::<i64, Failed>(1)
            });
            done.await.map_err(|error| error.to_string())
        })
    };
    // It has row 1: the user's transaction waits for that, and then it goes on to row 2.
    once_there_is(&waiting_for(&gate.name), "1").await;
    let cross = format!("UPDATE {rows} SET n = n + 10 WHERE id = 1");
    let open = async {
        once_there_is(&waiting_for(&rows), "1").await;
        drop(closed);
    };
    let (crossed, ()) = tokio::join!(transaction.batch_execute(&cross), open);
    crossed.unwrap();
    transaction.commit().await.unwrap();
    assert_matches!(commit.await.unwrap(), Ok(Outcome::Executed(1)));
    let client = pool_of(&url(), 1).get().await.unwrap();
    let sums = client.query(&format!("SELECT n FROM {rows}"), &[]).await;
    let sums: Vec<i64> = sums.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(sums, [11, 11]);
}

#[tokio::test]
async fn a_duplicate_is_answered_while_the_row_of_its_key_is_locked() {
    let (store, keys) = store_of(&url(), 4).await;
    let done = claimed(&engine(store.clone()), "a", Sql::new("SELECT 1")).await;
    assert!(done.is_ok(), "{done:?}");
    let mut own = pool_of(&url(), 1).get().await.unwrap();
    let transaction = own.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM {keys} FOR UPDATE");
    transaction.query(&lock, &[]).await.unwrap();
    // A read doesn't wait for the lock.
    let replayed = claimed(&engine(store), "a", Sql::new("SELECT 1")).await;
    assert_matches!(replayed, Ok(Outcome::Replayed(1, _)));
}
