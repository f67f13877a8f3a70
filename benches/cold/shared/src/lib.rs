//! The message of the three workers, and its effect.
#![allow(
    clippy::missing_errors_doc,
    clippy::panic,
    reason = "a measurement that panics has its own mistake"
)]

use std::env;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::Error;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use serde::Deserialize;

/// The body of a message.
#[derive(Deserialize)]
pub struct Payment {
    /// The payment's id.
    pub payment_id: String,
    /// The amount, in cents.
    pub amount: u64,
}

/// A client with the settings of `DynamoDbStore::from_env`.
pub async fn client() -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_millis(3_100))
        .operation_attempt_timeout(Duration::from_secs(4))
        .operation_timeout(Duration::from_secs(10))
        .build();
    let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(3))
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .load()
        .await;
    Client::new(&config)
}

/// The table that an environment variable names.
pub fn table(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| panic!("set {variable}"))
}

/// The effect: an entry in the ledger.
pub async fn enter(client: &Client, ledger: &str, payment: Payment) -> Result<(), Error> {
    client
        .put_item()
        .table_name(ledger)
        .item("id", S(payment.payment_id))
        .item("amount", N(payment.amount.to_string()))
        .send()
        .await?;
    Ok(())
}
