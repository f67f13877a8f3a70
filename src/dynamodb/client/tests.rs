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

use super::{retries, timeouts, *};
use crate::dynamodb::DynamoDbStore;
use crate::{Idempotency, Key};

#[test]
fn a_call_that_is_sent_once_keeps_its_clients_mode_of_retries() {
    let adaptive = RetryConfig::adaptive().with_max_attempts(7);
    let config = config::Builder::new()
        .behavior_version(config::BehaviorVersion::v2026_01_12())
        .retry_config(adaptive.clone());
    let once = sent_once(&Client::from_conf(config.build())).build();
    let once = once.retry_config().unwrap();
    assert_eq!(once.max_attempts(), 1);
    assert_eq!(once.mode(), adaptive.mode());
}

#[test]
fn the_client_waits_and_retries_as_its_documentation_says() {
    let timeouts = timeouts();
    let millis = |time: Option<Duration>| time.as_ref().map(Duration::as_millis);
    assert_eq!(millis(timeouts.connect_timeout()), Some(3_100));
    assert_eq!(millis(timeouts.operation_attempt_timeout()), Some(4_000));
    assert_eq!(millis(timeouts.operation_timeout()), Some(10_000));
    let retries = retries();
    assert_eq!(retries.max_attempts(), 3);
    assert_eq!(retries.initial_backoff(), Duration::from_millis(50));
    assert_eq!(retries.max_backoff(), Duration::from_secs(1));
}

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

/// The result of a night.
struct Night {
    requests: u32,
    admitted: u32,
    /// The time at which each run had succeeded.
    ended: Vec<Duration>,
    /// The number of times that each run had failed before.
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

const FUNCTION: [(&str, &str); 4] = [
    ("AWS_LAMBDA_FUNCTION_NAME", "payments"),
    ("AWS_REGION", "eu-central-1"),
    ("AWS_ACCESS_KEY_ID", "id"),
    ("AWS_SECRET_ACCESS_KEY", "secret"),
];

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables = variables.iter();
    Environment::of(variables.map(|&(name, value)| (name.into(), value.into())))
}

fn complete(variables: &[(&str, &str)]) -> bool {
    environment(variables).is_complete
}

fn with(name: &str, value: &str) -> bool {
    let mut variables = FUNCTION.to_vec();
    variables.push((name, value));
    complete(&variables)
}

#[test]
fn a_functions_environment_is_complete() {
    assert!(complete(&FUNCTION));
    assert!(with("AWS_SESSION_TOKEN", "token"));
}

#[test]
fn whatever_lambda_gives_may_not_be_missing_or_empty() {
    for missing in 0..FUNCTION.len() {
        let mut variables = FUNCTION.to_vec();
        let (name, _) = variables.remove(missing);
        assert!(!complete(&variables), "without {name}");
        variables.push((name, ""));
        assert!(!complete(&variables), "with an empty {name}");
    }
}

#[test]
fn whatever_has_to_be_looked_up_is_left_to_the_sdk() {
    for name in LOOKED_UP {
        assert!(!with(name, "/var/task/own"), "{name}");
        assert!(with(name, ""), "an empty {name}");
    }
}

#[test]
fn credentials_of_a_function_are_renewed_where_an_endpoint_is_named() {
    let renewed = |variables: &[(&str, &str)]| environment(variables).is_renewed;
    let (at, function) = ("http://127.0.0.1:9001/credentials", (FUNCTION_NAME, "f"));
    for name in RENEWED_AT {
        assert!(renewed(&[function, (name, at)]), "{name}");
        assert!(!renewed(&[function, (name, "")]), "an empty {name}");
        assert!(!renewed(&[(name, at)]), "elsewhere");
    }
    assert!(!renewed(&FUNCTION));
}

#[test]
fn an_endpoint_with_tls_of_its_own_is_left_to_the_sdk() {
    for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"] {
        assert!(!with(name, "https://localhost:8000"));
        assert!(!with(name, "localhost:8000"));
        assert!(with(name, "http://localhost:8000"));
    }
}

#[test]
fn credentials_are_expired_by_the_code_of_a_refusal_and_by_no_text_beside_it() {
    for (code, is_expired) in [
        ("com.amazon.coral.service#ExpiredTokenException", true),
        ("ExpiredToken", true),
        ("TokenRefreshRequired", true),
        (
            "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
            false,
        ),
    ] {
        let item = serde_json::json!({"last_error": {"S": "ExpiredToken"}});
        let body = serde_json::json!({"__type": code, "Item": item}).to_string();
        assert_eq!(has_code(body.as_bytes(), &EXPIRED), is_expired, "{body}");
    }
}
