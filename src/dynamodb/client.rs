//! Sets the timeouts and retries of a client made for Lambda, whose reasons
//! `DynamoDbStore::from_env` states, and of a call that the SDK must not send again.

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::{Client, config};

pub(super) fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Duration::from_millis(3_100))
        .operation_attempt_timeout(Duration::from_secs(4))
        .operation_timeout(Duration::from_secs(10))
        .build()
}

pub(super) fn retries() -> RetryConfig {
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
