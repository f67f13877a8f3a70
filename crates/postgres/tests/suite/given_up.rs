//! A request that a client gives up ends on the server, too, and every wait has an end.

use std::sync::Arc;
use std::time::Duration;

use lambda_idempotency::protocol::record::{
    Completion, NewClaim, Owner, RecordWrite, StoredOutcome,
};
use lambda_idempotency::store::Store as _;
use lambda_idempotency::{EpochMillis, EpochSeconds, Error, Key, Outcome, StoreError};
use lambda_idempotency_postgres::outbox::Outbox;
use lambda_idempotency_postgres::{Pool, PostgresStore, Problem, Sql, TransactionError};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::{
    Engine, Failed, MINUTE, count, engine, eventually, name, once_there_is, patient, pool_of,
    problem, refusing, sql, sqlx_store, store_of, table, transact, url, url_with, waiting_for,
};

/// The time to wait for something that never comes.
const SHORT: Duration = Duration::from_millis(300);

/// Drops a handler in the middle of a statement that would take an hour.
async fn a_dropped_run_frees_its_key<P: Pool>(store: PostgresStore<P>) {
    let once = engine(store);
    let slow = name("slow");
    let run = |statement: String| {
        let once = &once;
        transact(once, Key::new("op", "a"), None, async move |tx| {
            let done = tx.apply(&Sql::new(statement)).await;
            done.map_err(|_| Failed::Own)?;
            Ok::<i64, Failed>(1)
        })
    };
    let asleep = format!("wait_event = 'PgSleep' AND position('{slow}' IN query) > 0");
    tokio::select! {
        done = run(format!("SELECT pg_sleep(3600) AS {slow}")) => panic!("{done:?}"),
        () = once_there_is(&asleep, "1") => {}
    }
    let again = run("SELECT 1".to_owned()).await;
    assert_matches!(again, Ok(Outcome::Executed(1)));
}

#[tokio::test]
async fn a_handler_that_is_dropped_in_a_statement_frees_its_key() {
    a_dropped_run_frees_its_key(store_of(&url(), 2).await.0).await;
    a_dropped_run_frees_its_key(sqlx_store().await).await;
}

/// Locks the records against writes, as a migration does, calls this, and waits until nothing on the
/// server waits for the lock any more before it is released.
async fn while_locked(keys: &str, given_up: impl AsyncFnOnce()) {
    let mut client = pool_of(&url(), 1).get().await.unwrap();
    let migration = client.transaction().await.unwrap();
    let lock = format!("LOCK TABLE {keys} IN SHARE ROW EXCLUSIVE MODE");
    migration.batch_execute(&lock).await.unwrap();
    given_up().await;
    let other = pool_of(&url(), 1).get().await.unwrap();
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE {}",
        waiting_for(keys)
    );
    let none_waits = async || {
        let waiting: i64 = other.query_one(&waiting, &[]).await.unwrap().get(0);
        (waiting == 0).then_some(())
    };
    eventually("nothing waits on the server", none_waits).await;
    migration.commit().await.unwrap();
}

#[tokio::test]
async fn a_claim_that_was_given_up_is_not_written_later() {
    let (store, keys) = store_of(&url(), 4).await;
    engine(store.clone())
        .run(Key::new("op", "before"), None, async |_| Ok::<_, Failed>(1))
        .await
        .unwrap();
    let hasty = Engine::of(store.clone(), |engine| {
        patient(engine).settings(|settings| settings.store_timeout = SHORT)
    });
    let run = async || {
        let run = hasty.run(Key::new("op", "a"), None, async |_| Ok::<_, Failed>(1));
        run.await
    };
    while_locked(&keys, async || {
        let given_up = run().await;
        assert_matches!(given_up, Err(Error::Store(_)));
    })
    .await;
    assert_eq!(count(&store, &keys).await, 1);
    let again = engine(store)
        .run(Key::new("op", "a"), None, async |_| Ok::<_, Failed>(1))
        .await;
    assert_matches!(again, Ok(Outcome::Executed(1)));
}

#[tokio::test]
async fn a_locked_table_is_no_other_run_and_its_wait_has_an_end() {
    let (store, keys) = store_of(&url(), 4).await;
    let hasty = refusing(store.clone().timeout(SHORT));
    let run = || {
        transact(&hasty, Key::new("op", "a"), None, async |_| {
            Ok::<_, Failed>(1)
        })
    };
    run().await.unwrap();
    let other = || {
        transact(&hasty, Key::new("op", "b"), None, async |_| {
            Ok::<_, Failed>(1)
        })
    };
    while_locked(&keys, async || {
        let given_up = other().await;
        let is_unopened = matches!(
            given_up,
            Err(Error::Handler(Failed::Transaction(
                TransactionError::Store(_)
            )))
        );
        assert!(is_unopened, "{given_up:?}");
    })
    .await;
    let patient = refusing(store);
    let again = transact(&patient, Key::new("op", "b"), None, async |_| {
        Ok::<_, Failed>(1)
    });
    assert_matches!(again.await, Ok(Outcome::Executed(1)));
}

#[tokio::test]
async fn a_sweep_of_an_outbox_that_was_given_up_waits_for_no_lock() {
    let (store, _) = store_of(&url(), 1).await;
    let rows = name("outbox");
    let outbox = Outbox::new(&rows).unwrap();
    sql(&outbox.statements()).await;
    let hasty = store.timeout(SHORT);
    while_locked(&rows, async || {
        let given_up = outbox.sweep(&hasty, EpochMillis(0), 1).await;
        assert!(given_up.is_err(), "{given_up:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_of_an_open_transaction_fill_neither_the_pool_nor_the_server() {
    let (store, keys) = store_of(&url(), 2).await;
    let rows = table(&store, "n bigint").await;
    let application = name("duplicates");
    let parameters = format!("application_name={application}");
    let pool = pool_of(&url_with("postgres", "postgres", &parameters), 2);
    let other = PostgresStore::with_table(pool, &keys).unwrap();
    let held = engine(store.clone());
    let held = transact(&held, Key::new("op", "a"), None, async |tx| {
        tx.batch_execute(&format!("INSERT INTO {rows} VALUES (1)"))
            .await?;
        let other = Arc::new(refusing(other));
        for _ in 0..5 {
            let four = (0..4).map(|_| {
                transact(&*other, Key::new("op", "a"), None, async |_| {
                    Ok::<i64, Failed>(1)
                })
            });
            for met in futures_util::future::join_all(four).await {
                assert_matches!(met, Err(Error::InFlight { .. }));
            }
        }
        let look = pool_of(&url(), 1).get().await.unwrap();
        let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        let connections: i64 = look.query_one(connections, &[&application]).await?.get(0);
        assert!(connections <= 3, "{connections}");
        let another = transact(&*other, Key::new("op", "b"), None, async |_| {
            Ok::<i64, Failed>(1)
        });
        assert_matches!(another.await, Ok(Outcome::Executed(1)));
        Ok::<i64, Failed>(1)
    });
    assert_matches!(held.await, Ok(Outcome::Executed(1)));
    assert_eq!(count(&store, &rows).await, 1);
}

#[tokio::test]
async fn without_a_deadline_a_silent_server_and_a_full_pool_are_waited_for_no_longer() {
    // It accepts connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let silent_url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let hung = PostgresStore::new(pool_of(&silent_url, 2)).timeout(SHORT);
    let (full, _) = store_of(&url(), 1).await;
    let full = full.timeout(SHORT);
    let _taken = full.pool().get().await.unwrap();
    for (store, problem) in [(hung, Problem::NoAnswer), (full, Problem::PoolExhausted)] {
        let once = Engine::of(store.clone(), |engine| {
            engine.settings(|settings| settings.store_timeout = SHORT)
        });
        let open = transact(&once, Key::new("op", "a"), None, async |_| {
            Ok::<i64, Failed>(1)
        });
        let open = tokio::time::timeout(MINUTE, open).await.unwrap();
        let Err(Error::Handler(Failed::Transaction(TransactionError::Store(error)))) = open else {
            panic!("{open:?}");
        };
        let is_silent = problem == Problem::NoAnswer;
        assert_eq!(matches!(error, StoreError::Timeout), is_silent, "{error:?}");
        let swept = store.sweep(std::time::SystemTime::now().into(), 1);
        let swept = tokio::time::timeout(MINUTE, swept).await.unwrap();
        assert_eq!(swept.unwrap_err().problem(), problem);
    }
    let hung = PostgresStore::new(pool_of(&silent_url, 2)).timeout(SHORT);
    let made = tokio::time::timeout(MINUTE, hung.create_tables()).await;
    assert_eq!(made.unwrap().unwrap_err().problem(), Problem::NoAnswer);
}

#[tokio::test]
async fn the_longest_timeout_is_one() {
    let (store, _) = store_of(&url(), 1).await;
    let patient = store.timeout(Duration::MAX);
    patient.create_tables().await.unwrap();
    patient.sweep(EpochMillis(0), 1).await.unwrap();
    let outbox = Outbox::new(&name("outbox")).unwrap();
    sql(&outbox.statements()).await;
    outbox.sweep(&patient, EpochMillis(0), 1).await.unwrap();
    let once = engine(patient);
    let run = transact(&once, Key::new("op", "a"), None, async |_| {
        Ok::<i64, Failed>(1)
    });
    assert_matches!(run.await, Ok(Outcome::Executed(1)));
}

#[tokio::test]
async fn a_claim_that_gave_up_on_an_open_transaction_is_not_written_later() {
    let (store, keys) = store_of(&url(), 4).await;
    let key = || Key::new("op", "a");
    let hasty = Engine::of(store.clone(), |engine| {
        patient(engine).settings(|settings| settings.store_timeout = SHORT)
    });
    let once = engine(store.clone());
    let held = transact(&once, key(), None, async |_| {
        let met = hasty.run(key(), None, async |_| Ok::<i64, Failed>(1)).await;
        assert_matches!(met, Err(Error::Store(_)));
        Err::<i64, _>(Failed::Own)
    });
    assert_matches!(held.await, Err(Error::Handler(Failed::Own)));
    let look = pool_of(&url(), 1).get().await.unwrap();
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE {}",
        waiting_for(&keys)
    );
    let waiting: i64 = look.query_one(&waiting, &[]).await.unwrap().get(0);
    assert_eq!(waiting, 0);
    assert_eq!(count(&store, &keys).await, 0);
}

/// The caller of each sends it alone then: beside a pool that is full, all over one connection.
#[tokio::test]
async fn a_locked_record_holds_up_no_other_of_its_group() {
    let (store, keys) = store_of(&url(), 1).await;
    let once = engine(store.clone());
    let soon = Instant::now() + MINUTE;
    let (now, later) = (EpochMillis(1), EpochSeconds(4_102_444_800));
    let owner = Owner::from_stored("me");
    let mut completions = Vec::new();
    for token in ["a", "b", "c"] {
        let id = once.record_id(&Key::new("op", token)).unwrap();
        let claim = NewClaim::new(id.clone(), owner.clone(), now, EpochMillis(9), later);
        assert!(store.write(&claim.into(), soon).await.unwrap().is_applied());
        let outcome = StoredOutcome::Inline("1".to_owned());
        let completion = Completion::new(id, owner.clone(), outcome, now, later);
        completions.push(RecordWrite::from(completion));
    }
    let mut client = pool_of(&url(), 1).get().await.unwrap();
    let other = client.transaction().await.unwrap();
    let lock = format!("SELECT FROM {keys} WHERE id = $1 FOR UPDATE");
    let locked = completions[0].id().as_str();
    assert_eq!(other.execute(&lock, &[&locked]).await.unwrap(), 1);
    let answers = store.write_all(&completions, soon).await;
    let are_left = answers
        .iter()
        .all(|answer| matches!(answer, Err(StoreError::NotSent)));
    assert!(are_left, "{answers:?}");
    let _taken = store.pool().get().await.unwrap();
    let alone = completions
        .iter()
        .map(|completion| store.write(completion, soon));
    let alone = futures_util::future::join_all(alone);
    let mut alone = tokio::time::timeout(MINUTE / 2, alone).await.unwrap();
    for answer in alone.drain(1..) {
        assert!(answer.unwrap().is_applied());
    }
    let locked = alone.remove(0).unwrap_err();
    assert_eq!(problem(&locked), Problem::Locked);
    other.commit().await.unwrap();
    let answer = store.write(&completions[0], soon).await;
    assert!(answer.unwrap().is_applied());
}

#[tokio::test]
async fn the_handlers_own_lock_timeout_stays_what_it_was() {
    let (store, _) = store_of(&url(), 1).await;
    let once = engine(store.clone());
    for (token, limit) in [("a", "0"), ("b", "7s")] {
        let client = store.pool().get().await.unwrap();
        let set = format!("SET lock_timeout = '{limit}'");
        client.batch_execute(&set).await.unwrap();
        drop(client);
        let run = transact(&once, Key::new("op", token), None, async |tx| {
            let row = tx.query_one("SHOW lock_timeout", &[]).await?;
            Ok::<String, Failed>(row.get(0))
        });
        assert_eq!(run.await.unwrap().into_inner(), limit);
    }
}
