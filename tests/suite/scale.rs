//! A thousand execution environments, and a table that admits a part of what they ask: the engine's own code, in virtual time. The
//! page on scale has what this finds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lambda_idempotency::protocol::record::{Found, RecordWrite};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::{Idempotency, Key, RecordId, StoreError};
use tokio::time::{Instant, sleep};

const ENVIRONMENTS: u32 = 1_000;
/// The time of a handler; an environment works at one message after the other.
const HANDLER: Duration = Duration::from_millis(980);
const ROUND_TRIP: Duration = Duration::from_millis(5);
const LASTING: Duration = Duration::from_secs(30);

/// A partition of a table: it admits so many writes a second, and keeps those of 300 seconds that nobody asked for: see
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/burst-adaptive-capacity.html>. It is asked from the first
/// second on, so that it has saved nothing.
#[derive(Clone)]
struct Partition {
    records: MemoryStore,
    bucket: Arc<Mutex<Bucket>>,
}

struct Bucket {
    a_second: f64,
    saved: f64,
    filled: Instant,
    requests: u32,
    admitted: u32,
}

impl Partition {
    fn of(a_second: u32) -> Self {
        let bucket = Bucket {
            a_second: a_second.into(),
            saved: 0.0,
            filled: Instant::now(),
            requests: 0,
            admitted: 0,
        };
        Self {
            records: MemoryStore::new(),
            bucket: Arc::new(Mutex::new(bucket)),
        }
    }

    fn admits(&self) -> bool {
        let mut bucket = self.bucket.lock().unwrap();
        let since = bucket.filled.elapsed().as_secs_f64();
        bucket.filled = Instant::now();
        let most = bucket.a_second * 300.0;
        bucket.saved = (bucket.saved + since * bucket.a_second).min(most);
        bucket.requests += 1;
        let admits = bucket.saved >= 1.0;
        if admits {
            bucket.saved -= 1.0;
            bucket.admitted += 1;
        }
        admits
    }
}

impl Store for Partition {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        sleep(ROUND_TRIP).await;
        if self.admits() {
            self.records.write(write, deadline).await
        } else {
            Err(StoreError::Throttled(
                "a partition is over its throughput".into(),
            ))
        }
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        sleep(ROUND_TRIP).await;
        self.records.load(id, deadline).await
    }
}

/// An environment: messages done, messages that go back to the queue.
async fn environment(number: u32, table: Partition) -> (u32, u32) {
    let once = Idempotency::builder(table).namespace("scale").build();
    let once = once.unwrap();
    // They didn't all begin in the same millisecond.
    sleep(Duration::from_secs(1) * number / ENVIRONMENTS).await;
    let (began, mut done, mut back) = (Instant::now(), 0, 0);
    for message in 0.. {
        if began.elapsed() >= LASTING {
            break;
        }
        let key = Key::new("charge", format!("{number}-{message}"));
        let ran = once.run(key, None, |_| async {
            sleep(HANDLER).await;
            Ok::<_, std::io::Error>(())
        });
        if ran.await.is_ok() {
            done += 1;
        } else {
            back += 1;
            sleep(ROUND_TRIP * 4).await;
        }
    }
    (done, back)
}

/// Returns the figures of the page's row for a table that admits so many writes a second.
async fn night(admitted: u32) -> [f64; 3] {
    let table = Partition::of(admitted);
    let running: Vec<_> = (0..ENVIRONMENTS)
        .map(|number| tokio::spawn(environment(number, table.clone())))
        .collect();
    let (mut done, mut back) = (0, 0);
    for environment in running {
        let (more, others) = environment.await.unwrap();
        done += more;
        back += others;
    }
    let bucket = table.bucket.lock().unwrap();
    let seconds = LASTING.as_secs_f64();
    [
        f64::from(done) / seconds,
        f64::from(back) / seconds,
        f64::from(bucket.requests) / f64::from(bucket.admitted),
    ]
}

/// The figures of the rows of the page's table whose first figure is a rate of writes.
fn rows() -> Vec<(u32, [f64; 3])> {
    let page = include_str!("../../docs/operations/scale.md");
    let (_, table) = page
        .split_once("| admitted a second |")
        .expect("the page has the table");
    let lines = table.lines().skip(2);
    let rows = lines.take_while(|line| line.starts_with('|')).map(|line| {
        let cells = line.trim_matches('|').split('|');
        let cells: Vec<_> = cells
            .map(|cell| cell.replace([',', ' ', '×'], ""))
            .collect();
        let figure = |cell: &String| cell.parse().expect("a figure");
        let figures: Vec<f64> = cells[1..].iter().map(figure).collect();
        let admitted = cells[0].parse().expect("a rate");
        (admitted, figures.try_into().expect("four columns"))
    });
    rows.collect()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_environments_share_what_a_table_admits_as_the_page_says() {
    let rows = rows();
    assert_eq!(rows.len(), 4);
    let mut wrong = false;
    for (admitted, said) in rows {
        let found = night(admitted).await;
        println!("{admitted}: {found:?}");
        // Pauses have chance in them.
        let is_near =
            |said: f64, found: f64, least: f64| (said - found).abs() <= said.max(least) * 0.15;
        let [done, back, requests] = said;
        let [done, back, requests] = [
            is_near(done, found[0], 10.0),
            is_near(back, found[1], 10.0),
            is_near(requests, found[2], 1.0),
        ];
        wrong |= !(done && back && requests);
    }
    assert!(!wrong, "the page says other figures");
}
