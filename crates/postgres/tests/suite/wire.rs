//! The store behind a wire that fails: `WIRE_KEYS=600 WIRE_SEED=4711` plays a longer night again.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, select};
use lambda_idempotency::{Builder, Error, Idempotency, InFlight, Key, Outcome};
use lambda_idempotency_postgres::outbox::{Event, Outbox};
use lambda_idempotency_postgres::{PostgresStore, Problem, Sql, TransactionError};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::time::timeout;

use crate::support::{
    Engine, Failed, MINUTE, Store, engine, eventually, name, number, pool_of, problem, refusing,
    sql, store_of, table, transact, url,
};

mod proxy;

use proxy::{CANCELLED, Fault, Proxy, STANDBY};

/// An open transaction, and a claim with a write, on each driver.
const FORMS: [&str; 4] = ["open", "claim", "sqlx-open", "sqlx-claim"];

/// The engines of both drivers, and how long they wait.
struct Waits {
    engine: Engine<deadpool_postgres::Pool>,
    sqlx: Engine<PgPool>,
    run: Duration,
    /// The driver itself waits without end where the wire is silent.
    statement: Duration,
}

impl Waits {
    /// So short that requests of a bad wire fail by it.
    fn little(store: Store, sqlx: PostgresStore<PgPool>) -> Self {
        fn settings(engine: Builder) -> Builder {
            engine
                .lease(Duration::from_secs(1))
                .settings(|settings| {
                    settings.skew_margin = Duration::ZERO;
                    settings.store_timeout = Duration::from_millis(400);
                })
                .in_flight(InFlight::WaitUpTo(Duration::from_millis(300)))
        }
        Self {
            engine: Engine::of(store, settings),
            sqlx: Engine::of(sqlx, settings),
            run: Duration::from_secs(2),
            statement: Duration::from_millis(300),
        }
    }

    /// So long that none fails by it, and duplicates wait for none.
    fn refusing(store: Store, sqlx: PostgresStore<PgPool>) -> Self {
        Self {
            engine: refusing(store),
            sqlx: refusing(sqlx),
            run: MINUTE,
            statement: MINUTE,
        }
    }

    /// So long that none fails by it.
    fn long(store: Store, sqlx: PostgresStore<PgPool>) -> Self {
        Self {
            engine: engine(store),
            sqlx: engine(sqlx),
            run: MINUTE,
            statement: MINUTE,
        }
    }

    /// Adds the key's row, by one of the forms.
    async fn run(&self, form: &str, key: &str, rows: &str) -> Done {
        let until = SystemTime::now() + self.run;
        let (engine, sqlx) = (self.engine.until(until), self.sqlx.until(until));
        let insert = format!("INSERT INTO {rows} VALUES ($1)");
        let token = Key::new(form, key);
        match form {
            "claim" => claimed(&engine, token, Sql::new(insert).bind(key)).await,
            "sqlx-claim" => claimed(&sqlx, token, Sql::new(insert).bind(key)).await,
            "claimless" => claimed(&engine.claimless(), token, Sql::new(insert).bind(key)).await,
            "sqlx-claimless" => claimed(&sqlx.claimless(), token, Sql::new(insert).bind(key)).await,
            "open" => {
                let run = transact(&engine, token, None, async |tx| {
                    self.soon(async { tx.execute(&insert, &[&key]).await })
                        .await
                });
                run.await
            }
            _ => {
                let run = transact(&sqlx, token, None, async |tx| {
                    let insert = sqlx::query(AssertSqlSafe(insert)).bind(key);
                    self.soon(insert.execute(&mut **tx)).await
                });
                run.await
            }
        }
    }

    async fn soon<T, E>(&self, answer: impl Future<Output = Result<T, E>>) -> Result<i64, Failed>
    where
        Failed: From<E>,
    {
        let answer = timeout(self.statement, answer).await;
        answer.map_err(|_| Failed::Own)??;
        Ok(1)
    }
}

/// Hands the write over to a claim.
async fn claimed(engine: &Idempotency, key: Key, write: Sql) -> Done {
    let run = engine.run(key, None, async |claim| {
        claim.write(write)?;
        Ok(1)
    });
    run.await
}

/// The application's tables, and a store that reaches them through the wire.
struct Lane {
    proxy: Proxy,
    direct: Store,
    through: Store,
    rows: String,
    little: Waits,
    long: Waits,
    refusing: Waits,
}

impl Lane {
    async fn new(seed: u64) -> Self {
        let (direct, keys) = store_of(&url(), 4).await;
        let rows = table(&direct, "key text").await;
        let url = url();
        let (role, place) = url.split_once('@').unwrap();
        let (server, database) = place.split_once('/').unwrap();
        let proxy = Proxy::before(server.to_owned(), seed).await;
        let through = format!("{role}@127.0.0.1:{}/{database}", proxy.port);
        let store = PostgresStore::with_table(pool_of(&through, 16), &keys).unwrap();
        let pool = PgPoolOptions::new()
            .max_connections(16)
            .connect_lazy(&through)
            .unwrap();
        let sqlx = PostgresStore::with_table(pool, &keys).unwrap();
        Self {
            proxy,
            direct,
            through: store.clone(),
            rows,
            little: Waits::little(store.clone(), sqlx.clone()),
            refusing: Waits::refusing(store.clone(), sqlx.clone()),
            long: Waits::long(store, sqlx),
        }
    }

    async fn counts(&self) -> HashMap<String, i64> {
        let client = self.direct.pool().get().await.unwrap();
        let counts = format!("SELECT key, count(*) FROM {} GROUP BY key", self.rows);
        let counts = client.query(&counts, &[]).await.unwrap();
        counts.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn has_row(&self, key: &str) -> bool {
        let client = self.direct.pool().get().await.unwrap();
        let one = format!("SELECT 1 FROM {} WHERE key = $1", self.rows);
        !client.query(&one, &[&key]).await.unwrap().is_empty()
    }
}

type Done = Result<Outcome<i64>, Error<Failed>>;

/// A commit of the store's, as it is sent.
const COMMIT: &str = "COMMIT\0";

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_reply_is_lost_is_proven_by_reading() {
    let lane = Lane::new(0).await;
    for form in FORMS {
        lane.proxy.at_next(COMMIT, Fault::CutAfter);
        let done = lane.long.run(form, form, &lane.rows).await;
        assert_matches!(done, Ok(Outcome::Executed(1)), "{form}");
        let again = lane.long.run(form, form, &lane.rows).await;
        assert_matches!(again, Ok(Outcome::Replayed(1, _)), "{form}");
    }
    let once = FORMS.map(|form| (form.to_owned(), 1));
    assert_eq!(lane.counts().await, HashMap::from(once));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unprotected_commit_whose_reply_is_lost_is_not_sent_again() {
    let lane = Lane::new(0).await;
    let engine = Engine::of(lane.through.clone(), |builder| builder.disabled(true));
    let engine = engine.until(SystemTime::now() + MINUTE);
    let write = || Sql::new(format!("INSERT INTO {} VALUES ($1)", lane.rows)).bind("row");
    lane.proxy.at_next(COMMIT, Fault::CutAfter);
    let done = claimed(&engine, Key::new("claim", "row"), write()).await;
    assert_matches!(done, Err(Error::OutcomeUnknown(_)));
    assert_eq!(lane.counts().await, HashMap::from([("row".to_owned(), 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_arrived_wrote_nothing_or_is_sent_again() {
    let lane = Lane::new(0).await;
    for form in FORMS {
        lane.proxy.at_next(COMMIT, Fault::CutBefore);
        let done = lane.long.run(form, form, &lane.rows).await;
        if form.ends_with("claim") {
            assert_matches!(done, Ok(Outcome::Executed(1)), "{form}");
            continue;
        }
        // The handler's write is gone: it runs again.
        assert_matches!(done, Err(Error::NotCommitted(_)), "{form}");
        assert!(!lane.has_row(form).await);
        let again = lane.long.run(form, form, &lane.rows).await;
        assert_matches!(again, Ok(Outcome::Executed(1)), "{form}");
    }
    let once = FORMS.map(|form| (form.to_owned(), 1));
    assert_eq!(lane.counts().await, HashMap::from(once));
}

/// The connection is lost when the record is written, or when the store asks whether the handler has committed. A transaction under a claim and
/// one that locks a released record don't have the record's place, which would tell.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_has_committed_is_noticed_over_another_connection() {
    let lane = Lane::new(0).await;
    let engine = refusing(lane.through.clone());
    let claimless = engine.claimless();
    let (mut rows, mut cuts) = (HashMap::new(), 0);
    for ends in ["COMMIT", "COMMIT; BEGIN", "COMMIT; BEGIN; SELECT 1 / 0"] {
        for (cut, words) in [(1, "pg_xact_status"), (2, "pg_current_xact_id_if_assigned")] {
            for (form, once) in [("claimed", &*engine), ("locked", &claimless)] {
                // The handler sends it, and must not meet the fault.
                let name = format!("{form}, {ends}, cut {cut}");
                let key = || Key::new("op", name.as_str());
                let released = engine.run(key(), None, async |_| Err::<i64, _>(Failed::Own));
                assert!(released.await.is_err());
                lane.proxy.at_next(words, Fault::CutBefore);
                let done = once.run(key(), None, async |claim| {
                    let tx = lane.through.transaction(&claim).await?;
                    let insert = format!("INSERT INTO {} VALUES ($1)", lane.rows);
                    tx.execute(&insert, &[&name]).await?;
                    let _ = tx.batch_execute(ends).await;
                    Ok::<i64, Failed>(1)
                });
                let done = done.await;
                assert_matches!(done, Err(Error::LeaseLost | Error::Unreadable(_)), "{name}");
                cuts += 1;
                let met = lane.proxy.met().map(|(_, times)| times);
                assert_eq!(met, [0, cuts, 0, 0], "{name}");
                let again = engine.run(key(), None, async |_| Ok::<i64, Failed>(2));
                let again = again.await;
                assert_matches!(
                    &again,
                    Err(Error::Unreadable(why)) if why.contains("remove COMMIT"),
                    "{name}"
                );
                rows.insert(name, 1);
            }
        }
    }
    assert_eq!(lane.counts().await, rows);
}

/// A driver sends the first statement before `BEGIN` is answered, and the server carries it out.
#[tokio::test(flavor = "multi_thread")]
async fn a_begin_that_is_refused_alone_commits_no_half_of_a_transaction() {
    let lane = Lane::new(0).await;
    for form in ["open", "sqlx-open", "claimless", "sqlx-claimless"] {
        // The store looks at its tables first.
        let before = format!("before {form}");
        let before = lane.long.run(form, &before, &lane.rows).await;
        assert_matches!(before, Ok(Outcome::Executed(1)), "{form}");
        lane.proxy.at_next("BEGIN", Fault::RefuseFirst(CANCELLED));
        let mut done = lane.long.run(form, form, &lane.rows).await;
        assert!(!lane.proxy.is_planned(), "{form}");
        if form.ends_with("open") {
            assert_matches!(done, Err(Error::Handler(Failed::Transaction(_))), "{form}");
            done = lane.long.run(form, form, &lane.rows).await;
        }
        assert_matches!(done, Ok(Outcome::Executed(1)), "{form}");
        assert!(lane.has_row(form).await, "{form}");
    }
}

/// As of a server that was the primary until a failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_begin_that_a_standby_refuses_leaves_its_connection() {
    let lane = Lane::new(0).await;
    let once = refusing(lane.through.clone());
    let run = async |token: &'static str| {
        let run = transact(&once, Key::new("op", token), None, async |tx| {
            let row = tx.query_one("SELECT pg_backend_pid()", &[]).await?;
            Ok::<i32, Failed>(row.get(0))
        });
        run.await
    };
    let first = run("before").await.unwrap().into_inner();
    lane.proxy.at_next("BEGIN", Fault::RefuseFirst(STANDBY));
    let refused = run("a").await;
    let Err(Error::Handler(Failed::Transaction(TransactionError::Store(error)))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(problem(&error), Problem::ReadOnly);
    assert_ne!(run("a").await.unwrap().into_inner(), first);
}

/// It is dropped while the server looks for the outbox's table.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_dropped_leaves_the_handlers_role() {
    let lane = Lane::new(0).await;
    let (role, table) = (name("role"), name("outbox"));
    let outbox = Outbox::new(&table).unwrap();
    sql(&format!(
        "CREATE ROLE {role}; {}; GRANT INSERT ON {table} TO {role}",
        outbox.statements()
    ))
    .await;
    let mut user = String::new();
    let once = refusing(lane.through.clone()).claimless();
    let run = once.run(Key::new("op", "a"), None, async |claim| {
        let mut tx = lane.through.transaction(&claim).await?;
        tx.batch_execute(&format!("SET LOCAL role {role}")).await?;
        let event = outbox.event(&claim, &Event::new("order.created", "1"), &1)?;
        lane.proxy.at_next("search_path", Fault::Delay);
        // The call is dropped at once when its question has left: that is looked at before its answer is.
        let asked = poll_fn(|_| {
            if lane.proxy.is_planned() {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        });
        let applied = Box::pin(tx.apply(&event));
        assert!(matches!(select(asked, applied).await, Either::Left(_)));
        let row = tx.query_one("SELECT current_user::text", &[]).await?;
        user = row.get(0);
        // The role may not write the record.
        Err::<i64, _>(Failed::Own)
    });
    let done = run.await;
    assert_matches!(done, Err(Error::Handler(Failed::Own)));
    assert_eq!(user, role);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_is_no_other_run() {
    let lane = Lane::new(0).await;
    lane.proxy.set_latency(300);
    for form in FORMS {
        let done = lane.refusing.run(form, form, &lane.rows).await;
        assert_matches!(done, Ok(Outcome::Executed(1)), "{form}");
    }
}

const TRIES: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn on_a_bad_wire_nothing_is_lost_or_doubled_and_every_key_completes() {
    let seed = number("WIRE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let keys = usize::try_from(number("WIRE_KEYS").unwrap_or(120)).unwrap();
    println!("WIRE_KEYS={keys} WIRE_SEED={seed}");
    let lane = Arc::new(Lane::new(seed).await);
    lane.proxy.set_rate(60);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..12 {
        let lane = Arc::clone(&lane);
        clients.spawn(async move {
            let (mut answered, mut undone) = (Vec::new(), 0);
            for place in (client..keys).step_by(12) {
                let form = FORMS[place % FORMS.len()];
                let key = format!("{form}-{place}");
                for _ in 0..TRIES {
                    match lane.little.run(form, &key, &lane.rows).await {
                        Ok(_) => {
                            // It is there when it is answered, not some time later.
                            assert!(lane.has_row(&key).await, "WIRE_SEED={seed}: lost {key}");
                            answered.push(key.clone());
                        }
                        Err(Error::NotCommitted(error)) => {
                            // Only then another try may have written it.
                            let known = answered.last() == Some(&key);
                            assert!(
                                known || !lane.has_row(&key).await,
                                "WIRE_SEED={seed}: {key} is written: {error}"
                            );
                            undone += 1;
                        }
                        Err(_) => undone += 1,
                    }
                }
            }
            (answered, undone)
        });
    }
    let (mut answered, mut undone) = (Vec::new(), 0);
    while let Some(client) = clients.join_next().await {
        let (keys, failed) = client.unwrap();
        answered.extend(keys);
        undone += failed;
    }
    println!(
        "{} answered, {undone} failed, {:?}",
        answered.len(),
        lane.proxy.met()
    );
    assert!(lane.proxy.met().iter().all(|(_, times)| *times > 0));
    assert!(undone > 0, "the wire was too good");

    lane.proxy.set_rate(0);
    for place in 0..keys {
        let form = FORMS[place % FORMS.len()];
        let key = format!("{form}-{place}");
        // Dead connections may be left in the pools.
        let what = format!("WIRE_SEED={seed}: {key} is done");
        let run = async || lane.long.run(form, &key, &lane.rows).await.ok();
        let done = eventually(&what, run).await;
        assert!(
            done.is_replayed() || !answered.contains(&key),
            "WIRE_SEED={seed}: {key} was answered and ran again"
        );
    }
    let rows = lane.counts().await;
    assert_eq!(rows.len(), keys, "WIRE_SEED={seed}");
    let doubled: Vec<_> = rows.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "WIRE_SEED={seed}: {doubled:?}");
}
