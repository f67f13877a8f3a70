//! The store behind `PgBouncer`, which gives each transaction the next connection.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

use lambda_idempotency::{Idempotency, Key};
use lambda_idempotency_postgres::{Pool, PostgresStore, Sql, Transaction, transact};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::process::{Child, Command};

use crate::support::{
    Failed, MINUTE, count, engine, eventually, name, pool_of, store_of, table, url,
};

/// Starts it with fewer connections to the server than there are clients.
async fn bouncer() -> (Child, String) {
    let program = std::env::var("PGBOUNCER")
        .expect("run the tests with `scripts/with postgres pgbouncer -- …` before the command");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let url = url();
    let (role, place) = url.split_once('@').unwrap();
    let (server, database) = place.split_once('/').unwrap();
    let (host, server_port) = server.split_once(':').unwrap();
    let settings = std::env::temp_dir().join(format!("{}.ini", name("pgbouncer")));
    let text = format!(
        "[databases]\n* = host={host} port={server_port} user=postgres\n[pgbouncer]\n\
         listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
         pool_mode = transaction\ndefault_pool_size = 3\nignore_startup_parameters = extra_float_digits\n"
    );
    std::fs::write(&settings, text).unwrap();
    let mut command = Command::new(program);
    // It refuses to run as root.
    if Path::new("/proc/self").metadata().unwrap().uid() == 0 {
        command.arg("--user=postgres");
    }
    let child = command
        .arg("--quiet")
        .arg(&settings)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let through = format!("{role}@127.0.0.1:{port}/{database}");
    let answers = async || pool_of(&through, 1).get().await.ok().map(drop);
    eventually("PgBouncer answers", answers).await;
    std::fs::remove_file(settings).unwrap();
    (child, through)
}

/// Adds the row of each key twice, in each form, with many clients at once. In the open transaction, the
/// handler adds it by a statement of its own.
async fn all_run_once<P: Pool>(
    store: PostgresStore<P>,
    rows: &str,
    own: impl AsyncFn(&mut Transaction<P>, String) -> Result<(), Failed>,
) {
    const CLIENTS: usize = 12;
    const KEYS: usize = 10;
    let once = engine(store);
    let insert = |key: &str| Sql::new(format!("INSERT INTO {rows} VALUES ($1)")).bind(key);
    let client = async |client: usize, once: &Idempotency<PostgresStore<P>>| {
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
    let (_bouncer, through) = bouncer().await;
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
