//! A DynamoDB API in this process, and a client that counts its requests.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, ConfigBag, Credentials, Intercept, Region, RuntimeComponents,
};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use lambda_idempotency::Idempotency;
use lambda_idempotency::store::dynamodb::DynamoDbStore;
use tokio::net::TcpListener;

const TABLE: &str = "idempotency";

pub struct Database {
    client: Client,
    requests: Requests,
}

impl Database {
    /// Starts the server on a free port, and makes the table as the README defines it.
    pub async fn start() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        tokio::spawn(dynoxide::server::serve_on(
            listener,
            dynoxide::Database::memory()?,
        ));
        let requests = Requests::default();
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .endpoint_url(endpoint)
            .region(Region::from_static("eu-central-1"))
            .credentials_provider(Credentials::new(
                "example", "example", None, None, "example",
            ))
            .interceptor(requests.clone())
            .build();
        let client = Client::from_conf(config);
        client
            .create_table()
            .table_name(TABLE)
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
        requests.take();
        Ok(Self { client, requests })
    }

    /// An engine on the table. Each namespace is a world of its own.
    pub fn engine(
        &self,
        namespace: &str,
    ) -> Result<Idempotency<DynamoDbStore>, lambda_idempotency::KeyError> {
        Idempotency::builder(DynamoDbStore::new(self.client.clone(), TABLE))
            .namespace(namespace)
            .build()
    }

    /// How many requests were sent since the last call.
    pub fn take_requests(&self) -> usize {
        self.requests.take()
    }
}

/// Counts what goes over the wire, retries of the SDK among it.
#[derive(Clone, Debug, Default)]
struct Requests(Arc<AtomicUsize>);

impl Requests {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

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
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}
