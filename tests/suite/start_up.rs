//! The output of a `main` that can't set the library up: Rust prints the `Debug` of the error that it returns.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::time::Duration;

use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::imds;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{IdentityCache, Region};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::protocol::record::{Found, RecordWrite};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::testing::conformance;
use lambda_idempotency::{
    BuildError, Idempotency, Key, OnStoreUnavailable, Pointer, RecordId, Selector, StoreError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::alone;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A store that refuses everything.
struct Shut;

impl Store for Shut {
    async fn write(&self, _: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        Err(StoreError::Conflict)
    }

    async fn load(&self, _: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        Err(StoreError::Conflict)
    }
}

/// Returns the text that `main` prints for this error, and the error's own text.
fn printed<E: Into<Failure>>(error: E) -> (String, String) {
    let failure = error.into();
    (format!("{failure:?}"), failure.to_string())
}

#[tokio::test(start_paused = true)]
async fn each_error_of_a_start_up_is_printed_as_what_it_says() {
    let name = |name: &str| {
        let built = Idempotency::builder(MemoryStore::new()).namespace(name);
        built.build().unwrap_err()
    };
    let config = aws_sdk_dynamodb::Config::builder().behavior_version_latest();
    let client = Client::from_conf(config.build());
    let store = DynamoDbStore::new(client, "idempotency");
    let of = |store| Idempotency::builder(store).namespace("shop").build();
    let (nowhere, layout) = (
        of(store.clone()),
        of(store.layout(|layout| layout.status = "data".into())),
    );
    let config = aws_sdk_dynamodb::Config::builder().behavior_version_latest();
    let config = config.region(Region::from_static("eu-central-1"));
    let store = DynamoDbStore::new(Client::from_conf(config.build()), "idempotency");
    let s3 = aws_sdk_s3::Config::builder().behavior_version_latest();
    let s3 = aws_sdk_s3::Client::from_conf(s3.build());
    let bucket = of(store.outcome_bucket(s3, "outcomes", "kept/"));
    let unnamed = Idempotency::builder(MemoryStore::new()).build();
    let named = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let layer = IdempotencyLayer::unscoped(named.build().unwrap());
    for ((printed, said), advice) in [
        (
            printed(BuildError::TableNotNamed),
            "set the environment variable",
        ),
        (printed(unnamed.unwrap_err()), "call `.namespace(\"…\")`"),
        (printed(name("")), "call `.namespace(\"…\")`"),
        (printed(name("a#b")), "without `#`"),
        (printed(layout.unwrap_err()), "two attributes `data`"),
        (
            printed(nowhere.unwrap_err()),
            "set the environment variable AWS_REGION",
        ),
        (printed(bucket.unwrap_err()), "the S3 client has no region"),
        (
            printed("detail".parse::<Pointer>().unwrap_err()),
            "it starts with `/`",
        ),
        (
            printed(Selector::pointer("detail").unwrap_err()),
            "it starts with `/`",
        ),
        (
            printed(Selector::jmespath("detail.[").unwrap_err()),
            "is no JMESPath expression",
        ),
        (
            printed(
                layer
                    .clone()
                    .route("POST orders", RoutePolicy::off())
                    .unwrap_err(),
            ),
            "write it as",
        ),
        (
            printed(layer.documentation("/retries").unwrap_err()),
            "give an absolute address",
        ),
        (
            printed(conformance(&Shut).await.unwrap_err()),
            "the store breaks its contract",
        ),
    ] {
        assert_eq!(printed, said);
        assert!(printed.contains(advice), "{printed}");
    }
}

/// Returns the error of a first request, without credentials in this child's environment.
async fn said_without(config: aws_sdk_dynamodb::config::Builder) -> String {
    let config = config
        .region(Region::from_static("eu-central-1"))
        .endpoint_url("http://127.0.0.1:9");
    let store = DynamoDbStore::new(Client::from_conf(config.build()), "idempotency");
    let once = Idempotency::builder(store).namespace("shop");
    // Nothing is sent, so that it says nothing of the store.
    let once = once
        .on_store_unavailable(OnStoreUnavailable::FailOpen)
        .build()
        .unwrap();
    let nothing = async |_| Ok::<_, Infallible>(());
    let run = once.run(Key::new("charge", "1"), None, nothing);
    run.await.unwrap_err().to_string()
}

#[tokio::test]
async fn missing_credentials_are_said_to_be_missing() {
    if alone::child().is_none() {
        let test = concat!(
            module_path!(),
            "::missing_credentials_are_said_to_be_missing"
        );
        let blank = [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")];
        alone::run(test, "without credentials", &blank);
        return;
    }
    let config = || aws_sdk_dynamodb::Config::builder().behavior_version_latest();
    let finds_none = EnvironmentVariableCredentialsProvider::new();
    for config in [config(), config().credentials_provider(finds_none)] {
        let said = said_without(config).await;
        assert!(said.contains("no AWS credentials were found: "), "{said}");
    }
    let metadata = imds::Client::builder()
        .endpoint(forbidding().await)
        .unwrap();
    let is_forbidden = ImdsCredentialsProvider::builder().imds_client(metadata.build());
    let said = said_without(config().credentials_provider(is_forbidden.build())).await;
    let advice = "the AWS credentials could not be loaded: give the process a role";
    assert!(said.contains(advice), "{said}");
}

/// A provider of credentials that fails, in each way that it may.
#[derive(Debug)]
struct Failing(fn(&'static str) -> CredentialsError);

impl ProvideCredentials for Failing {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err(self.0("the vault is closed")))
    }
}

#[tokio::test]
async fn a_provider_of_credentials_that_fails_says_nothing_of_the_store() {
    let failures: [fn(&'static str) -> CredentialsError; 4] = [
        |why| CredentialsError::provider_error(why),
        |why| CredentialsError::unhandled(why),
        |why| CredentialsError::invalid_configuration(why),
        |_| CredentialsError::provider_timed_out(Duration::from_secs(1)),
    ];
    for failure in failures {
        let config = aws_sdk_dynamodb::Config::builder().behavior_version_latest();
        let said = said_without(config.credentials_provider(Failing(failure))).await;
        let advice = "the AWS credentials could not be loaded: give the process a role";
        assert!(said.contains(advice), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_that_do_not_come_say_nothing_of_the_store() {
    // Connections are made, and nobody reads what comes.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let config = || {
        let (metadata, long) = (imds::Client::builder(), Duration::from_hours(1));
        let metadata = metadata.endpoint(&address).unwrap();
        let metadata = metadata.connect_timeout(long).read_timeout(long);
        let metadata = metadata
            .operation_timeout(long)
            .operation_attempt_timeout(long);
        let provider = ImdsCredentialsProvider::builder().imds_client(metadata.build());
        let config = aws_sdk_dynamodb::Config::builder().behavior_version_latest();
        config.credentials_provider(provider.build())
    };
    let time = Duration::from_secs(1);
    let attempts = TimeoutConfig::builder().operation_attempt_timeout(time);
    let cache = IdentityCache::lazy().load_timeout(time);
    for (config, expected) in [
        (config(), "not sent before the deadline"),
        (
            config().timeout_config(attempts.build()),
            "not sent before the deadline",
        ),
        (
            config().identity_cache(cache.build()),
            "the AWS credentials could not be loaded",
        ),
    ] {
        let said = said_without(config).await;
        assert!(said.contains(expected), "{said}");
    }
}

/// A machine's metadata service that gives nothing to this process.
async fn forbidding() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1_024]).await;
            let answer =
                b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    });
    format!("http://{address}")
}

/// AWS, for a store whose credentials expire: an endpoint that gives other keys each time, and a DynamoDB that takes the second ones.
fn expiring() -> String {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut given = 0;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            while !is_whole(&request) {
                let mut part = [0; 4_096];
                match stream.read(&mut part) {
                    // A connection that was not needed.
                    Ok(0) | Err(_) => break,
                    Ok(read) => request.extend_from_slice(&part[..read]),
                }
            }
            if !is_whole(&request) {
                continue;
            }
            let request = String::from_utf8(request).unwrap();
            let (status, body) = if request.starts_with("GET /credentials") {
                given += 1;
                let keys = serde_json::json!({
                    "AccessKeyId": format!("given-{given}"), "SecretAccessKey": "secret", "Token": "token",
                    "Expiration": "2099-01-01T00:00:00Z",
                });
                ("200 OK", keys.to_string())
            } else if request.contains("Credential=given-2/") {
                ("200 OK", "{}".to_owned())
            } else {
                let kind = "com.amazon.coral.service#ExpiredTokenException";
                let refused = serde_json::json!({ "__type": kind, "message": "expired" });
                ("400 Bad Request", refused.to_string())
            };
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close");
            stream
                .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
                .unwrap();
        }
    });
    format!("http://{address}")
}

/// Returns whether a request has its head, and as much of a body as the head says.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

#[tokio::test]
async fn a_process_that_outlives_its_credentials_gets_others() {
    if alone::child().is_none() {
        let test = concat!(
            module_path!(),
            "::a_process_that_outlives_its_credentials_gets_others"
        );
        let server = expiring();
        let function = [
            ("AWS_LAMBDA_FUNCTION_NAME", "payments"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_ACCESS_KEY_ID", "of-the-start"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_ENDPOINT_URL_DYNAMODB", &server),
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                &format!("{server}/credentials"),
            ),
            ("IDEMPOTENCY_TABLE", "idempotency"),
        ];
        alone::run(test, "a function", &function);
        return;
    }
    let store = DynamoDbStore::from_env().await.unwrap();
    let once = Idempotency::builder(store.clone())
        .namespace("shop")
        .build()
        .unwrap();
    let id = once.record_id(&Key::new("charge", "1")).unwrap();
    let load = || store.load(&id, Instant::now() + Duration::from_mins(1));
    let expired = load().await.unwrap_err();
    assert_matches!(expired, StoreError::Unauthenticated(_));
    assert!(
        expired.to_string().contains("a provider that renews them"),
        "{expired}"
    );
    for _ in 0..2 {
        assert!(load().await.unwrap().is_none());
    }
}
