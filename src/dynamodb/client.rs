//! Makes the configuration of clients in Lambda, and that of a call that the SDK must not send
//! again.

use std::time::Duration;

use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::environment::region::EnvironmentVariableRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_dynamodb::config::SharedHttpClient;
use aws_sdk_dynamodb::{Client, config};

mod environment;
mod renewed;
mod roots;
mod sent;
mod throttled;

pub(super) use sent::{in_time, noting_sends};
pub(super) use throttled::without_repeats;

use environment::Environment;
use renewed::Renewed;

/// Makes the configuration that [`DynamoDbStore::from_env`](super::DynamoDbStore::from_env) uses,
/// for your own clients in a function.
///
/// ```no_run
/// use aws_sdk_dynamodb::Client;
/// use lambda_idempotency::dynamodb::{DynamoDbStore, sdk_config};
///
/// # async fn start() {
/// let config = sdk_config().await;
/// let client = Client::new(&config);
/// let store = DynamoDbStore::new(client.clone(), "idempotency");
/// # }
/// ```
///
/// Clients of one configuration share connections. `aws_sdk_sqs::Client::new(&config)` and its like
/// take it, too.
///
/// **Timeouts and retries.** A client connects within 3.1 seconds (one lost SYN and its
/// repetition), gives an attempt 4 and an operation 10 seconds, and tries three times with small
/// pauses. Stalled-stream protection is off, which small replies don't need.
///
/// **In a Lambda function** the SDK has nothing to look for: region and credentials are in the
/// environment. They are taken from there, without the chain of providers, and the certificates to
/// trust are Mozilla's, compiled in. To read the system's takes up to half of a cold start
/// (`docs/internals/performance.md` in the repository). Keys in the environment are those of the
/// start: in every function where `AWS_CONTAINER_CREDENTIALS_FULL_URI` or its like names an endpoint
/// that renews credentials, they are taken from there.
///
/// **The SDK's own defaults** hold in any other process, and where one of these variables is set:
///
/// - `SSL_CERT_FILE`, `SSL_CERT_DIR`, `AWS_CA_BUNDLE`: you trust certificates of your own. The SDK
///   reads the first two;
/// - `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_DYNAMODB` and its like, with `https`;
/// - `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`;
/// - `AWS_PROFILE`, `AWS_CONFIG_FILE`, `AWS_SHARED_CREDENTIALS_FILE`.
///
/// A function in a network that opens TLS with a certificate of its own, installed in the image,
/// needs `SSL_CERT_FILE`.
pub async fn sdk_config() -> SdkConfig {
    let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .timeout_config(timeouts())
        .retry_config(retries())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    let environment = Environment::of(std::env::vars_os());
    let client = environment.is_complete.then(roots::compiled_in).flatten();
    let config = match &client {
        None => config,
        Some(client) => config
            .http_client(client.clone())
            .region(EnvironmentVariableRegionProvider::new())
            .credentials_provider(EnvironmentVariableCredentialsProvider::new()),
    };
    // The SDK's chain would take keys in the environment first, which are those of the start.
    let config = if environment.is_renewed {
        config.credentials_provider(endpoint(client))
    } else {
        config
    };
    config.load().await
}

/// Makes the provider that asks the endpoint in the environment.
fn endpoint(client: Option<SharedHttpClient>) -> EcsCredentialsProvider {
    let mut config = ProviderConfig::default();
    if let Some(client) = client {
        config = config.with_http_client(client);
    }
    EcsCredentialsProvider::builder().configure(&config).build()
}

/// Makes the client of [`DynamoDbStore::from_env`](super::DynamoDbStore::from_env).
pub(super) async fn from_env() -> Client {
    let renewed = Renewed::default();
    let config = config::Builder::from(&sdk_config().await);
    let config = config.identity_cache(renewed.clone()).interceptor(renewed);
    Client::from_conf(config.build())
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Duration::from_millis(3_100))
        .operation_attempt_timeout(Duration::from_secs(4))
        .operation_timeout(Duration::from_secs(10))
        .build()
}

fn retries() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(3)
        .with_initial_backoff(Duration::from_millis(50))
        .with_max_backoff(Duration::from_secs(1))
}

/// The configuration of a call that the SDK sends once, whatever its client's retries are; all
/// else is the client's.
pub(super) fn sent_once(client: &Client) -> config::Builder {
    let retries = client.config().retry_config().cloned();
    let retries = retries.unwrap_or_else(RetryConfig::standard);
    config::Builder::new().retry_config(retries.with_max_attempts(1))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
