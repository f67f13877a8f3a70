//! How long a client made for Lambda waits, and how often it tries. `DynamoDbStore::from_env` says why.

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;

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

#[cfg(test)]
mod tests {
    use super::*;

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
