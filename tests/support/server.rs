//! A DynamoDB API to talk to, through the real SDK.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::create_table::{CreateTableError, CreateTableOutput};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType,
    TimeToLiveSpecification,
};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::dynamodb::outbox::PENDING_INDEX;

use super::{loopback, virtual_time};

/// A DynamoDB API on the loopback interface.
#[derive(Clone, Debug)]
pub struct Server {
    endpoint: String,
    /// Makes the tables.
    own: Arc<OnceLock<Client>>,
}

impl Server {
    /// An emulator in this process, empty, gone with the test.
    pub async fn dynoxide() -> Self {
        let (listener, endpoint) = loopback::bind().await;
        let database = dynoxide::Database::memory().expect("an empty database");
        tokio::spawn(dynoxide::server::serve_on(listener, database));
        Self::behind(endpoint)
    }

    /// AWS's own DynamoDB Local, shared by all tests: tables have their own names.
    #[expect(clippy::unused_async, reason = "it is called as the other one is")]
    pub async fn dynamodb_local() -> Self {
        let endpoint = std::env::var("DYNAMODB_LOCAL_ENDPOINT").expect(
            "DYNAMODB_LOCAL_ENDPOINT is not set: run it by `scripts/with dynamodb-local -- …`, or `--skip dynamodb_local`",
        );
        Self::behind(endpoint)
    }

    /// The same server, reached through something in between.
    pub fn behind(endpoint: String) -> Self {
        Self {
            endpoint,
            own: Arc::default(),
        }
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A client with the SDK's own retries.
    pub fn client(&self) -> Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            // It fails a request on a machine that is too busy to read the answer.
            .stalled_stream_protection(
                aws_sdk_dynamodb::config::StalledStreamProtectionConfig::disabled(),
            )
            .endpoint_url(&self.endpoint)
            .region(Region::from_static("eu-central-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
            .http_client(virtual_time::http_client())
            // The SDK's budget for retries belongs to a partition, by default one for all clients of a process: tests that lose
            // many replies would use up that of others.
            .retry_partition(RetryPartition::new(unique("client")))
            .retry_config(
                RetryConfig::standard()
                    .with_max_attempts(3)
                    .with_initial_backoff(Duration::from_millis(10)),
            )
            .timeout_config(
                TimeoutConfig::builder()
                    .connect_timeout(Duration::from_mins(1))
                    .operation_attempt_timeout(Duration::from_mins(5))
                    .build(),
            )
            .build();
        Client::from_conf(config)
    }

    fn own(&self) -> &Client {
        self.own.get_or_init(|| self.client())
    }

    /// A fresh idempotency table, as the README defines it; its name.
    pub async fn idempotency_table(&self) -> String {
        let table = self.table_with_key("idempotency", "id").await;
        let ttl = TimeToLiveSpecification::builder()
            .attribute_name("expiration")
            .enabled(true)
            .build()
            .expect("complete");
        self.own()
            .update_time_to_live()
            .table_name(&table)
            .time_to_live_specification(ttl)
            .send()
            .await
            .expect("TTL switched on");
        table
    }

    /// A fresh table with one string partition key; its name.
    pub async fn table_with_key(&self, prefix: &str, key: &str) -> String {
        let table = unique(prefix);
        self.create_table(&table, &[(key, KeyType::Hash)]).await;
        table
    }

    pub async fn create_table(&self, table: &str, keys: &[(&str, KeyType)]) {
        let mut request = self
            .own()
            .create_table()
            .table_name(table)
            .billing_mode(BillingMode::PayPerRequest);
        for (name, kind) in keys {
            request = request
                .key_schema(key(name, kind.clone()))
                .attribute_definitions(attribute(name, ScalarAttributeType::S));
        }
        assert_created(request.send().await);
    }

    /// A fresh outbox, as the library describes it; its name.
    pub async fn outbox_table(&self) -> String {
        let table = unique("outbox");
        let projection = Projection::builder()
            .projection_type(ProjectionType::KeysOnly)
            .build();
        let pending = GlobalSecondaryIndex::builder()
            .index_name(PENDING_INDEX)
            .key_schema(key("pending", KeyType::Hash))
            .key_schema(key("recorded_at", KeyType::Range))
            .projection(projection)
            .build()
            .expect("complete");
        let stream = StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::KeysOnly)
            .build()
            .expect("complete");
        let request = self
            .own()
            .create_table()
            .table_name(&table)
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(key("aggregate", KeyType::Hash))
            .key_schema(key("id", KeyType::Range))
            .attribute_definitions(attribute("aggregate", ScalarAttributeType::S))
            .attribute_definitions(attribute("id", ScalarAttributeType::S))
            .attribute_definitions(attribute("pending", ScalarAttributeType::S))
            .attribute_definitions(attribute("recorded_at", ScalarAttributeType::N))
            .global_secondary_indexes(pending)
            .stream_specification(stream);
        assert_created(request.send().await);
        table
    }

    /// From now on the table has a stream that tells each change, with what was there before and after.
    pub async fn follow(&self, table: &str) {
        let stream = StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::NewAndOldImages)
            .build()
            .expect("complete");
        let request = self.own().update_table().table_name(table);
        let followed = request.stream_specification(stream).send().await;
        followed.expect("a stream");
    }

    /// A store on a fresh table.
    pub async fn store(&self) -> DynamoDbStore {
        DynamoDbStore::new(self.client(), self.idempotency_table().await)
    }
}

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    let key = KeySchemaElement::builder()
        .attribute_name(name)
        .key_type(kind);
    key.build().expect("complete")
}

fn attribute(name: &str, kind: ScalarAttributeType) -> AttributeDefinition {
    let attribute = AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(kind);
    attribute.build().expect("complete")
}

/// A name that no other test, and no earlier run against the same server, has used.
pub fn unique(prefix: &str) -> String {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).expect("entropy");
    format!("{prefix}-{:016x}", u64::from_ne_bytes(bytes))
}

/// Names are unique: a table that is there already was made by an earlier send of the same request, whose reply was lost.
fn assert_created(result: Result<CreateTableOutput, SdkError<CreateTableError>>) {
    if let Err(error) = result {
        let is_there = error
            .as_service_error()
            .is_some_and(CreateTableError::is_resource_in_use_exception);
        assert!(is_there, "a new table: {error:?}");
    }
}
