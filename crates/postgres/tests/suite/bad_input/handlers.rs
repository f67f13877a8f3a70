//! Handlers that do with their open transaction what they must not.

use lambda_idempotency::{Error, Key, Outcome, StoreError};
use lambda_idempotency_postgres::Problem;

use super::{Done, add, add_by, insert, says, store_error};
use crate::support::{
    Failed, Store, count, engine, problem, refusing, store, stores, table, transact,
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

#[tokio::test]
async fn a_swallowed_error_of_a_statement_commits_nothing() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    let done = transacted(&store, &rows, async |tx| {
        let _ = tx.batch_execute("SELECT 1 / 0").await;
        Ok(())
    })
    .await;
    assert!(matches!(done, Err(Error::NotCommitted(_))), "{done:?}");
    let error = store_error(done);
    assert!(matches!(error, StoreError::Rejected(_)), "{error:?}");
    assert_eq!(problem(&error), Problem::Aborted);
    says(&error, "return the statement's error from the handler");
    assert_eq!(count(&store, &rows).await, 0);
    assert!(matches!(
        add(&store, &rows, "a").await,
        Ok(Outcome::Executed(1))
    ));
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
    assert!(matches!(done, Ok(Outcome::Executed(1))), "{done:?}");
    assert!(add(&store, &rows, "a").await.unwrap().is_replayed());
    assert_eq!(count(&store, &rows).await, 1);
}

/// A claim, so that no row holds the record's place: the commit itself must notice.
#[tokio::test]
async fn a_swallowed_error_under_a_claim_commits_nothing() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    let run = async |breaks: bool| {
        engine(store.clone())
            .run(Key::new("op", "a"), None, async |claim| {
                let tx = store.transaction(&claim).await?;
                insert(&tx, &rows).await?;
                if breaks {
                    let _ = tx.batch_execute("SELECT 1 / 0").await;
                }
                Ok::<i64, Failed>(1)
            })
            .await
    };
    assert_eq!(problem(&store_error(run(true).await)), Problem::Aborted);
    assert_eq!(count(&store, &rows).await, 0);
    assert!(matches!(run(false).await, Ok(Outcome::Executed(1))));
    assert_eq!(count(&store, &rows).await, 1);
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
    assert!(matches!(
        add(&store, &rows, "a").await,
        Ok(Outcome::Executed(1))
    ));
    assert_eq!(count(&store, &rows).await, 1);
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
    assert!(matches!(met, Err(Error::InFlight { .. })), "{met:?}");
    end.send(()).unwrap();
    keeps.await.unwrap().await.unwrap();
    let again = add(&store, &rows, "a").await;
    assert!(matches!(again, Ok(Outcome::Executed(1))), "{again:?}");
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
    assert!(matches!(done, Err(Error::Handler(Failed::Own))));
    let late = store.transaction(&kept.unwrap()).await;
    let words = late.unwrap_err().to_string();
    assert!(words.contains("the handler has returned"), "{words}");
}
