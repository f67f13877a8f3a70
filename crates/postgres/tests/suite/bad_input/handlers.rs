//! Handlers that do with their open transaction what they must not.

use lambda_idempotency::{Claim, Error, Key, Outcome, StoreError};
use lambda_idempotency_postgres::Problem;

use super::{Done, add, add_by, insert, says, store_error};
use crate::support::bouncer::bouncer;
use crate::support::{
    Engine, Failed, Store, count, engine, name, problem, refusing, sql, sqlx_store, store,
    store_of, stores, table, transact, url,
};

async fn transacted(
    store: &Store,
    rows: &str,
    handler: impl AsyncFnOnce(&mut super::Tx) -> Result<(), Failed>,
) -> Done {
    transact(
        &engine(store.clone()),
        Key::new("op", "a"),
        None,
        async |tx| {
            insert(tx, rows).await?;
            handler(tx).await?;
            Ok(1)
        },
    )
    .await
}

/// Inserts a row under a claim, perhaps before a statement that breaks, and doesn't tell.
async fn inserted(
    engine: &Engine<deadpool_postgres::Pool>,
    rows: &str,
    token: &str,
    breaks: bool,
) -> Done {
    let handler = async |claim: Claim| {
        let tx = engine.store.transaction(&claim).await?;
        insert(&tx, rows).await?;
        if breaks {
            let _ = tx.batch_execute("SELECT 1 / 0").await;
        }
        Ok::<_, Failed>(1)
    };
    engine.once.run(Key::new("op", token), None, handler).await
}

#[tokio::test]
async fn a_swallowed_error_of_a_statement_commits_nothing() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    let done = transacted(&store, &rows, async |tx| {
        let _ = tx.batch_execute("SELECT 1 / 0").await;
        Ok(())
    })
    .await;
    assert_matches!(done, Err(Error::NotCommitted(_)));
    let error = store_error(done);
    assert_matches!(error, StoreError::Rejected(_));
    assert_eq!(problem(&error), Problem::Aborted);
    says(&error, "return the statement's error from the handler");
    assert_eq!(count(&store, &rows).await, 0);
    assert_matches!(add(&store, &rows, "a").await, Ok(Outcome::Executed(1)));
}

#[tokio::test]
async fn a_swallowed_error_behind_a_savepoint_is_the_handlers_business() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    let done = transacted(&store, &rows, async |tx| {
        tx.batch_execute("SAVEPOINT s").await?;
        let _ = tx.batch_execute("SELECT 1 / 0").await;
        tx.batch_execute("ROLLBACK TO s").await?;
        Ok(())
    })
    .await;
    assert_matches!(done, Ok(Outcome::Executed(1)));
    assert!(add(&store, &rows, "a").await.unwrap().is_replayed());
    assert_eq!(count(&store, &rows).await, 1);
}

/// A claim, so that no row holds the record's place: the commit itself must notice.
#[tokio::test]
async fn a_swallowed_error_under_a_claim_commits_nothing() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    let once = engine(store.clone());
    let refused = inserted(&once, &rows, "a", true).await;
    assert_eq!(problem(&store_error(refused)), Problem::Aborted);
    assert_eq!(count(&store, &rows).await, 0);
    let done = inserted(&once, &rows, "a", false).await;
    assert_matches!(done, Ok(Outcome::Executed(1)));
    assert_eq!(count(&store, &rows).await, 1);
}

#[tokio::test]
async fn a_transaction_without_protection_commits_unless_a_statement_failed() {
    let store = store().await;
    for observes in [false, true] {
        let rows = table(&store, "n bigint").await;
        let once = Engine::of(store.clone(), |builder| {
            if observes {
                builder.observe(true)
            } else {
                builder.disabled(true)
            }
        });
        let done = inserted(&once, &rows, "a", false).await;
        assert!(done.is_ok(), "{observes}: {done:?}");
        assert_eq!(count(&store, &rows).await, 1, "{observes}");
        let refused = inserted(&once, &rows, "b", true).await;
        assert_eq!(problem(&store_error(refused)), Problem::Aborted);
        assert_eq!(count(&store, &rows).await, 1, "{observes}");
        let done = transact(&once, Key::new("op", "c"), None, async |tx| {
            insert(tx, &rows).await?;
            Ok::<i64, Failed>(1)
        });
        let done = done.await;
        assert!(done.is_ok(), "{observes}: {done:?}");
        assert_eq!(count(&store, &rows).await, 2, "{observes}");
    }
}

#[tokio::test]
async fn a_handler_that_sends_commit_runs_once_and_is_told_to_leave_it() {
    for statement in ["COMMIT", "COMMIT; BEGIN", "COMMIT AND CHAIN"] {
        let (store, elsewhere) = stores().await;
        let rows = table(&store, "n bigint").await;
        let done = transacted(&store, &rows, async |tx| {
            Ok(tx.batch_execute(statement).await?)
        })
        .await;
        let duplicate = add(&elsewhere, &rows, "a").await;
        // Its row is kept for as long as a record.
        store
            .sweep(std::time::SystemTime::now().into(), 10)
            .await
            .unwrap();
        for done in [done, duplicate, add(&store, &rows, "a").await] {
            let Err(Error::Unreadable(reason)) = done else {
                panic!("{statement}: {done:?}");
            };
            assert!(reason.contains("remove COMMIT"), "{reason}");
        }
        assert_eq!(count(&store, &rows).await, 1, "{statement}");
    }
}

#[tokio::test]
async fn a_handler_that_fails_behind_its_commit_runs_once_on_a_fresh_key() {
    for statement in ["COMMIT", "COMMIT; BEGIN", "COMMIT AND CHAIN"] {
        let (store, records) = store_of(&url(), 8).await;
        let rows = table(&store, "n bigint").await;
        let failed = transacted(&store, &rows, async |tx| {
            tx.batch_execute(statement).await?;
            Err(Failed::Own)
        })
        .await;
        assert_matches!(failed, Err(Error::Handler(Failed::Own)), "{statement}");
        for _ in 0..2 {
            let again = add(&store, &rows, "a").await;
            let Err(Error::Unreadable(reason)) = again else {
                panic!("{statement}: {again:?}");
            };
            assert!(reason.contains("remove COMMIT"), "{reason}");
        }
        assert_eq!(count(&store, &rows).await, 1, "{statement}");
        // As an operator does who has looked at the rows.
        sql(&format!("DELETE FROM {records} WHERE status = 'OPEN'")).await;
        let again = add(&store, &rows, "a").await;
        assert_matches!(again, Ok(Outcome::Executed(1)));
    }
}

#[tokio::test]
async fn a_handler_that_fails_behind_its_commit_runs_again_without_a_place() {
    let store = store().await;
    for is_claimed in [true, false] {
        let rows = table(&store, "n bigint").await;
        let token = is_claimed.to_string();
        release(&store, &token).await;
        let once = engine(store.clone()).once;
        let once = if is_claimed { once } else { once.claimless() };
        let commits = async |claim: Claim| {
            let tx = store.transaction(&claim).await?;
            insert(&tx, &rows).await?;
            tx.batch_execute("COMMIT").await?;
            Err::<i64, _>(Failed::Own)
        };
        let failed = once
            .run(Key::new("op", token.as_str()), None, commits)
            .await;
        assert_matches!(failed, Err(Error::Handler(Failed::Own)), "{is_claimed}");
        let again = run_over(&store, is_claimed, &token, &rows, "SELECT 1").await;
        assert_matches!(again, Ok(Outcome::Executed(1)), "{is_claimed}");
        assert_eq!(count(&store, &rows).await, 2, "{is_claimed}");
    }
}

#[tokio::test]
async fn a_handler_that_sends_rollback_gets_an_error_and_runs_again() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    let done = transacted(&store, &rows, async |tx| {
        Ok(tx.batch_execute("ROLLBACK").await?)
    })
    .await;
    let error = store_error(done);
    assert_eq!(problem(&error), Problem::Over);
    says(&error, "the handler sent ROLLBACK itself");
    assert_eq!(count(&store, &rows).await, 0);
    assert_matches!(add(&store, &rows, "a").await, Ok(Outcome::Executed(1)));
    assert_eq!(count(&store, &rows).await, 1);
}

/// Leaves a released record: of a handler that failed.
async fn release(store: &Store, token: &str) {
    let failing = async |_: Claim| Err::<i64, _>(Failed::Own);
    let failed = engine(store.clone())
        .run(Key::new("op", token), None, failing)
        .await;
    assert_matches!(failed, Err(Error::Handler(Failed::Own)));
}

/// Runs with a transaction under a claim, or over a record that an earlier run has released. The
/// handler swallows the error of what ends the transaction.
async fn run_over(store: &Store, is_claimed: bool, token: &str, rows: &str, ends: &str) -> Done {
    let once = engine(store.clone());
    let handler = async |claim: Claim| {
        let tx = store.transaction(&claim).await?;
        insert(&tx, rows).await?;
        let _ = tx.batch_execute(ends).await;
        Ok::<i64, Failed>(1)
    };
    let key = Key::new("op", token);
    if is_claimed {
        once.run(key, None, handler).await
    } else {
        once.claimless().run(key, None, handler).await
    }
}

/// Handlers end the transaction under a claim, and one that locks a released record: neither has the record's place in it.
async fn a_handler_that_ends_its_transaction_is_noticed(store: Store) {
    let rows = table(&store, "n bigint").await;
    let mut committed = 0;
    for (place, is_claimed) in [(0, true), (1, false)] {
        let commits = [
            "COMMIT",
            "COMMIT; BEGIN",
            "COMMIT AND CHAIN",
            "COMMIT; BEGIN; SELECT 1 / 0",
        ];
        for (number, ends) in commits.iter().enumerate() {
            let token = format!("commit-{place}-{number}");
            release(&store, &token).await;
            let first = run_over(&store, is_claimed, &token, &rows, ends).await;
            assert_matches!(
                first,
                Err(Error::LeaseLost | Error::Unreadable(_)),
                "{ends}"
            );
            committed += 1;
            for _ in 0..2 {
                let again = run_over(&store, is_claimed, &token, &rows, "SELECT 1").await;
                let Err(Error::Unreadable(reason)) = again else {
                    panic!("{ends}: {again:?}");
                };
                assert!(reason.contains("remove COMMIT"), "{reason}");
            }
            assert_eq!(count(&store, &rows).await, committed, "{ends}");
        }
        for (number, ends) in ["ROLLBACK", "ROLLBACK; BEGIN", "ROLLBACK AND CHAIN"]
            .iter()
            .enumerate()
        {
            let token = format!("rollback-{place}-{number}");
            release(&store, &token).await;
            let first = run_over(&store, is_claimed, &token, &rows, ends).await;
            assert_matches!(first, Err(Error::NotCommitted(_)), "{ends}");
            assert_eq!(problem(&store_error(first)), Problem::Over, "{ends}");
            assert_eq!(count(&store, &rows).await, committed, "{ends}");
            let again = run_over(&store, is_claimed, &token, &rows, "SELECT 1").await;
            assert_matches!(again, Ok(Outcome::Executed(1)), "{ends}");
            committed += 1;
            assert_eq!(count(&store, &rows).await, committed, "{ends}");
        }
        let token = format!("savepoint-{place}");
        release(&store, &token).await;
        let ends = "SAVEPOINT s; SELECT 1; ROLLBACK TO s";
        let done = run_over(&store, is_claimed, &token, &rows, ends).await;
        assert_matches!(done, Ok(Outcome::Executed(1)));
        committed += 1;
    }
}

#[tokio::test]
async fn a_handler_that_ends_a_transaction_without_a_place_is_noticed() {
    a_handler_that_ends_its_transaction_is_noticed(store().await).await;
}

#[tokio::test]
async fn a_handler_that_ends_its_transaction_is_noticed_through_a_proxy() {
    let (_bouncer, through) = bouncer(&url()).await;
    a_handler_that_ends_its_transaction_is_noticed(store_of(&through, 2).await.0).await;
}

/// A driver's own transaction within ours: its `COMMIT` and its `ROLLBACK` end ours.
#[tokio::test]
async fn a_drivers_nested_transaction_is_noticed() {
    let (store, sqlx) = (store().await, sqlx_store().await);
    let rows = table(&store, "n bigint").await;
    let (once, on_sqlx) = (engine(store.clone()), engine(sqlx.clone()));
    let insert = format!("INSERT INTO {rows} VALUES (1)");
    let mut committed = 0;
    for commits in [false, true] {
        let key = || Key::new("op", format!("{commits}"));
        let nested = once.run(key(), None, async |claim| {
            let mut tx = store.transaction(&claim).await?;
            let nested = tx.transaction().await?;
            nested.batch_execute(&insert).await?;
            if commits {
                nested.commit().await?;
            } else {
                nested.rollback().await?;
            }
            Ok::<i64, Failed>(1)
        });
        let on_sqlx = on_sqlx.run(key(), None, async |claim| {
            let mut tx = sqlx.transaction(&claim).await?;
            let mut nested = sqlx::Connection::begin(&mut *tx).await?;
            let insert = sqlx::query(sqlx::AssertSqlSafe(insert.clone()));
            insert.persistent(false).execute(&mut *nested).await?;
            if commits {
                nested.commit().await?;
            }
            Ok::<i64, Failed>(1)
        });
        for done in [nested.await, on_sqlx.await] {
            match done {
                Err(Error::LeaseLost) if commits => committed += 1,
                Err(Error::NotCommitted(error)) if !commits => {
                    assert_eq!(problem(&error), Problem::Over);
                }
                other => panic!("{commits}: {other:?}"),
            }
        }
        assert_eq!(count(&store, &rows).await, committed);
    }
}

#[tokio::test]
async fn a_handler_that_leaves_a_role_without_privileges_is_told_to_reset_it() {
    let store = store().await;
    let (role, rows) = (name("role"), table(&store, "n bigint").await);
    sql(&format!(
        "CREATE ROLE {role}; GRANT INSERT ON {rows} TO {role}"
    ))
    .await;
    let run = async |last: &'static str| {
        let done = transacted(&store, &rows, async |tx| {
            tx.batch_execute(&format!("SET LOCAL ROLE {role}")).await?;
            insert(tx, &rows).await?;
            Ok(tx.batch_execute(last).await?)
        });
        done.await
    };
    let refused = store_error(run("SELECT 1").await);
    assert_eq!(problem(&refused), Problem::NoPrivilege);
    says(&refused, "sends `RESET ROLE` last");
    assert_eq!(count(&store, &rows).await, 0);
    assert_matches!(run("RESET ROLE").await, Ok(Outcome::Executed(1)));
    assert_eq!(count(&store, &rows).await, 2);
}

#[tokio::test]
async fn a_transaction_that_a_spawned_task_keeps_is_not_committed() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    let engine = engine(store.clone());
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let (kept, keeps) = tokio::sync::oneshot::channel();
    let done = engine
        .claimless()
        .run(Key::new("op", "a"), None, async |claim| {
            let tx = store.transaction(&claim).await?;
            insert(&tx, &rows).await?;
            let task = tokio::spawn(async move {
                let _ = ended.await;
                drop(tx);
            });
            let _ = kept.send(task);
            Ok::<i64, Failed>(1)
        })
        .await;
    let error = store_error(done);
    assert_eq!(problem(&error), Problem::InUse);
    says(&error, "drop it before the handler returns");
    // Its place is taken for as long as the task keeps it.
    let met = add_by(&refusing(store.clone()), &rows, "a").await;
    assert_matches!(met, Err(Error::InFlight { .. }));
    end.send(()).unwrap();
    keeps.await.unwrap().await.unwrap();
    let again = add(&store, &rows, "a").await;
    assert_matches!(again, Ok(Outcome::Executed(1)));
    assert_eq!(count(&store, &rows).await, 1);
}

#[tokio::test]
async fn a_transaction_after_the_handlers_end_is_refused() {
    let store = store().await;
    let engine = engine(store.clone());
    let mut kept = None;
    let done = engine
        .claimless()
        .run(Key::new("op", "a"), None, async |claim| {
            kept = Some(claim);
            Err::<i64, _>(Failed::Own)
        })
        .await;
    assert_matches!(done, Err(Error::Handler(Failed::Own)));
    let late = store.transaction(&kept.unwrap()).await;
    let words = late.unwrap_err().to_string();
    assert!(words.contains("the handler has returned"), "{words}");
}
