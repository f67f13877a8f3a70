//! One order in a transaction with its key, by hand and by the library, in turns on one server.
//!
//! With `POSTGRES_URL` set, each prints JSON about each contender:
//!
//! - `bench-postgres measure ROUNDS REQUESTS`: for each round the time, the processor time of this process and that of its server
//!   process, for one request in microseconds.
//! - `bench-postgres count`: the statements of one request, as a server with `pg_stat_statements` counts them.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, Pool};
use lambda_idempotency::{Fingerprint, Idempotency, Key};
use lambda_idempotency_postgres::{PostgresStore, TransactionError};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, sysconf};
use serde_json::{Value, json};
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
    store: PostgresStore<Pool>,
    once: Idempotency,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let manager = Manager::new(std::env::var("POSTGRES_URL")?.parse()?, NoTls);
    // One connection, so that its server process is known.
    let pool = Pool::builder(manager).max_size(1).build()?;
    pool.get().await?.batch_execute(TABLES).await?;
    let store = PostgresStore::new(pool.clone());
    store.create_tables().await?;
    let once = Idempotency::builder(store.clone())
        .namespace("bench")
        .build()?;
    let bench = Bench { pool, store, once };

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let report = match *arguments {
        ["measure", rounds, requests] => bench.measure(rounds.parse()?, requests.parse()?).await?,
        ["count"] => bench.count().await?,
        _ => return Err("usage: bench-postgres measure ROUNDS REQUESTS | count".into()),
    };
    println!("{report}");
    Ok(())
}

const TABLES: &str = "
    CREATE TABLE tokens (id text PRIMARY KEY, status text NOT NULL, fingerprint text NOT NULL, outcome text, expiration bigint NOT NULL);
    CREATE INDEX ON tokens (expiration);
    CREATE TABLE orders (id text PRIMARY KEY, cents bigint NOT NULL);
";

const TOKEN: &str = "INSERT INTO tokens (id, status, fingerprint, expiration) VALUES ($1, 'INPROGRESS', $2, $3) ON CONFLICT DO NOTHING";
const DONE: &str = "UPDATE tokens SET status = 'COMPLETED', outcome = $2 WHERE id = $1";

impl Bench {
    async fn request(&self, contender: Contender, number: u64) -> Result<(), Error> {
        let (id, cents) = (uuid(number), i64::try_from(number)?);
        // Both compare the payload by this fingerprint.
        let fingerprint = Fingerprint::of(&(&id, cents))?;
        match contender {
            Contender::Library => {
                let key = Key::new("order", id.as_str());
                let done = self
                    .store
                    .transact(&self.once, key, fingerprint, async |tx| {
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

    async fn measure(&self, rounds: u32, requests: u32) -> Result<Value, Error> {
        let mut taken: BTreeMap<Contender, Vec<[f64; 3]>> = BTreeMap::new();
        let mut next = 0;
        for round in 0..=rounds {
            for contender in Contender::ALL {
                let (cpu, server, began) = (cpu()?, self.server_cpu().await?, Instant::now());
                for _ in 0..requests {
                    next += 1;
                    self.request(contender, next).await?;
                }
                let of_one = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(requests);
                let wall = began.elapsed();
                let server = self.server_cpu().await?.saturating_sub(server);
                let measured = [wall, self::cpu()?.saturating_sub(cpu), server].map(of_one);
                // The first round warms up.
                if round > 0 {
                    taken.entry(contender).or_default().push(measured);
                }
            }
        }
        let column = |rounds: &[[f64; 3]], place: usize| -> Vec<f64> {
            rounds
                .iter()
                .filter_map(|round| round.get(place))
                .copied()
                .collect()
        };
        let figures = |rounds: Vec<[f64; 3]>| {
            let [wall, cpu, server] = [0, 1, 2].map(|place| column(&rounds, place));
            json!({"wall_us": wall, "cpu_us": cpu, "server_us": server})
        };
        let report = taken
            .into_iter()
            .map(|(contender, rounds)| (contender.name().to_owned(), figures(rounds)));
        Ok(Value::Object(report.collect()))
    }

    /// Counts the statements of one request.
    async fn count(&self) -> Result<Value, Error> {
        const EXTENSION: &str = "CREATE EXTENSION IF NOT EXISTS pg_stat_statements";
        const RESET: &str = "SELECT pg_stat_statements_reset()";
        const COUNT: &str = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'";
        self.pool.get().await?.batch_execute(EXTENSION).await?;
        let mut report = serde_json::Map::new();
        for (contender, number) in Contender::ALL.into_iter().zip([1, 3, 5]) {
            // The first request of all looks at the tables.
            self.request(contender, number).await?;
            self.pool.get().await?.execute(RESET, &[]).await?;
            self.request(contender, number + 1).await?;
            let counted: i64 = self.pool.get().await?.query_one(COUNT, &[]).await?.get(0);
            report.insert(contender.name().to_owned(), counted.into());
        }
        Ok(Value::Object(report))
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

/// Makes what a client sends as its key: nothing that a table's index could append.
fn uuid(number: u64) -> String {
    // The finaliser of splitmix64: each number has another result.
    let mixed = |seed: u64| {
        let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let step = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:016x}{:016x}", mixed(step), mixed(step ^ u64::MAX))
}

fn cpu() -> Result<Duration, Error> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |time: nix::sys::time::TimeVal| -> Result<Duration, Error> {
        let seconds = u64::try_from(time.tv_sec())?;
        Ok(Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec())?))
    };
    Ok(of(usage.user_time())? + of(usage.system_time())?)
}
