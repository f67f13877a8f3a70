//! A client whose requests are counted, and the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Builder, ConfigBag, Credentials, Intercept, Region, RuntimeComponents,
    StalledStreamProtectionConfig,
};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;

use crate::Error;

/// Counts what goes over the wire, retries of the SDK among it.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<AtomicU64>);

impl Requests {
    /// Returns the number of requests since the last call.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

// Counting costs next to nothing: it is called at this hook alone.
#[dyn_dispatch_hint]
impl Intercept for Requests {
    fn name(&self) -> &'static str {
        "Requests"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The settings that all Rust contenders share. Stalled-stream protection is off, as `DynamoDbStore::from_env` has it.
pub fn config() -> Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::from_static("eu-central-1"))
        .credentials_provider(Credentials::new("bench", "bench", None, None, "bench"))
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
}

/// A client of a server on this machine.
pub fn connect(endpoint: &str) -> (Client, Requests) {
    let requests = Requests::default();
    let config = config()
        .endpoint_url(endpoint)
        .interceptor(requests.clone())
        .build();
    (Client::from_conf(config), requests)
}

/// Makes a table with one string partition key, `id`.
pub async fn create_table(client: &Client, name: &str) -> Result<(), Error> {
    client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(
            KeySchemaElement::builder()
                .attribute_name("id")
                .key_type(KeyType::Hash)
                .build()?,
        )
        .attribute_definitions(
            AttributeDefinition::builder()
                .attribute_name("id")
                .attribute_type(ScalarAttributeType::S)
                .build()?,
        )
        .send()
        .await?;
    Ok(())
}
