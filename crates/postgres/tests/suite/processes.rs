//! Processes that are killed at any moment: this program itself, run again as a worker.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use lambda_idempotency::Key;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency_postgres::{PostgresStore, Sql};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{
    Engine, Failed, Gate, Store, committing, name, number, once_there_is, patient, pool_of,
    store_of, table, transact, url, url_with, waiting_for,
};

/// The variable that makes the test `a_worker` a worker: the tables' names, and its fate.
const WORKER: &str = "POSTGRES_TESTS_WORKER";

/// The fate of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing: its leases last.
    Lives,
    /// It is killed. By its clock it is yesterday, so that its leases are over.
    Dies,
    /// It may be killed: its leases are short.
    May,
}

fn worker_engine(store: Store, fate: Fate) -> Engine<deadpool_postgres::Pool> {
    let yesterday = SystemTime::now() - Duration::from_hours(24);
    Engine::of(store, |engine| {
        let engine = patient(engine)
            .namespace("processes")
            .settings(|settings| settings.skew_margin = Duration::ZERO);
        match fate {
            Fate::Lives => engine,
            Fate::Dies => engine.clock(ManualClock::at(yesterday.into())),
            Fate::May => engine.lease(Duration::from_secs(1)),
        }
    })
}

/// Takes lines `FORM KEY STOP` and answers each with `KEY FORM done`; with `stop`, it halts before.
async fn work(keys: &str, rows: &str, application: &str, fate: Fate) {
    let parameters = format!("application_name={application}");
    let pool = pool_of(&url_with("postgres", "postgres", &parameters), 2);
    let store = PostgresStore::with_table(pool, keys).unwrap();
    let engine = worker_engine(store, fate);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let [form, key, stop] = words[..] else {
            panic!("{line}");
        };
        let halt = async |point: &str| {
            if stop == point {
                println!("stopped");
                std::future::pending::<()>().await;
            }
        };
        let insert = format!("INSERT INTO {rows} (key) VALUES ($1)");
        let token = Key::new(form, key);
        let done = if form == "open" {
            transact(&engine, token, None, async |tx| {
                tx.execute(&insert, &[&key]).await?;
                halt("before").await;
                Ok::<_, Failed>(1)
            })
            .await
        } else {
            engine
                .run(token, None, async |claim| {
                    claim.write(Sql::new(&insert).bind(key))?;
                    halt("before").await;
                    Ok::<_, Failed>(1)
                })
                .await
        };
        halt("after").await;
        match done {
            Ok(_) => println!("{key} {form} done"),
            Err(error) => println!("{key} {form} failed: {error}"),
        }
    }
}

/// Is a worker where it runs as one, and shows that it becomes one where it doesn't.
#[tokio::test]
async fn a_worker() {
    if let Ok(tables) = std::env::var(WORKER) {
        let names: Vec<_> = tables.split(' ').collect();
        let [keys, rows, application, fate] = names[..] else {
            panic!("{tables}");
        };
        let fates = [Fate::Lives, Fate::Dies, Fate::May];
        let fate = fates.into_iter().find(|one| format!("{one:?}") == fate);
        return work(keys, rows, application, fate.unwrap()).await;
    }
    let tables = Tables::new("n bigint").await;
    let mut worker = tables.start(Fate::Lives);
    assert_eq!(worker.ask("open a none").await, "a open done");
    assert_eq!(worker.ask("claim a none").await, "a claim done");
    assert_eq!(tables.rows().await, HashMap::from([("a".to_owned(), 2)]));
}

struct Tables {
    keys: String,
    rows: String,
    store: Store,
}

impl Tables {
    async fn new(columns: &str) -> Self {
        let (store, keys) = store_of(&url(), 2).await;
        let rows = table(&store, &format!("key text, {columns}")).await;
        Self { keys, rows, store }
    }

    fn start(&self, fate: Fate) -> Worker {
        let application = name("worker");
        let words = format!("{} {} {application} {fate:?}", self.keys, self.rows);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::a_worker", "--nocapture"])
            .env(WORKER, words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Worker {
            requests: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            application,
        }
    }

    /// The rows of each key.
    async fn rows(&self) -> HashMap<String, i64> {
        let client = self.store.pool().get().await.unwrap();
        let counts = format!("SELECT key, count(*) FROM {} GROUP BY key", self.rows);
        let counts = client.query(&counts, &[]).await.unwrap();
        counts.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    application: String,
}

impl Worker {
    async fn send(&mut self, request: &str) {
        let line = format!("{request}\n");
        self.requests.write_all(line.as_bytes()).await.unwrap();
    }

    /// The next line that is the worker's own; `None` once it has ended.
    async fn answer(&mut self) -> Option<String> {
        let is_own =
            |line: &str| line == "stopped" || line.ends_with(" done") || line.contains(" failed: ");
        loop {
            let line = self.answers.next_line().await.unwrap()?;
            // The test's own first line has no end of its own.
            let line = line.rsplit("... ").next().unwrap_or_default();
            if is_own(line) {
                return Some(line.to_owned());
            }
        }
    }

    async fn ask(&mut self, request: &str) -> String {
        self.send(request).await;
        self.answer().await.expect("an answer")
    }

    /// Kills it by SIGKILL, and waits until it is gone.
    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_at_any_point_leaves_one_row_after_a_retry() {
    for form in ["open", "claim"] {
        for (point, left) in [("before", 0), ("during", 0), ("after", 1)] {
            let tables = Tables::new("n bigint").await;
            let mut closed = None;
            if point == "during" {
                closed = Some(Gate::before_commits_to(&tables.rows).await.close().await);
            }
            let mut worker = tables.start(Fate::Dies);
            worker.send(&format!("{form} a {point}")).await;
            if point == "during" {
                once_there_is(&committing(&worker.application), "1").await;
            } else {
                assert_eq!(worker.answer().await.as_deref(), Some("stopped"));
            }
            worker.kill().await;
            if point != "during" {
                let rows = tables.rows().await;
                assert_eq!(rows.get("a").copied().unwrap_or(0), left, "{form}, {point}");
            }
            let mut retry = tables.start(Fate::Lives);
            let request = format!("{form} a none");
            let opened = async {
                if let Some(closed) = closed {
                    // The retry meets the commit of the process that was killed.
                    once_there_is(&waiting_for(&tables.keys), "1").await;
                    drop(closed);
                }
            };
            let (answer, ()) = tokio::join!(retry.ask(&request), opened);
            assert_eq!(answer, format!("a {form} done"), "{point}");
            let rows = tables.rows().await;
            assert_eq!(
                rows,
                HashMap::from([("a".to_owned(), 1)]),
                "{form}, {point}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_at_once_write_one_row() {
    let tables = Tables::new("n bigint").await;
    let mut workers: Vec<_> = (0..8).map(|_| tables.start(Fate::Lives)).collect();
    for form in ["open", "claim"] {
        for worker in &mut workers {
            worker.send(&format!("{form} {form} none")).await;
        }
        for worker in &mut workers {
            assert_eq!(worker.answer().await, Some(format!("{form} {form} done")));
        }
    }
    let rows = tables.rows().await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows.values().all(|count| *count == 1), "{rows:?}");
}

/// Delivers each key up to three times to a worker of its order, and kills workers meanwhile. What
/// a worker hadn't answered is delivered again. `PROCESSES_KEYS=5000` delivers more.
#[tokio::test(flavor = "multi_thread")]
async fn deliveries_to_processes_that_are_killed_are_neither_lost_nor_doubled() {
    let seed = number("PROCESSES_SEED").unwrap_or_else(|| fastrand::u64(..));
    let keys = number("PROCESSES_KEYS").unwrap_or(600);
    println!("PROCESSES_KEYS={keys} PROCESSES_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let tables = Tables::new("n bigint").await;
    let forms = ["open", "claim"];
    let mut expected = HashMap::new();
    let mut queues: [Vec<String>; 4] = Default::default();
    for delivery in 0..keys {
        let form = forms[usize::from(delivery % 2 == 0)];
        expected.insert(format!("{form}-{delivery}"), 1);
        for _ in 0..rng.usize(1..=3) {
            queues[rng.usize(..4)].push(format!("{form} {form}-{delivery} none"));
        }
    }
    let mut workers = tokio::task::JoinSet::new();
    for queue in queues {
        let (keys, rows, store) = (
            tables.keys.clone(),
            tables.rows.clone(),
            tables.store.clone(),
        );
        let mut rng = Rng::with_seed(rng.u64(..));
        workers.spawn(async move {
            let tables = Tables { keys, rows, store };
            let (mut worker, mut kills) = (tables.start(Fate::May), 0);
            let mut until_kill = rng.usize(10..80);
            let mut queue = queue.into_iter().peekable();
            while let Some(request) = queue.peek() {
                worker.send(request).await;
                if until_kill == 0 && kills < 8 {
                    tokio::time::sleep(Duration::from_micros(rng.u64(..6_000))).await;
                    worker.kill().await;
                    worker = tables.start(Fate::May);
                    kills += 1;
                    until_kill = rng.usize(10..80);
                    continue;
                }
                until_kill = until_kill.saturating_sub(1);
                let answer = worker.answer().await.expect("an answer");
                // An attempt that was killed may hold the key: the message is received again.
                if answer.ends_with(" done") {
                    queue.next();
                }
            }
            kills
        });
    }
    let mut kills = 0;
    while let Some(ended) = workers.join_next().await {
        kills += ended.unwrap();
    }
    println!("{keys} keys, {kills} kills");
    assert!(kills >= 8, "{kills} kills");
    let rows = tables.rows().await;
    let wrong: Vec<_> = expected
        .keys()
        .chain(rows.keys())
        .filter(|key| rows.get(*key) != expected.get(*key))
        .collect();
    assert!(wrong.is_empty(), "PROCESSES_SEED={seed}: {wrong:?}");
}
