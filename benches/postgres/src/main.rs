//! One order in a transaction with its key, by hand and by the library, in turns on one server.
//!
//! `bench-postgres ROUNDS REQUESTS`, with `POSTGRES_URL` set, prints JSON: for each contender and round the time, the processor time of
//! this process and that of its server process, for one request in microseconds; and how many statements one request sends.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, Pool};
use lambda_idempotency::{Fingerprint, Idempotency, Key};
use lambda_idempotency_postgres::{PostgresStore, TransactionError, transact};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, sysconf};
use serde_json::json;
use tokio_postgres::NoTls;
use tokio_postgres::types::Type;

type Error = Box<dyn std::error::Error + Send + Sync>;

const ORDER: &str = "INSERT INTO orders (id, cents) VALUES ($1, $2)";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Contender {
    /// Statements without a name, as a proxy that shares connections wants them.
    ByHand,
    /// Statements that the server has prepared once for the connection.
    Prepared,
    Library,
}

impl Contender {
    const ALL: [Self; 3] = [Self::ByHand, Self::Prepared, Self::Library];

    fn name(self) -> &'static str {
        match self {
            Self::ByHand => "by hand",
            Self::Prepared => "by hand, prepared",
            Self::Library => "library",
        }
    }
}

struct Bench {
    pool: Pool,
    once: Idempotency<PostgresStore<Pool>>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || {
        arguments
            .next()
            .ok_or("usage: bench-postgres ROUNDS REQUESTS")
    };
    let (rounds, requests): (u32, u32) = (number()?.parse()?, number()?.parse()?);
    let manager = Manager::new(std::env::var("POSTGRES_URL")?.parse()?, NoTls);
    // One connection, so that its server process is known.
    let pool = Pool::builder(manager).max_size(1).build()?;
    pool.get().await?.batch_execute(TABLES).await?;
    let store = PostgresStore::new(pool.clone());
    store.create_tables().await?;
    let once = Idempotency::builder(store).namespace("bench").build()?;
    let bench = Bench { pool, once };

    let mut taken: BTreeMap<Contender, Vec<[f64; 3]>> = BTreeMap::new();
    let mut next = 0;
    for round in 0..=rounds {
        for contender in Contender::ALL {
            let (cpu, server, began) = (cpu()?, bench.server_cpu().await?, Instant::now());
            for _ in 0..requests {
                next += 1;
                bench.request(contender, next).await?;
            }
            let of_one = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(requests);
            let wall = began.elapsed();
            let server = bench.server_cpu().await?.saturating_sub(server);
            let measured = [wall, self::cpu()?.saturating_sub(cpu), server].map(of_one);
            // The first round warms up.
            if round > 0 {
                taken.entry(contender).or_default().push(measured);
            }
        }
    }
    let mut report = serde_json::Map::new();
    for (contender, rounds) in taken {
        let column = |place: usize| {
            rounds
                .iter()
                .filter_map(|round| round.get(place))
                .collect::<Vec<_>>()
        };
        let statements = bench.statements(contender, next).await?;
        let figures = json!({
            "wall_us": column(0), "cpu_us": column(1), "server_us": column(2), "statements": statements,
        });
        report.insert(contender.name().to_owned(), figures);
        next += 1;
    }
    println!("{}", serde_json::Value::Object(report));
    Ok(())
}

const TABLES: &str = "
    CREATE EXTENSION IF NOT EXISTS pg_stat_statements;
    CREATE TABLE tokens (id text PRIMARY KEY, status text NOT NULL, fingerprint text NOT NULL, outcome text, expiration bigint NOT NULL);
    CREATE INDEX ON tokens (expiration);
    CREATE TABLE orders (id text PRIMARY KEY, cents bigint NOT NULL);
";

const TOKEN: &str = "INSERT INTO tokens (id, status, fingerprint, expiration) VALUES ($1, 'INPROGRESS', $2, $3) ON CONFLICT DO NOTHING";
const DONE: &str = "UPDATE tokens SET status = 'COMPLETED', outcome = $2 WHERE id = $1";

impl Bench {
    async fn request(&self, contender: Contender, number: u64) -> Result<(), Error> {
        let (id, cents) = (format!("order-{number}"), i64::try_from(number)?);
        // What both compare the payload by.
        let fingerprint = Fingerprint::of(&(&id, cents))?;
        match contender {
            Contender::Library => {
                let key = Key::new("order", id.as_str());
                let done = transact(&self.once, key, fingerprint, async |tx| {
                    let order = [(&id as _, Type::TEXT), (&cents as _, Type::INT8)];
                    tx.execute_typed(ORDER, &order).await.map_err(Failed::Sql)?;
                    Ok::<_, Failed>(cents)
                });
                done.await?;
            }
            Contender::ByHand => {
                let mut client = self.pool.get().await?;
                let tx = client.transaction().await?;
                let print = fingerprint.as_str();
                let token = [
                    (&id as _, Type::TEXT),
                    (&print as _, Type::TEXT),
                    (&cents as _, Type::INT8),
                ];
                if tx.execute_typed(TOKEN, &token).await? != 1 {
                    return Err("met a token".into());
                }
                let order = [(&id as _, Type::TEXT), (&cents as _, Type::INT8)];
                tx.execute_typed(ORDER, &order).await?;
                let outcome = serde_json::to_string(&cents)?;
                tx.execute_typed(DONE, &[(&id, Type::TEXT), (&outcome, Type::TEXT)])
                    .await?;
                tx.commit().await?;
            }
            Contender::Prepared => {
                let mut client = self.pool.get().await?;
                let tx = client.transaction().await?;
                let token = tx.prepare_cached(TOKEN).await?;
                if tx
                    .execute(&token, &[&id, &fingerprint.as_str(), &cents])
                    .await?
                    != 1
                {
                    return Err("met a token".into());
                }
                let order = tx.prepare_cached(ORDER).await?;
                tx.execute(&order, &[&id, &cents]).await?;
                let done = tx.prepare_cached(DONE).await?;
                tx.execute(&done, &[&id, &serde_json::to_string(&cents)?])
                    .await?;
                tx.commit().await?;
            }
        }
        Ok(())
    }

    /// Counts the statements of one request, as the server does.
    async fn statements(&self, contender: Contender, number: u64) -> Result<i64, Error> {
        const RESET: &str = "SELECT pg_stat_statements_reset()";
        self.pool.get().await?.execute(RESET, &[]).await?;
        self.request(contender, number + 1).await?;
        let client = self.pool.get().await?;
        let counted = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'";
        Ok(client.query_one(counted, &[]).await?.get(0))
    }

    /// The processor time of the connection's process on the server, which is on this machine.
    async fn server_cpu(&self) -> Result<Duration, Error> {
        let client = self.pool.get().await?;
        let pid: i32 = client
            .query_one("SELECT pg_backend_pid()", &[])
            .await?
            .get(0);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let after_name = stat.rsplit(')').next().ok_or("no stat")?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks = |place: usize| -> Result<f64, Error> {
            Ok(fields.get(place).ok_or("no such field")?.parse::<f64>()?)
        };
        let a_second = sysconf(SysconfVar::CLK_TCK)?.ok_or("no clock tick")?;
        // See proc_pid_stat(5): user and system time are the fields 14 and 15, of which the name's is the second.
        Ok(Duration::from_secs_f64(
            (ticks(11)? + ticks(12)?) / f64::from(u32::try_from(a_second)?),
        ))
    }
}

#[derive(Debug)]
enum Failed {
    Transaction(TransactionError),
    Sql(tokio_postgres::Error),
}

impl From<TransactionError> for Failed {
    fn from(error: TransactionError) -> Self {
        Self::Transaction(error)
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Transaction(error) => error.fmt(f),
            Self::Sql(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failed {}

fn cpu() -> Result<Duration, Error> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |time: nix::sys::time::TimeVal| -> Result<Duration, Error> {
        let seconds = u64::try_from(time.tv_sec())?;
        Ok(Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec())?))
    };
    Ok(of(usage.user_time())? + of(usage.system_time())?)
}
