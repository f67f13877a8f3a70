//! The store behind `PgBouncer`, which gives each transaction the next connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lambda_idempotency::Key;
use lambda_idempotency_postgres::{Pool, PostgresStore, Sql, Transaction};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::sync::Barrier;

use crate::support::bouncer::bouncer;
use crate::support::{
    Engine, Failed, MINUTE, count, engine, pool_of, store_of, table, transact, url,
};

/// Adds the row of each key twice, in each form, with many clients at once. In the open transaction, the
/// handler adds it by its own statement.
async fn all_run_once<P: Pool>(
    store: PostgresStore<P>,
    rows: &str,
    own: impl AsyncFn(&mut Transaction<P>, String) -> Result<(), Failed>,
) {
    const CLIENTS: usize = 12;
    const KEYS: usize = 10;
    let once = engine(store);
    let insert = |key: &str| Sql::new(format!("INSERT INTO {rows} VALUES ($1)")).bind(key);
    let client = async |client: usize, once: &Engine<_>| {
        for place in 0..KEYS {
            for is_replayed in [false, true] {
                let key = format!("{rows}-{client}-{place}");
                let open = transact(once, Key::new("open", &*key), None, async |tx| {
                    own(
                        tx,
                        format!("INSERT INTO {rows} VALUES ('{key}') RETURNING key"),
                    )
                    .await?;
                    Ok::<i64, Failed>(1)
                });
                assert_eq!(open.await.unwrap().is_replayed(), is_replayed);
                let claimed = once.run(Key::new("claim", &*key), None, async |claim| {
                    claim.write(insert(&key))?;
                    let noted = claim.step("a", async |_| Ok::<_, Failed>(1)).await;
                    noted.map_err(|_| Failed::Own)?;
                    Ok::<i64, Failed>(1)
                });
                assert_eq!(claimed.await.unwrap().is_replayed(), is_replayed);
            }
        }
    };
    futures_util::future::join_all((0..CLIENTS).map(|number| client(number, &once))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_proxy_that_shares_connections_by_transaction_each_key_runs_once() {
    let (_bouncer, through) = bouncer(&url()).await;
    let (direct, keys) = store_of(&url(), 2).await;
    let store = PostgresStore::with_table(pool_of(&through, 8), &keys).unwrap();
    let options = PgPoolOptions::new()
        .max_connections(8)
        .acquire_timeout(MINUTE);
    let pool = options.connect_lazy(&through).unwrap();
    let sqlx = PostgresStore::with_table(pool, &keys).unwrap();
    let (rows, sqlx_rows) = (
        table(&direct, "key text").await,
        table(&direct, "key text").await,
    );
    let own = async |tx: &mut Transaction<deadpool_postgres::Pool>, insert: String| {
        tx.query_one(&insert, &[]).await?;
        Ok(())
    };
    let sqlx_own = async |tx: &mut Transaction<PgPool>, insert: String| {
        let insert = sqlx::query(AssertSqlSafe(insert)).persistent(false);
        insert.fetch_one(&mut **tx).await?;
        Ok(())
    };
    tokio::join!(
        all_run_once(store, &rows, own),
        all_run_once(sqlx, &sqlx_rows, sqlx_own)
    );
    for rows in [rows, sqlx_rows] {
        assert_eq!(count(&direct, &rows).await, 240);
        let keys = format!("(SELECT DISTINCT key FROM {rows}) keys");
        assert_eq!(count(&direct, &keys).await, 120);
    }
}

/// Opens so many transactions at once, each under a claim that then notes a step, and returns how many
/// steps could not be noted.
async fn refused_steps(store: &PostgresStore<deadpool_postgres::Pool>, runs: usize) -> usize {
    let are_open = Barrier::new(runs);
    let once = Engine::of(store.clone(), |builder| {
        builder.settings(|settings| settings.store_timeout = Duration::from_secs(5))
    });
    let refused = AtomicUsize::new(0);
    let run = async |run: usize| {
        let key = Key::new("open", format!("{runs}-{run}"));
        let done = once.run(key, None, async |claim| {
            let tx = store.transaction(&claim).await?;
            are_open.wait().await;
            let noted = claim.step("a", async |_| Ok::<_, Failed>(1)).await;
            refused.fetch_add(usize::from(noted.is_err()), Ordering::Relaxed);
            drop(tx);
            Ok::<_, Failed>(1)
        });
        done.await.map(drop)
    };
    let done = futures_util::future::join_all((0..runs).map(run)).await;
    assert!(runs > 2 || done.iter().all(Result::is_ok), "{done:?}");
    refused.into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_needs_a_connection_more_than_transactions_that_are_open_under_claims() {
    let (_bouncer, through) = bouncer(&url()).await;
    let (_, keys) = store_of(&url(), 2).await;
    let store = PostgresStore::with_table(pool_of(&through, 8), &keys).unwrap();
    assert_eq!(refused_steps(&store, 2).await, 0, "of three connections");
    assert!(refused_steps(&store, 3).await > 0, "of three connections");
}
