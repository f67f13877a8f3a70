//! The open transaction, by itself.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    AtDeadline, Claim, Clock, Error, Fingerprint, InFlight, Key, OnCrash, Outcome, Verdict,
};
use lambda_idempotency_postgres::{PostgresStore, Transaction};
use tokio::sync::Notify;

use crate::support::{
    Engine, Failed, MINUTE, Store, count, engine, once_there_is, patient, pool_of, refusing,
    sqlx_store, store, store_of, stores, table, transact, url, waiting_for,
};

type Tx = Transaction<deadpool_postgres::Pool>;

async fn insert(tx: &Tx, table: &str) -> Result<i64, Failed> {
    tx.execute(&format!("INSERT INTO {table} VALUES (1)"), &[])
        .await?;
    let row = tx
        .query_one(&format!("SELECT count(*) FROM {table}"), &[])
        .await?;
    Ok(row.get(0))
}

async fn once(store: &Store, table: &str, token: &str) -> Result<Outcome<i64>, Error<Failed>> {
    by(&engine(store.clone()), table, token).await
}

async fn by(
    engine: &Engine<deadpool_postgres::Pool>,
    table: &str,
    token: &str,
) -> Result<Outcome<i64>, Error<Failed>> {
    transact(
        engine,
        Key::new("op", token),
        Fingerprint::json(b"{}"),
        async |tx| insert(tx, table).await,
    )
    .await
}

#[tokio::test]
async fn the_rows_and_the_record_commit_together_and_a_duplicate_replays() {
    let store = store().await;
    let table = table(&store, "n bigint").await;
    assert_matches!(
        once(&store, &table, "a").await.unwrap(),
        Outcome::Executed(1)
    );
    for _ in 0..3 {
        assert_matches!(
            once(&store, &table, "a").await.unwrap(),
            Outcome::Replayed(1, _)
        );
    }
    assert_matches!(
        once(&store, &table, "b").await.unwrap(),
        Outcome::Executed(2)
    );
    assert_eq!(count(&store, &table).await, 2);
}

#[tokio::test]
async fn an_error_rolls_back_and_a_retry_runs() {
    let store = store().await;
    let table = table(&store, "n bigint").await;
    let engine = engine(store.clone());
    let failed: Result<Outcome<i64>, _> =
        transact(&engine, Key::new("op", "a"), None, async |tx| {
            insert(tx, &table).await?;
            Err(Failed::Own)
        })
        .await;
    assert_matches!(failed, Err(Error::Handler(Failed::Own)));
    assert_eq!(count(&store, &table).await, 0);
    assert_matches!(
        once(&store, &table, "a").await.unwrap(),
        Outcome::Executed(1)
    );
}

#[tokio::test]
async fn a_permanent_failure_is_stored_without_the_rows() {
    let store = store().await;
    let table = table(&store, "n bigint").await;
    let engine = engine(store.clone());
    let fail = || {
        store.transact_with(
            &engine,
            Key::new("op", "a"),
            None,
            async |tx| {
                insert(tx, &table).await?;
                Err::<i64, _>(Failed::Own)
            },
            |_| Verdict::Fail,
        )
    };
    assert_matches!(fail().await, Err(Error::Handler(Failed::Own)));
    let again = fail().await;
    assert_matches!(again, Err(Error::Failed(_)));
    assert_eq!(count(&store, &table).await, 0);
}

#[tokio::test]
async fn another_payload_is_a_mismatch() {
    let store = store().await;
    let table = table(&store, "n bigint").await;
    once(&store, &table, "a").await.unwrap();
    let engine = engine(store.clone());
    let other = transact(
        &engine,
        Key::new("op", "a"),
        Fingerprint::json(b"{\"x\":1}"),
        async |tx| insert(tx, &table).await,
    )
    .await;
    assert_matches!(other, Err(Error::Mismatch));
    assert_eq!(count(&store, &table).await, 1);
}

/// Runs one transaction that stays open until it is told to end, and calls `meanwhile`.
async fn while_open(first: &Store, table: &str, meanwhile: impl AsyncFnOnce(Arc<Notify>)) {
    let (inside, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = {
        let (store, table) = (first.clone(), table.to_owned());
        let (inside, end) = (Arc::clone(&inside), Arc::clone(&end));
        tokio::spawn(async move {
            let engine = engine(store);
            transact(&engine, Key::new("op", "a"), None, async |tx| {
                let rows = insert(tx, &table).await;
                inside.notify_one();
                end.notified().await;
                rows
            })
            .await
            .map(Outcome::into_inner)
            .map_err(|error| error.to_string())
        })
    };
    inside.notified().await;
    meanwhile(Arc::clone(&end)).await;
    end.notify_one();
    assert_eq!(running.await.unwrap(), Ok(1));
}

#[tokio::test]
async fn a_concurrent_duplicate_is_in_flight_in_this_process_and_in_another() {
    let (store, elsewhere) = stores().await;
    let table = table(&store, "n bigint").await;
    while_open(&store, &table, async |_| {
        for store in [&store, &elsewhere] {
            let met = by(&refusing(store.clone()), &table, "a").await;
            assert_matches!(
                met,
                Err(Error::InFlight { retry_after, .. }) if retry_after > Duration::ZERO
            );
        }
    })
    .await;
    assert_eq!(count(&store, &table).await, 1);
    assert_matches!(
        once(&elsewhere, &table, "a").await.unwrap(),
        Outcome::Replayed(1, _)
    );
}

/// However long it could have waited when its run began.
#[tokio::test]
async fn a_duplicate_that_opens_at_the_end_of_its_time_is_in_flight() {
    const DAY: Duration = Duration::from_hours(24);
    let (store, elsewhere) = stores().await;
    let table = table(&store, "n bigint").await;
    while_open(&store, &table, async |_| {
        for store in [&store, &elsewhere] {
            let clock = ManualClock::default();
            let once = Engine::of(store.clone(), |builder| {
                let builder = patient(builder).clock(clock.clone());
                builder.in_flight(InFlight::WaitUpTo(DAY))
            });
            let once = once.until(SystemTime::from(clock.now()) + DAY).claimless();
            let met = once.run(Key::new("op", "a"), None, async |claim| {
                clock.advance(DAY);
                let tx = store.transaction(&claim).await?;
                insert(&tx, &table).await
            });
            let met = tokio::time::timeout(MINUTE, met).await;
            let met = met.expect("it doesn't wait");
            assert_matches!(met, Err(Error::InFlight { .. }));
        }
    })
    .await;
    assert_eq!(count(&store, &table).await, 1);
}

#[tokio::test]
async fn a_concurrent_duplicate_that_may_wait_replays() {
    let (store, keys) = store_of(&url(), 8).await;
    let elsewhere = PostgresStore::with_table(pool_of(&url(), 8), &keys).unwrap();
    let table = table(&store, "n bigint").await;
    while_open(&store, &table, async |end| {
        let duplicates: Vec<_> = [&store, &elsewhere, &store, &elsewhere]
            .into_iter()
            .map(|store| {
                // A lease ends nothing where there is no claim.
                let lease = Duration::from_secs(1);
                let engine = Engine::of(store.clone(), |builder| patient(builder).lease(lease));
                let table = table.clone();
                tokio::spawn(async move { by(&engine, &table, "a").await })
            })
            .collect();
        once_there_is(&waiting_for(&keys), "1").await;
        end.notify_one();
        for duplicate in duplicates {
            let done = duplicate.await.unwrap();
            assert_matches!(done, Ok(Outcome::Replayed(1, _)));
        }
    })
    .await;
    assert_eq!(count(&store, &table).await, 1);
}

#[tokio::test]
async fn sqlx_commits_and_replays_too() {
    let store = sqlx_store().await;
    let table = crate::support::name("rows");
    sqlx::query(sqlx::AssertSqlSafe(format!(
        "CREATE TABLE {table} (n bigint)"
    )))
    .execute(store.pool())
    .await
    .unwrap();
    let engine = engine(store.clone());
    for expected in [false, true, true] {
        let done = transact(&engine, Key::new("op", "a"), None, async |tx| {
            sqlx::query(sqlx::AssertSqlSafe(format!(
                "INSERT INTO {table} VALUES (1)"
            )))
            .execute(&mut **tx)
            .await?;
            Ok::<_, Failed>(7)
        });
        assert_eq!(done.await.unwrap().is_replayed(), expected);
    }
    let rows: i64 =
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
            .fetch_one(store.pool())
            .await
            .unwrap();
    assert_eq!(rows, 1);
}

/// A claim has one transaction, whichever of the calls opens it.
#[tokio::test]
async fn two_transactions_of_one_claim_at_once_lose_no_row() {
    let store = store().await;
    let (waits, fails_fast) = (engine(store.clone()), refusing(store.clone()));
    for (form, once) in [
        ("claim", &*waits),
        ("claimless", &waits.claimless()),
        ("claimless, fails fast", &fails_fast.claimless()),
    ] {
        let table = table(&store, "n bigint").await;
        let inserted = once.run(Key::new("op", form), None, async |claim| {
            let open = async || {
                let tx = store.transaction(&claim).await?;
                insert(&tx, &table).await
            };
            let (first, second) = tokio::join!(open(), open());
            let inserted = [first, second].into_iter().flatten().count();
            Ok::<_, Failed>(i64::try_from(inserted).unwrap())
        });
        let inserted = inserted.await.map(Outcome::into_inner);
        assert_matches!(inserted, Ok(1..), "{form}");
        let rows = count(&store, &table).await;
        assert_eq!(inserted.ok(), Some(rows), "{form}");
    }
}

/// Also where nothing protects it.
#[tokio::test]
async fn a_handler_that_goes_on_after_its_deadline_opens_its_transaction() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    for is_disabled in [false, true] {
        let clock = ManualClock::default();
        let once = Engine::of(store.clone(), |builder| {
            let builder = patient(builder).clock(clock.clone());
            builder
                .disabled(is_disabled)
                .settings(|settings| settings.at_deadline = AtDeadline::GoOn)
        });
        let once = once.until(SystemTime::now() + MINUTE).claimless();
        let done = once.run(Key::new("op", "a"), None, async |claim| {
            clock.advance(2 * MINUTE);
            let tx = store.transaction(&claim).await?;
            insert(&tx, &rows).await
        });
        let done = done.await;
        assert!(done.is_ok(), "{is_disabled}: {done:?}");
    }
    assert_eq!(count(&store, &rows).await, 2);
}

/// By its clock, the lease of what it met is over then.
#[tokio::test]
async fn what_a_transaction_met_counts_whenever_its_handler_returns() {
    let store = store().await;
    let rows = table(&store, "n bigint").await;
    while_open(&store, &rows, async |_| {
        for (on_crash, verdict) in [
            (OnCrash::RunAgain, Verdict::Release),
            (OnCrash::RunAgain, Verdict::Fail),
            (OnCrash::Interrupt, Verdict::Release),
            (OnCrash::RunAgain, Verdict::Complete),
        ] {
            let clock = ManualClock::default();
            let once = Engine::of(store.clone(), |builder| {
                let builder = builder.clock(clock.clone()).on_crash(on_crash);
                builder.settings(|settings| settings.store_timeout = MINUTE)
            });
            let handler = async |claim: Claim| {
                let opened = store.transaction(&claim).await.map(drop);
                clock.advance(MINUTE);
                // Whatever the handler makes of the error.
                match verdict {
                    Verdict::Complete => Ok(()),
                    _ => opened.map_err(Failed::from),
                }
            };
            let once = once.claimless();
            let met = once.run_with(Key::new("op", "a"), None, handler, |_| verdict);
            let met = met.await;
            assert_matches!(
                met,
                Err(Error::InFlight { .. }),
                "{on_crash:?}, {verdict:?}"
            );
        }
    })
    .await;
    assert_eq!(count(&store, &rows).await, 1);
}
