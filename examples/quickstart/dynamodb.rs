//! A DynamoDB API in this process, in memory, with the table that the README defines.

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use lambda_idempotency::dynamodb::DynamoDbStore;
use tokio::net::TcpListener;

use crate::Failure;

const TABLE: &str = "idempotency";

/// Starts it on a free port. A function calls `DynamoDbStore::from_env()` instead.
pub(crate) async fn in_process() -> Result<DynamoDbStore, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .endpoint_url(format!("http://{}", listener.local_addr()?))
        .region(Region::from_static("eu-central-1"))
        .credentials_provider(Credentials::new("any", "any", None, None, "example"))
        .build();
    let database = dynoxide::Database::memory()?;
    tokio::spawn(dynoxide::server::serve_on(listener, database));

    let client = aws_sdk_dynamodb::Client::from_conf(config);
    let key = KeySchemaElement::builder()
        .attribute_name("id")
        .key_type(KeyType::Hash)
        .build()?;
    let id = AttributeDefinition::builder()
        .attribute_name("id")
        .attribute_type(ScalarAttributeType::S)
        .build()?;
    client
        .create_table()
        .table_name(TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key)
        .attribute_definitions(id)
        .send()
        .await?;
    Ok(DynamoDbStore::new(client, TABLE))
}
