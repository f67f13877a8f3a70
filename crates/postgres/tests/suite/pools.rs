//! Small pools: what belongs to a run doesn't wait for the connection that its own transaction holds.

use std::iter::repeat_with;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use lambda_idempotency::protocol::record::{NewClaim, Owner, RELEASED, RecordWrite};
use lambda_idempotency::store::transaction::{Commit, Committed, Write};
use lambda_idempotency::store::{Answer, Store as Records};
use lambda_idempotency::{EpochMillis, EpochSeconds, Error, Key, Outcome, StoreError};
use lambda_idempotency_postgres::{Pool, PostgresStore, Problem, Sql, TransactionError};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Barrier;
use tokio::time::{Instant, timeout};

use crate::support::{
    Engine, Failed, MINUTE, Store, count, engine, name, patient, pool_of, problem, refusing, sql,
    store_of, table, transact, url, url_with,
};

/// So much that it is kept beside its record, however it is compressed.
fn large() -> String {
    let mut rng = Rng::with_seed(7);
    repeat_with(|| rng.alphanumeric()).take(20_000).collect()
}

fn packing<P: Pool>(store: PostgresStore<P>) -> Engine<P> {
    Engine::of(store, |engine| {
        patient(engine).settings(|settings| settings.inline_limit = 1_000)
    })
}

/// Runs with a large outcome, and with a step while the transaction is open. Each form runs once.
async fn one_run_needs_one_connection<P: Pool>(store: PostgresStore<P>) {
    let once = packing(store.clone());
    for is_replayed in [false, true] {
        let open = transact(&once, Key::new("op", "open"), None, async |_| {
            Ok::<_, Failed>(large())
        });
        let open = open.await.unwrap();
        assert_eq!(open.is_replayed(), is_replayed);
        assert_eq!(open.into_inner(), large());
        let claimed = once.run(Key::new("op", "claim"), None, async |claim| {
            let mut tx = store.transaction(&claim).await?;
            tx.apply(&Sql::new("SELECT 1")).await.unwrap();
            let charge = async |_| Ok::<_, Failed>(7);
            let charged = claim.step("charge", charge).await;
            assert_eq!(charged.map_err(|error| error.to_string()), Ok(7));
            Ok::<_, Failed>(large())
        });
        let claimed = claimed.await.unwrap();
        assert_eq!(claimed.is_replayed(), is_replayed);
        assert_eq!(claimed.into_inner(), large());
    }
}

#[tokio::test]
async fn a_pool_of_one_is_enough_for_large_outcomes_and_steps() {
    let (store, keys) = store_of(&url(), 1).await;
    let work = timeout(MINUTE, one_run_needs_one_connection(store));
    work.await.unwrap();
    let options = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(MINUTE * 2);
    let pool = options.connect_lazy(&url()).unwrap();
    let other = name("keys");
    let sqlx = PostgresStore::with_table(pool, &other).unwrap();
    sqlx.create_tables().await.unwrap();
    assert_ne!(keys, other);
    let work = timeout(MINUTE, one_run_needs_one_connection(sqlx));
    work.await.unwrap();
}

/// Renews a lease that isn't there.
async fn renew(store: &Store) -> Result<Answer, StoreError> {
    let once = engine(store.clone());
    let renewal = RecordWrite::Renew {
        id: once.record_id(&Key::new("op", "absent")).unwrap(),
        owner: Owner::from_stored("none"),
        lease: EpochMillis::from(SystemTime::now()),
        expiration: EpochSeconds(0),
    };
    store.write(&renewal, Instant::now() + MINUTE).await
}

#[tokio::test]
async fn a_renewal_does_not_wait_for_the_pool() {
    let (store, _) = store_of(&url(), 1).await;
    let taken = store.pool().get().await.unwrap();
    let renewed = renew(&store).await;
    assert!(renewed.is_ok(), "{renewed:?}");
    drop(taken);
}

/// It would keep a note of each for ever.
#[tokio::test]
async fn the_pools_manager_keeps_no_note_of_a_connection_beside_the_pool() {
    let (store, _) = store_of(&url(), 1).await;
    let taken = store.pool().get().await.unwrap();
    renew(&store).await.unwrap();
    let notes = format!("{:?}", store.pool().manager().statement_caches);
    assert_eq!(notes.matches("(Weak)").count(), 1, "{notes}");
    drop(taken);
}

/// It keeps a commit that may be late from applying, and claims nothing.
#[tokio::test]
async fn the_end_of_a_late_commit_does_not_wait_for_the_pool() {
    let (store, _) = store_of(&url(), 1).await;
    let once = engine(store.clone());
    let taken = store.pool().get().await.unwrap();
    let id = once.record_id(&Key::new("op", "a")).unwrap();
    let (owner, now) = (
        Owner::from_stored("none"),
        EpochMillis::from(SystemTime::now()),
    );
    let end = NewClaim::new(id, owner, now, RELEASED, EpochSeconds(4_102_444_800));
    let ended = store.write(&end.into(), Instant::now() + MINUTE).await;
    assert!(ended.as_ref().is_ok_and(Answer::is_applied), "{ended:?}");
    drop(taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_runs_as_the_pool_has_connections_need_one_more() {
    const RUNS: usize = 4;
    let (_, keys) = store_of(&url(), 1).await;
    let application = name("runs");
    let parameters = format!("application_name={application}");
    let pool = pool_of(&url_with("postgres", "postgres", &parameters), RUNS);
    let store = PostgresStore::with_table(pool, &keys).unwrap();
    let all_are_open = std::sync::Arc::new(Barrier::new(RUNS));
    let runs = (0..RUNS).map(|run| {
        let (store, all_are_open) = (store.clone(), all_are_open.clone());
        tokio::spawn(async move {
            let once = packing(store.clone());
            let done = once.run(Key::new("op", run.to_string()), None, async |claim| {
                let tx = store.transaction(&claim).await?;
                all_are_open.wait().await;
                let noted = claim.step("a", async |_| Ok::<_, Failed>(1)).await;
                drop(tx);
                noted.map_err(|_| Failed::Own)?;
                Ok::<_, Failed>(large())
            });
            done.await.map_err(|error| error.to_string()).unwrap();
        })
    });
    let runs = futures_util::future::join_all(runs);
    for run in timeout(MINUTE, runs).await.unwrap() {
        run.unwrap();
    }
    let client = pool_of(&url(), 1).get().await.unwrap();
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let connections = client
        .query_one(connections, &[&application])
        .await
        .unwrap();
    let connections: i64 = connections.get(0);
    assert!(connections <= 5, "{connections}");
}

#[tokio::test]
async fn a_large_outcome_is_rolled_back_with_its_transaction() {
    let (store, keys) = store_of(&url(), 1).await;
    let rows = "n bigint PRIMARY KEY DEFERRABLE INITIALLY DEFERRED";
    let rows = table(&store, rows).await;
    let once = packing(store.clone());
    let run = transact(&once, Key::new("op", "a"), None, async |tx| {
        // The constraint refuses it in COMMIT.
        let twice = format!("INSERT INTO {rows} VALUES (1), (1)");
        tx.batch_execute(&twice).await?;
        Ok::<_, Failed>(large())
    });
    let run = run.await;
    assert_matches!(run, Err(Error::NotCommitted(_)));
    assert_eq!(count(&store, &format!("{keys}_outcomes")).await, 0);
}

#[tokio::test]
async fn a_handler_that_fails_releases_its_claim_beside_its_transaction() {
    let (store, _) = store_of(&url(), 1).await;
    let once = refusing(store.clone());
    for attempt in 1..=2 {
        let run = once.run(Key::new("op", "a"), None, async |claim| {
            assert_eq!(claim.attempt(), attempt);
            store.transaction(&claim).await?;
            Err::<i64, _>(Failed::Own)
        });
        let run = timeout(MINUTE, run).await.unwrap();
        assert_matches!(run, Err(Error::Handler(Failed::Own)));
    }
}

#[tokio::test]
async fn a_panic_in_an_open_transaction_does_not_wait_for_its_own_connection() {
    let (store, _) = store_of(&url(), 1).await;
    // The derived key has the end look at the record, by the pool's only connection.
    let once = Engine::of(store.clone(), |engine| {
        patient(engine).settings(|settings| settings.store_timeout = MINUTE * 10)
    });
    let claimless = once.claimless();
    let run = tokio::spawn(async move {
        let run = claimless.run(Key::new("op", "a"), None, async |claim| {
            let _tx = store.transaction(&claim).await?;
            assert_eq!(claim.derive_key("charge"), "", "the handler panics here");
            Ok::<i64, Failed>(1)
        });
        run.await.map_err(|error| error.to_string())
    });
    let ended = timeout(MINUTE, run).await.unwrap();
    assert!(ended.unwrap_err().is_panic());
}

#[tokio::test]
async fn a_commit_that_gets_no_connection_was_not_sent() {
    let (looked, keys) = store_of(&url(), 1).await;
    let first = PostgresStore::with_table(pool_of(&url(), 1), &keys).unwrap();
    for store in [looked, first] {
        let _taken = store.pool().get().await.unwrap();
        let writes = [Write::from(Sql::new("SELECT 1"))];
        let soon = Instant::now() + Duration::from_secs(2);
        let commit = || store.commit(Commit::new("token", None, &writes), soon);
        // Where the store has not looked at its tables yet, one waits for the look of the other.
        let (one, other) = tokio::join!(commit(), commit());
        for refused in [one, other] {
            assert_eq!(problem(&refused.unwrap_err()), Problem::PoolExhausted);
        }
    }
}

#[tokio::test]
async fn a_commit_waits_for_locks_no_longer_than_the_pool_has_left_it() {
    let (store, _) = store_of(&url(), 1).await;
    let rows = table(&store, "milliseconds bigint").await;
    store
        .estimated_records(Instant::now() + MINUTE)
        .await
        .unwrap();
    let taken = store.pool().get().await.unwrap();
    let limit = "SELECT setting::bigint FROM pg_settings WHERE name = 'lock_timeout'";
    let writes = [Write::from(Sql::new(format!("INSERT INTO {rows} {limit}")))];
    let deadline = Instant::now() + MINUTE;
    let free = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let left = deadline - Instant::now();
        drop(taken);
        left
    };
    let commit = store.commit(Commit::new("token", None, &writes), deadline);
    let (committed, left) = tokio::join!(commit, free);
    assert_matches!(committed, Ok(Committed::Applied));
    let client = store.pool().get().await.unwrap();
    let read = format!("SELECT milliseconds FROM {rows}");
    let limit: i64 = client.query_one(&read, &[]).await.unwrap().get(0);
    let longest = i64::try_from((left * 7 / 8).as_millis()).unwrap();
    assert!(limit <= longest, "{limit} of {left:?}");
}

/// Lets the sessions of a role read only from now on, or write: as a name leads to the one server or the other.
async fn may_write(role: &str, may: bool) {
    let value = if may { "off" } else { "on" };
    sql(&format!(
        "ALTER ROLE {role} SET default_transaction_read_only = {value}"
    ))
    .await;
}

/// A store whose one connection is to a server that reads only, while another one would be to the primary.
async fn after_a_failover() -> (Store, String) {
    let (_, keys) = store_of(&url(), 1).await;
    let role = name("role");
    sql(&format!("CREATE ROLE {role} LOGIN SUPERUSER")).await;
    let pool = pool_of(&url_with(&role, "postgres", ""), 1);
    let store = PostgresStore::with_table(pool, &keys).unwrap();
    let store = store.timeout(MINUTE);
    may_write(&role, false).await;
    let client = store.pool().get().await.unwrap();
    client.batch_execute("SELECT 1").await.unwrap();
    drop(client);
    may_write(&role, true).await;
    (store, role)
}

#[tokio::test]
async fn a_connection_to_a_server_that_reads_only_is_not_used_again() {
    let (store, _) = after_a_failover().await;
    let once = engine(store);
    let claimed = once.run(Key::new("op", "a"), None, async |_| Ok::<_, Failed>(1));
    let claimed = claimed.await;
    assert_matches!(claimed, Ok(Outcome::Executed(1)));
}

#[tokio::test]
async fn a_transaction_that_a_server_refuses_to_write_leaves_its_connection() {
    let (store, _) = after_a_failover().await;
    let once = engine(store);
    let run = || {
        transact(&once, Key::new("op", "a"), None, async |_| {
            Ok::<_, Failed>(1)
        })
    };
    let refused = run().await;
    let Err(Error::Handler(Failed::Transaction(TransactionError::Store(error)))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(problem(&error), Problem::ReadOnly);
    let again = run().await;
    assert_matches!(again, Ok(Outcome::Executed(1)));
}

/// The time for which the store keeps the connection beside the pool.
const IDLE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn the_connection_beside_the_pool_is_left_too() {
    // One that is idle for longer is left anyway, which a slow machine may have shown.
    for _ in 0..10 {
        if time_to_leave_the_connection_beside_the_pool().await < IDLE {
            return;
        }
    }
    panic!("each of ten tries took longer than the connection is kept");
}

/// Writes over a connection that reads only, and again, and returns the time between.
async fn time_to_leave_the_connection_beside_the_pool() -> Duration {
    let (store, role) = after_a_failover().await;
    let once = engine(store.clone());
    // It takes the pool's one connection, which writes.
    once.run(Key::new("op", "a"), None, async |_| Ok::<_, Failed>(1))
        .await
        .unwrap();
    let taken = store.pool().get().await.unwrap();
    may_write(&role, false).await;
    let refused = renew(&store).await;
    assert_eq!(problem(&refused.unwrap_err()), Problem::ReadOnly);
    let used = Instant::now();
    may_write(&role, true).await;
    let renewed = renew(&store).await;
    assert!(renewed.is_ok(), "{renewed:?}");
    drop(taken);
    used.elapsed()
}
