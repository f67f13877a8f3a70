//! The same commands on records in PostgreSQL.

use std::time::{Duration, SystemTime};

use lambda_idempotency::testing::{Crash, ManualClock};
use lambda_idempotency::{Claim, Error, Idempotency, InFlight, Key};
use lambda_idempotency_postgres::{PostgresStore, TransactionError};
use serde_json::Value;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::bouncer::bouncer;
use crate::support::{PATIENCE, Said, run};

/// A server that is missing is a failure: a lane that skips itself proves nothing.
fn url() -> String {
    std::env::var("POSTGRES_URL")
        .expect("POSTGRES_URL is not set: run it by `scripts/with postgres -- …`")
}

/// Its own table, and its name.
async fn store() -> (PostgresStore<PgPool>, String) {
    let name = format!("cli_{:016x}", fastrand::u64(..));
    let options = PgPoolOptions::new().acquire_timeout(PATIENCE);
    let pool = options.connect(&url()).await.unwrap();
    let store = PostgresStore::with_table(pool, &name).unwrap();
    store.create_tables().await.unwrap();
    (store, name)
}

async fn on(table: &str, arguments: &[&str]) -> Said {
    run(&[arguments, &["--store", &url(), "--table", table]].concat()).await
}

/// A list that goes on where the file says, for one record.
fn resuming(file: &str) -> [&str; 6] {
    ["list", "--yes", "--limit", "1", "--resume", file]
}

/// Leaves the record of an attempt that died an hour ago, and returns its id.
async fn dead(store: &PostgresStore<PgPool>, token: &str) -> String {
    let hour_ago = SystemTime::now() - Duration::from_hours(1);
    let engine = Idempotency::builder(store.clone()).namespace("payments");
    let once = engine
        .settings(|settings| settings.store_timeout = PATIENCE)
        .clock(ManualClock::at(hour_ago.into()))
        .build()
        .unwrap();
    let (key, crash) = (Key::new("charge", token), Crash::new());
    let id = once.record_id(&key).unwrap();
    let attempt = once.run(key, None, async |_claim: Claim| {
        crash.here::<Result<String, std::io::Error>>().await
    });
    crash.cut_off(attempt).await.unwrap();
    id.as_str().to_owned()
}

async fn deliver(store: &PostgresStore<PgPool>, token: &str) -> (bool, String) {
    let once = Idempotency::builder(store.clone())
        .namespace("payments")
        .settings(|settings| settings.store_timeout = PATIENCE)
        .build()
        .unwrap();
    let handler =
        async |claim: Claim| Ok::<_, std::io::Error>(format!("attempt {}", claim.attempt()));
    let outcome = once
        .run(Key::new("charge", token), None, handler)
        .await
        .unwrap();
    (outcome.is_replayed(), outcome.into_inner())
}

#[tokio::test]
async fn a_record_is_explained_released_and_completed() {
    let (store, table) = store().await;
    let (one, other) = (dead(&store, "A").await, dead(&store, "B").await);
    let words = "explain --operation charge --token A --namespace payments --json";
    let words: Vec<_> = words.split(' ').collect();
    assert_eq!(
        on(&table, &words).await.ended_with(0).json()["answer"],
        "runs_again"
    );
    let why = ["--yes", "--reason", "ticket 17"];
    on(&table, &[&["release", &one][..], &why].concat())
        .await
        .ended_with(0);
    assert_eq!(deliver(&store, "A").await, (false, "attempt 2".to_owned()));
    let complete = ["complete", &other, "--outcome", "\"by hand\""];
    on(&table, &[&complete[..], &why].concat())
        .await
        .ended_with(0);
    assert_eq!(deliver(&store, "B").await, (true, "by hand".to_owned()));
    on(&table, &[&["redact", &other][..], &why].concat())
        .await
        .ended_with(0);
    let shown = on(&table, &["get", &other, "--json"]).await.json();
    assert_eq!(shown["outcome"]["reason"], "redacted");
    assert_eq!(shown["acts"].as_array().map(Vec::len), Some(2), "{shown}");
}

/// A proxy that gives each transaction the next connection has a few connections for all of these processes.
#[tokio::test]
async fn behind_a_proxy_that_shares_connections_each_command_works() {
    let (store, table) = store().await;
    let (_bouncer, through) = bouncer(&url()).await;
    let on = async |words: &[&str]| {
        let place = ["--store", &through, "--table", &table, "--json"];
        run(&[words, &place].concat()).await
    };
    let why = ["--reason", "ticket 17", "--yes"];
    let life = async |token: &str| {
        let id = dead(&store, token).await;
        let explained = on(&["explain", &id]).await.ended_with(0).json();
        assert_eq!(explained["answer"], "runs_again", "{explained}");
        on(&[&["release", &id][..], &why].concat())
            .await
            .ended_with(0);
        assert_eq!(
            deliver(&store, token).await,
            (false, "attempt 2".to_owned())
        );
        let got = on(&["get", &id]).await.ended_with(0).json();
        assert_eq!(got["outcome"]["value"], "attempt 2", "{got}");
        on(&[&["rerun", &id, "--keys", "new"][..], &why].concat())
            .await
            .ended_with(0);
        assert_eq!(
            deliver(&store, token).await,
            (false, "attempt 3".to_owned())
        );
        on(&[&["redact", &id][..], &why].concat())
            .await
            .ended_with(0);
        let got = on(&["get", &id]).await.ended_with(0).json();
        assert_eq!(got["outcome"]["reason"], "redacted", "{got}");
        assert_eq!(got["acts"].as_array().map(Vec::len), Some(3), "{got}");
        id
    };
    let tokens: Vec<String> = (0..8).map(|number| format!("A-{number}")).collect();
    let lives = tokens.iter().map(|token| life(token));
    let mut ids = futures_util::future::join_all(lives).await;
    let said = on(&["list", "--yes"]).await.ended_with(1);
    let listed = said.out.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        entry["id"].as_str().unwrap().to_owned()
    });
    let mut listed: Vec<String> = listed.collect();
    listed.sort();
    ids.sort();
    assert_eq!(listed, ids);
}

#[tokio::test]
async fn a_key_whose_transaction_is_open_is_not_said_to_run() {
    let (store, table) = store().await;
    let stuck = dead(&store, "taken over").await;
    for (token, answer, statement) in [
        (
            "fresh",
            "in_flight",
            format!(
                "INSERT INTO {table} (id, status, expiration, attempt, journal, layout) VALUES ($1, 'OPEN', 0, 1, '{{}}', 1)"
            ),
        ),
        (
            "taken over",
            "locked",
            format!("SELECT FROM {table} WHERE id = $1 FOR UPDATE"),
        ),
    ] {
        let engine = Idempotency::builder(store.clone()).namespace("payments");
        let id = engine
            .build()
            .unwrap()
            .record_id(&Key::new("charge", token))
            .unwrap();
        let explain = ["explain", id.as_str(), "--json"];
        assert_ne!(on(&table, &explain).await.json()["answer"], answer);
        let mut open = store.pool().begin().await.unwrap();
        let hold = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(id.as_str());
        hold.execute(&mut *open).await.unwrap();
        let explained = on(&table, &explain).await.ended_with(0).json();
        assert_eq!(explained["answer"], answer, "{explained}");
        open.rollback().await.unwrap();
    }
    let mut open = store.pool().begin().await.unwrap();
    let hold = format!("SELECT FROM {table} WHERE id = $1 FOR UPDATE");
    let hold = sqlx::query(sqlx::AssertSqlSafe(hold)).bind(&stuck);
    hold.execute(&mut *open).await.unwrap();
    on(
        &table,
        &["release", &stuck, "--yes", "--reason", "ticket 17"],
    )
    .await
    .refused(2, "a transaction that is open holds the record");
}

#[tokio::test]
async fn of_who_holds_a_lock_no_more_is_said_than_is_known() {
    let (store, table) = store().await;
    let stuck = dead(&store, "stuck").await;
    for (lock, id, known) in [
        (
            format!("LOCK TABLE {table} IN SHARE MODE"),
            "none",
            "locked the whole table",
        ),
        (
            format!("LOCK TABLE {table} IN SHARE MODE"),
            stuck.as_str(),
            "locked the whole table",
        ),
        (
            format!("SELECT FROM {table} FOR SHARE"),
            stuck.as_str(),
            "or somebody's own",
        ),
    ] {
        let mut open = store.pool().begin().await.unwrap();
        let locked = sqlx::query(sqlx::AssertSqlSafe(lock));
        locked.execute(&mut *open).await.unwrap();
        let explained = on(&table, &["explain", id, "--json"]).await;
        let explained = explained.ended_with(0).json();
        assert_eq!(explained["answer"], "locked", "{explained}");
        let words = explained["words"].as_str().unwrap();
        assert!(
            words.contains(known) && !words.contains("in flight"),
            "{words}"
        );
        open.rollback().await.unwrap();
    }
}

/// Behind a proxy, the next client gets a session with what an application has SET in it.
#[tokio::test]
async fn what_others_have_set_in_a_shared_session_leads_to_no_other_table() {
    let (store, table) = store().await;
    let (_bouncer, through) = bouncer(&url()).await;
    let stuck = dead(&store, "stuck").await;
    let place = ["--store", &through, "--table", &table];
    let file = std::env::temp_dir().join(format!("{table}.scan"));
    let list = resuming(file.to_str().unwrap());
    let list = [&list[..], &place].concat();
    run(&list).await.ended_with(1);
    let other = format!("other_{table}");
    let create = format!("CREATE SCHEMA {other}; CREATE TABLE {other}.{table} (LIKE {table})");
    let create = sqlx::raw_sql(sqlx::AssertSqlSafe(create));
    create.execute(store.pool()).await.unwrap();
    // Each connection of the proxy.
    let options = PgPoolOptions::new().acquire_timeout(PATIENCE);
    let application = options.connect(&through).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let mut session = application.begin().await.unwrap();
        let set = format!("SET search_path = {other}");
        let set = sqlx::raw_sql(sqlx::AssertSqlSafe(set));
        set.execute(&mut *session).await.unwrap();
        sessions.push(session);
    }
    for session in sessions {
        session.commit().await.unwrap();
    }
    let mut open = store.pool().begin().await.unwrap();
    let hold = format!("SELECT FROM {table} WHERE id = $1 FOR UPDATE");
    let hold = sqlx::query(sqlx::AssertSqlSafe(hold)).bind(&stuck);
    hold.execute(&mut *open).await.unwrap();
    let explain = [&["explain", &stuck, "--json"][..], &place].concat();
    let explained = run(&explain).await.ended_with(0).json();
    assert_eq!(explained["answer"], "locked", "{explained}");
    open.rollback().await.unwrap();
    // The same table as before.
    let again = run(&list).await;
    assert!(again.err.contains("of 1 record\n"), "{again:?}");
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn a_list_is_gone_on_with_on_its_own_table_alone() {
    let (one, table) = store().await;
    let (_, other) = store().await;
    let ids = [dead(&one, "A").await, dead(&one, "B").await];
    let file = std::env::temp_dir().join(format!("{table}.scan"));
    let list = resuming(file.to_str().unwrap());
    let first = on(&table, &list).await.ended_with(1);
    on(&other, &list).await.refused(2, "give another file");
    // The same name in another database.
    let database = format!("other_{table}");
    let create = format!("CREATE DATABASE {database}");
    sqlx::query(sqlx::AssertSqlSafe(create))
        .execute(one.pool())
        .await
        .unwrap();
    let url = url();
    let (server, _) = url.rsplit_once('/').unwrap();
    let elsewhere = format!("{server}/{database}");
    let pool = PgPoolOptions::new()
        .acquire_timeout(PATIENCE)
        .connect(&elsewhere);
    let store = PostgresStore::with_table(pool.await.unwrap(), &table).unwrap();
    store.create_tables().await.unwrap();
    let place = ["--store", &elsewhere, "--table", &table];
    run(&[&list[..], &place].concat())
        .await
        .refused(2, "another table of this name");
    let second = on(&table, &list).await.ended_with(1);
    let listed = format!("{}{}", first.out, second.out);
    assert!(ids.iter().all(|id| listed.contains(id)), "{listed}");
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn an_open_transaction_derives_new_keys_once_it_is_open() {
    let (store, table) = store().await;
    let engine = Idempotency::builder(store.clone())
        .namespace("payments")
        .settings(|settings| settings.store_timeout = PATIENCE)
        .in_flight(InFlight::WaitUpTo(PATIENCE));
    let once = engine.build().unwrap().claimless();
    let key = || Key::new("charge", "A");
    let run = async |derives_before: bool| {
        let handler = async |claim: Claim| {
            let before = derives_before.then(|| claim.derive_uuid("order"));
            let _transaction = store.transaction(&claim).await?;
            let after = claim.derive_uuid("order");
            assert!(before.is_none_or(|before| before == after));
            Ok::<_, TransactionError>(after)
        };
        once.run(key(), None, handler).await
    };
    let first = run(true).await.unwrap().into_inner();
    let id = once.record_id(&key()).unwrap();
    let rerun = async |why: &str| {
        let rerun = [
            "rerun",
            id.as_str(),
            "--keys",
            "new",
            "--reason",
            why,
            "--yes",
        ];
        on(&table, &rerun).await.ended_with(0);
    };
    rerun("one").await;
    let second = run(false).await.unwrap();
    assert!(!second.is_replayed());
    assert_ne!(*second.get(), first);
    rerun("two").await;
    let stale = run(true).await;
    assert!(matches!(stale, Err(Error::InFlight { .. })), "{stale:?}");
    let third = run(true).await.unwrap();
    assert!(!third.is_replayed());
    assert!(*third.get() != first && third.get() != second.get());
}

#[tokio::test]
async fn a_redaction_erases_the_outcomes_of_all_attempts() {
    let (store, table) = store().await;
    let engine = Idempotency::builder(store.clone()).namespace("payments");
    let engine = engine.settings(|settings| {
        settings.store_timeout = PATIENCE;
        settings.inline_limit = 10;
    });
    let once = engine.build().unwrap();
    let key = || Key::new("charge", "A");
    let run = async || {
        let large = async |claim: Claim| {
            Ok::<_, std::io::Error>(format!(
                "attempt {}, of more than ten bytes",
                claim.attempt()
            ))
        };
        let ran = once.run(key(), None, large).await.unwrap();
        assert!(!ran.is_replayed());
    };
    let id = once.record_id(&key()).unwrap();
    run().await;
    let rerun = [
        "rerun",
        id.as_str(),
        "--keys",
        "same",
        "--reason",
        "why",
        "--yes",
    ];
    on(&table, &rerun).await.ended_with(0);
    run().await;
    let kept = async || {
        let bytes = format!("SELECT length(content) FROM {table}_outcomes");
        let bytes = sqlx::query_scalar::<_, i32>(sqlx::AssertSqlSafe(bytes));
        bytes.fetch_all(store.pool()).await.unwrap()
    };
    let before = kept().await;
    assert!(before.len() == 2 && !before.contains(&0), "{before:?}");
    let redact = ["redact", id.as_str(), "--reason", "why", "--yes"];
    on(&table, &redact).await.ended_with(0);
    assert_eq!(kept().await, [0, 0]);
}

#[tokio::test]
async fn records_are_listed_once_each() {
    let (store, table) = store().await;
    let stuck = dead(&store, "stuck").await;
    let insert = format!(
        "INSERT INTO {table} (id, status, expiration, owner, lease, attempt, journal, started_at, layout) \
         SELECT 'payments#charge#' || lpad(n::text, 64, '0'), 'INPROGRESS', 4000000000, '0f', 0, 1, '{{}}', 1700000000000, 1 \
         FROM generate_series(1, 2500) n"
    );
    sqlx::query(sqlx::AssertSqlSafe(insert))
        .execute(store.pool())
        .await
        .unwrap();
    let said = on(&table, &["list", "--yes", "--json"]).await.ended_with(1);
    let ids = said
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].to_string());
    let mut ids: Vec<String> = ids.collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2_501);
    let said = on(&table, &["list", "--yes", "--stuck"])
        .await
        .ended_with(1);
    assert!(
        said.out.contains(&stuck) && said.out.lines().count() == 1,
        "{said:?}"
    );
}

#[tokio::test]
async fn an_id_that_no_record_can_have_is_skipped_and_counted() {
    let (store, table) = store().await;
    let stuck = dead(&store, "stuck").await;
    let insert = format!(
        "INSERT INTO {table} (id, status, expiration, owner, lease, attempt, journal, started_at, layout) \
         VALUES (repeat('x', 2049), 'INPROGRESS', 4000000000, '0f', 0, 1, '{{}}', 1700000000000, 1)"
    );
    sqlx::query(sqlx::AssertSqlSafe(insert))
        .execute(store.pool())
        .await
        .unwrap();
    let hash = &stuck[stuck.len() - 64..][..12];
    for (words, code) in [
        (&["list", "--yes"][..], 1),
        (&["get", "--hash", hash, "--yes"], 0),
    ] {
        let said = on(&table, words).await.ended_with(code);
        assert!(said.out.contains(&stuck), "{said:?}");
        assert!(!said.out.contains("xxx"), "{said:?}");
        assert!(said.err.contains("1 key skipped"), "{said:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_waited_for_until_the_time_is_over() {
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
    let url = format!(
        "postgres://{}/shop",
        silent.as_ref().unwrap().local_addr().unwrap()
    );
    run(&["get", "any", "--store", &url, "--timeout", "1s"])
        .await
        .refused(3, "connect to PostgreSQL: no answer within 1s");
}

#[tokio::test]
async fn what_is_wrong_with_the_server_is_said() {
    for (url, code, words) in [
        (
            "mysql://localhost/shop".to_owned(),
            2,
            "--store takes a URL of PostgreSQL or Redis",
        ),
        (
            "postgres://127.0.0.1:9/shop".to_owned(),
            3,
            "Connection refused",
        ),
        (url().replace("postgres@", "guarded:wrong@"), 3, "password"),
        (
            url().replace("postgres@", "encrypted@") + "?sslmode=disable",
            3,
            "no encryption",
        ),
        (url(), 3, "idempotency"),
    ] {
        run(&["get", "any", "--store", &url])
            .await
            .refused(code, words);
    }
}
