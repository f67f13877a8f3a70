//! The same commands on records in PostgreSQL.

use std::pin::pin;
use std::sync::Arc;

use lambda_idempotency::{Claim, Error, InFlight, Outcome};
use lambda_idempotency_postgres::{PostgresStore, TransactionError};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::bouncer::bouncer;
use crate::records::WHY;
use crate::support::{
    PATIENCE, Said, Scratch, cut_off, deliver, ended_with, engine, engine_an_hour_ago, key,
    receipt, refused, run,
};

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

async fn on(table: &str, line: &str) -> Said {
    run(&format!("{line} --store {} --table {table}", url())).await
}

/// Leaves the record of an attempt that died an hour ago, and returns its id.
async fn dead(store: &PostgresStore<PgPool>, token: &str) -> String {
    cut_off(&engine_an_hour_ago(store.clone()), token).await
}

/// Runs these statements.
async fn execute(pool: &PgPool, statements: String) {
    let run = sqlx::raw_sql(AssertSqlSafe(statements));
    run.execute(pool).await.unwrap();
}

/// A transaction that stays open behind these statements.
async fn open(pool: &PgPool, statements: String) -> Transaction<'static, Postgres> {
    let mut open = pool.begin().await.unwrap();
    let run = sqlx::raw_sql(AssertSqlSafe(statements));
    run.execute(&mut *open).await.unwrap();
    open
}

/// The lock of who ends the record, or looks whether somebody does.
fn locking(table: &str, id: &str) -> String {
    format!("SELECT FROM {table} WHERE id = '{id}' FOR UPDATE")
}

/// A proxy that gives each transaction the next connection has a few connections for all of these processes.
#[tokio::test]
async fn behind_a_proxy_that_shares_connections_each_command_works() {
    let (store, table) = store().await;
    let (_bouncer, through) = bouncer(&url()).await;
    let on =
        async |line: &str| run(&format!("{line} --json --store {through} --table {table}")).await;
    let once = engine(store.clone()).build().unwrap();
    let life = async |token: &str| {
        let id = dead(&store, token).await;
        let key = format!("--operation charge --token {token} --namespace payments");
        let explained = on(&format!("explain {key}")).await;
        let explained = explained.ended_with(0).json();
        assert_eq!(explained["answer"], "runs_again", "{explained}");
        on(&format!("release {id} {WHY}")).await.ended_with(0);
        let ran = deliver(&once, token).await.unwrap();
        assert_eq!(ran, Outcome::Executed(receipt(2)));
        let got = on(&format!("get {id}")).await.ended_with(0).json();
        assert_eq!(got["outcome"]["value"], receipt(2), "{got}");
        ended_with(on(&format!("rerun {id} --keys new {WHY}")), 0).await;
        let ran = deliver(&once, token).await.unwrap();
        assert_eq!(ran, Outcome::Executed(receipt(3)));
        on(&format!("redact {id} {WHY}")).await.ended_with(0);
        let got = on(&format!("get {id}")).await.ended_with(0).json();
        assert_eq!(got["outcome"]["reason"], "redacted", "{got}");
        assert_eq!(got["acts"].as_array().map(Vec::len), Some(3), "{got}");
        let other = dead(&store, &format!("{token}-by-hand")).await;
        on(&format!("complete {other} --outcome '\"by hand\"' {WHY}"))
            .await
            .ended_with(0);
        let replayed = deliver(&once, &format!("{token}-by-hand")).await.unwrap();
        assert!(replayed.is_replayed());
        assert_eq!(replayed.into_inner(), "by hand");
        [id, other]
    };
    let tokens: Vec<String> = (0..8).map(|number| format!("A-{number}")).collect();
    let lives = tokens.iter().map(|token| life(token));
    let mut ids = futures_util::future::join_all(lives).await.concat();
    ids.sort();
    let said = on("list --yes").await.ended_with(1);
    assert_eq!(said.listed(), ids);
}

#[tokio::test]
async fn a_key_whose_transaction_is_open_is_not_said_to_run() {
    let (store, table) = store().await;
    let stuck = dead(&store, "taken over").await;
    let once = engine(store.clone()).build().unwrap();
    let fresh = once.record_id(&key("fresh")).unwrap();
    let fresh = fresh.as_str();
    let insert = format!(
        "INSERT INTO {table} (id, status, expiration, attempt, journal, layout) VALUES ('{fresh}', 'OPEN', 0, 1, '{{}}', 1)"
    );
    for (id, answer, statement) in [
        (fresh, "in_flight", insert),
        (&*stuck, "locked", locking(&table, &stuck)),
    ] {
        let explain = format!("explain {id} --json");
        assert_ne!(on(&table, &explain).await.json()["answer"], answer);
        let open = open(store.pool(), statement).await;
        let explained = on(&table, &explain).await.ended_with(0).json();
        assert_eq!(explained["answer"], answer, "{explained}");
        let later = on(&table, &format!("{explain} --at 2090-01-01T00:00:00Z")).await;
        assert_eq!(later.ended_with(0).json()["answer"], "runs");
        open.rollback().await.unwrap();
    }
    let _open = open(store.pool(), locking(&table, &stuck)).await;
    on(&table, &format!("release {stuck} {WHY}"))
        .await
        .refused(2, "a transaction that is open holds the record");
}

/// Passes on what is sent until a lock is taken back, tells of that, and leaves the server without a word.
async fn cut_off_with_a_lock(client: TcpStream, server: TcpStream, cut: Arc<Notify>) {
    let (mut asked, mut told) = client.into_split();
    let (mut answers, mut server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut answers, &mut told).await });
    let (mut bytes, mut locks) = ([0; 4_096], false);
    while let Ok(read @ 1..) = asked.read(&mut bytes).await {
        let text = String::from_utf8_lossy(&bytes[..read]);
        if locks && text.contains("ROLLBACK") {
            cut.notify_one();
            std::future::pending::<()>().await;
        }
        locks |= text.contains("FOR UPDATE");
        server.write_all(&bytes[..read]).await.unwrap();
    }
}

#[tokio::test]
async fn a_command_that_is_cut_off_holds_no_key_for_long() {
    let (store, table) = store().await;
    let stuck = dead(&store, "stuck").await;
    let url = url();
    let (role, place) = url.split_once('@').unwrap();
    let (server, database) = place.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = listener.local_addr().unwrap();
    let through = format!("{role}@{through}/{database}?sslmode=disable");
    let (cut, server) = (Arc::new(Notify::new()), server.to_owned());
    let told = Arc::clone(&cut);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(cut_off_with_a_lock(client, server, Arc::clone(&told)));
        }
    });
    let explain = format!("explain {stuck} --store {through} --table {table} --timeout 3s");
    let mut is_cut = pin!(cut.notified());
    let mut tries = 0..100;
    loop {
        assert!(tries.next().is_some(), "no lock is taken back");
        tokio::select! {
            () = &mut is_cut => break,
            // On a machine that does much else, it may end before.
            _ = run(&explain) => {}
        }
    }
    let lock = locking(&table, &stuck);
    let wait = format!("SET LOCAL lock_timeout = '2min'; {lock}");
    open(store.pool(), wait).await;
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
        let open = open(store.pool(), lock).await;
        let explained = on(&table, &format!("explain {id} --json")).await;
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
    let place = format!("--store {through} --table {table}");
    let file = Scratch::new();
    let list = format!("list --yes --limit 1 --resume {file} {place}");
    run(&list).await.ended_with(1);
    let other = format!("other_{table}");
    let create = format!("CREATE SCHEMA {other}; CREATE TABLE {other}.{table} (LIKE {table})");
    execute(store.pool(), create).await;
    // Each connection of the proxy.
    let options = PgPoolOptions::new().acquire_timeout(PATIENCE);
    let application = options.connect(&through).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let set = format!("SET search_path = {other}");
        sessions.push(open(&application, set).await);
    }
    for session in sessions {
        session.commit().await.unwrap();
    }
    let open = open(store.pool(), locking(&table, &stuck)).await;
    let explained = run(&format!("explain {stuck} --json {place}")).await;
    let explained = explained.ended_with(0).json();
    assert_eq!(explained["answer"], "locked", "{explained}");
    open.rollback().await.unwrap();
    // The same table as before.
    let again = run(&list).await;
    assert!(again.err.contains("of 1 record\n"), "{again:?}");
}

#[tokio::test]
async fn a_list_is_gone_on_with_on_its_own_table_alone() {
    let (one, table) = store().await;
    let (_, other) = store().await;
    let ids = [dead(&one, "A").await, dead(&one, "B").await];
    let file = Scratch::new();
    let list = format!("list --yes --limit 1 --resume {file}");
    let first = on(&table, &list).await.ended_with(1);
    on(&other, &list).await.refused(2, "give another file");
    // Each question names the place.
    let url = url();
    let place = format!("the table {table} of {}", url.split_once('@').unwrap().1);
    let release = format!("release {} --reason why", ids[0]);
    for (line, asked) in [
        ("list", format!("the whole of {place}: ")),
        (&release, format!("in {place} is stuck. Release?")),
    ] {
        on(&table, line).await.refused(2, &asked);
    }
    // The same name in another database.
    let database = format!("other_{table}");
    execute(one.pool(), format!("CREATE DATABASE {database}")).await;
    let (server, _) = url.rsplit_once('/').unwrap();
    let elsewhere = format!("{server}/{database}");
    let pool = PgPoolOptions::new()
        .acquire_timeout(PATIENCE)
        .connect(&elsewhere);
    let store = PostgresStore::with_table(pool.await.unwrap(), &table).unwrap();
    store.create_tables().await.unwrap();
    run(&format!("{list} --store {elsewhere} --table {table}"))
        .await
        .refused(2, &format!("is of a scan of {place}: give another file"));
    let second = on(&table, &list).await.ended_with(1);
    let listed = format!("{}{}", first.out, second.out);
    assert!(ids.iter().all(|id| listed.contains(id)), "{listed}");
    // And in the same one.
    let replace = format!(
        "ALTER TABLE {table} RENAME TO old_{table}; CREATE TABLE {table} (LIKE old_{table})"
    );
    execute(one.pool(), replace).await;
    refused(on(&table, &list), 2, "another table of this name").await;
}

#[tokio::test]
async fn an_open_transaction_derives_new_keys_once_it_is_open() {
    let (store, table) = store().await;
    let engine = engine(store.clone()).in_flight(InFlight::WaitUpTo(PATIENCE));
    let once = engine.build().unwrap().claimless();
    let run = async |derives_before: bool| {
        let handler = async |claim: Claim| {
            let before = derives_before.then(|| claim.derive_uuid("order"));
            let _transaction = store.transaction(&claim).await?;
            let after = claim.derive_uuid("order");
            assert!(before.is_none_or(|before| before == after));
            Ok::<_, TransactionError>(after)
        };
        once.run(key("A"), None, handler).await
    };
    let first = run(true).await.unwrap().into_inner();
    let id = once.record_id(&key("A")).unwrap();
    let rerun = async |why: &str| {
        let rerun = format!("rerun {} --keys new --reason {why} --yes", id.as_str());
        on(&table, &rerun).await.ended_with(0);
    };
    rerun("one").await;
    let second = run(false).await.unwrap();
    assert!(!second.is_replayed());
    assert_ne!(*second.get(), first);
    rerun("two").await;
    let stale = run(true).await;
    assert_matches!(stale, Err(Error::InFlight { .. }));
    let third = run(true).await.unwrap();
    assert!(!third.is_replayed());
    assert!(*third.get() != first && third.get() != second.get());
}

#[tokio::test]
async fn a_redaction_erases_the_outcomes_of_all_attempts() {
    let (store, table) = store().await;
    // The receipts are larger.
    let engine = engine(store.clone()).settings(|settings| settings.inline_limit = 10);
    let once = engine.build().unwrap();
    let id = once.record_id(&key("A")).unwrap();
    deliver(&once, "A").await.unwrap();
    on(&table, &format!("rerun {} --keys same {WHY}", id.as_str()))
        .await
        .ended_with(0);
    let again = deliver(&once, "A").await.unwrap();
    assert!(!again.is_replayed());
    let kept = async || {
        let bytes = format!("SELECT length(content) FROM {table}_outcomes");
        let bytes = sqlx::query_scalar::<_, i32>(AssertSqlSafe(bytes));
        bytes.fetch_all(store.pool()).await.unwrap()
    };
    let before = kept().await;
    assert!(before.len() == 2 && !before.contains(&0), "{before:?}");
    ended_with(on(&table, &format!("redact {} {WHY}", id.as_str())), 0).await;
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
    execute(store.pool(), insert).await;
    let said = on(&table, "list --yes --json").await.ended_with(1);
    let mut ids = said.listed();
    ids.dedup();
    assert_eq!(ids.len(), 2_501);
    let said = on(&table, "list --yes --json --stuck").await.ended_with(1);
    assert_eq!(said.listed(), [stuck]);
}

#[tokio::test]
async fn an_id_that_no_record_can_have_is_skipped_and_counted() {
    let (store, table) = store().await;
    let stuck = dead(&store, "stuck").await;
    let insert = format!(
        "INSERT INTO {table} (id, status, expiration, owner, lease, attempt, journal, started_at, layout) \
         VALUES (repeat('x', 2049), 'INPROGRESS', 4000000000, '0f', 0, 1, '{{}}', 1700000000000, 1)"
    );
    execute(store.pool(), insert).await;
    let hash = &stuck[stuck.len() - 64..][..12];
    for (line, code) in [("list --yes", 1), (&format!("get --hash {hash} --yes"), 0)] {
        let said = on(&table, line).await.ended_with(code);
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
    run(&format!("get any --store {url} --timeout 1s"))
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
        refused(run(&format!("get any --store {url}")), code, words).await;
    }
}

/// Nor does a replica tell what is open on the primary.
#[tokio::test]
async fn of_a_server_that_is_read_only_no_privilege_is_said_to_be_missing() {
    let (store, table) = store().await;
    let stuck = dead(&store, "stuck").await;
    let replica = url() + "?options=-c%20default_transaction_read_only%3Don";
    for id in [&*stuck, "none"] {
        let explain = format!("explain {id} --store {replica} --table {table}");
        let said = run(&explain).await.refused(0, "connect to the primary");
        assert!(!said.out.contains("lacks"), "{said:?}");
    }
}
