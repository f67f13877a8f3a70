//! A table that admits a tenth of what is asked, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use tokio::time::Instant;

use crate::dynamodb::DynamoDbStore;
use crate::dynamodb::client::{retries, timeouts};
use crate::{Idempotency, Key};

const PROCESSES: u32 = 8;
const REQUESTS: u32 = 125;
/// Of the requests' writes: 400 a second are asked for.
const ARRIVE_WITHIN: Duration = Duration::from_secs(5);
const ADMITTED_A_SECOND: f64 = 40.0;
const ROUND_TRIP: Duration = Duration::from_millis(5);
/// After this time a queue delivers a message again that failed.
const COMES_AGAIN: Duration = Duration::from_secs(30);

/// A table's partition: a bucket of tokens, filled at the rate that it admits, for a second at most.
#[derive(Clone, Debug)]
struct Table(Arc<Mutex<Bucket>>);

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
    requests: u32,
    admitted: u32,
}

impl HttpConnector for Table {
    fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
        let mut bucket = self.0.lock().unwrap();
        let now = Instant::now();
        let filled = (now - bucket.filled).as_secs_f64() * ADMITTED_A_SECOND;
        bucket.tokens = (bucket.tokens + filled).min(ADMITTED_A_SECOND);
        bucket.filled = now;
        bucket.requests += 1;
        let is_admitted = bucket.tokens >= 1.0;
        let (status, body) = if is_admitted {
            bucket.tokens -= 1.0;
            bucket.admitted += 1;
            (200, "{}")
        } else {
            let throttled = r#"{"__type": "ProvisionedThroughputExceededException"}"#;
            (400, throttled)
        };
        HttpConnectorFuture::new(async move {
            tokio::time::sleep(ROUND_TRIP).await;
            let status = u16::try_from(status).unwrap().try_into().unwrap();
            Ok(HttpResponse::new(status, SdkBody::from(body)))
        })
    }
}

/// The virtual time of the runtime.
#[derive(Clone, Copy, Debug)]
struct Virtual {
    began: Instant,
    since: SystemTime,
}

impl TimeSource for Virtual {
    fn now(&self) -> SystemTime {
        self.since + self.began.elapsed()
    }
}

fn process(number: u32, table: &Table, time: Virtual, retries: RetryConfig) -> DynamoDbStore {
    let connector = SharedHttpConnector::new(table.clone());
    let http =
        http_client_fn(move |_: &HttpConnectorSettings, _: &RuntimeComponents| connector.clone());
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .endpoint_url("http://127.0.0.1:1")
        .region(Region::from_static("eu-central-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
        .retry_config(retries)
        .timeout_config(timeouts())
        // Each process has rates of its own.
        .retry_partition(RetryPartition::new(format!(
            "process {number} {:?}",
            time.began
        )))
        .time_source(time)
        .http_client(http);
    DynamoDbStore::new(
        aws_sdk_dynamodb::Client::from_conf(config.build()),
        "records",
    )
}

/// What a night came to.
struct Night {
    requests: u32,
    admitted: u32,
    /// When each run had succeeded.
    ended: Vec<Duration>,
    /// How often each run had failed before.
    failed: Vec<usize>,
}

async fn night(retries: RetryConfig) -> Night {
    let began = Instant::now();
    let time = Virtual {
        began,
        since: SystemTime::now(),
    };
    let table = Table(Arc::new(Mutex::new(Bucket {
        tokens: ADMITTED_A_SECOND,
        filled: began,
        requests: 0,
        admitted: 0,
    })));
    let mut tasks = Vec::new();
    for number in 0..PROCESSES {
        let store = process(number, &table, time, retries.clone());
        let once = Idempotency::builder(store).namespace("night");
        let once = once.build().unwrap();
        for request in 0..REQUESTS {
            let once = once.clone();
            tasks.push(tokio::spawn(async move {
                tokio::time::sleep(ARRIVE_WITHIN * request / REQUESTS).await;
                let mut failed = 0;
                loop {
                    let key = Key::new("charge", format!("{number}-{request}"));
                    let charge = once.run(key, None, |_| async { Ok::<_, std::io::Error>(()) });
                    match charge.await {
                        Ok(_) => return (began.elapsed(), failed),
                        Err(_) => failed += 1,
                    }
                    tokio::time::sleep(COMES_AGAIN).await;
                }
            }));
        }
    }
    let (mut ended, mut failed) = (Vec::new(), Vec::new());
    for task in tasks {
        let (at, failures) = task.await.unwrap();
        ended.push(at);
        failed.push(failures);
    }
    ended.sort();
    let bucket = table.0.lock().unwrap();
    Night {
        requests: bucket.requests,
        admitted: bucket.admitted,
        ended,
        failed,
    }
}

/// A claim and a completion for each run.
const NEEDED: u32 = 2 * PROCESSES * REQUESTS;

#[tokio::test(start_paused = true)]
async fn a_table_that_admits_a_tenth_is_asked_hardly_more_often_than_it_admits() {
    let night = night(retries()).await;
    let (requests, admitted) = (night.requests, night.admitted);
    let last = *night.ended.last().unwrap();
    let often = *night.failed.iter().max().unwrap();
    eprintln!(
        "{requests} requests, {admitted} admitted, the last run after {last:?}, failed at most {often} times"
    );
    assert!(requests <= 2 * NEEDED, "{requests} requests for {NEEDED}");
    // None waits for ever: at its rate, the table needs 50 seconds for all.
    assert!(last < Duration::from_mins(4), "{last:?}");
    assert!(often <= 6, "a run failed {often} times");
}
