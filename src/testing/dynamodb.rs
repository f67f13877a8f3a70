//! Gives tests a DynamoDB API.

use std::error::Error as StdError;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use tokio::net::TcpListener;

use super::TestError;
use crate::dynamodb::DynamoDbStore;
use crate::protocol::causes::in_words;
use crate::protocol::record::Owner;
use crate::store::BoxError;

/// A DynamoDB API for tests of handlers that hand writes to [`Claim::write`](crate::Claim::write),
/// or read tables.
///
/// [`start`](Self::start) starts an emulator in the test's own process: nothing is installed, and
/// nothing is left. It is [dynoxide](https://crates.io/crates/dynoxide-rs), which evaluates all of
/// DynamoDB's expressions and transactions; the SDK talks to it as to DynamoDB.
/// [`at`](Self::at) talks to another one, such as AWS's DynamoDB Local.
///
/// ```
/// use aws_sdk_dynamodb::types::{AttributeValue::S, Put};
/// use lambda_idempotency::store::transaction::WriteError;
/// use lambda_idempotency::testing::TestDynamoDb;
/// use lambda_idempotency::{Error, Idempotency, Key};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dynamodb = TestDynamoDb::start().await?;
/// dynamodb.create_table("orders", &["order_id"]).await?;
/// let once = Idempotency::builder(dynamodb.store().await?).namespace("shop").build()?;
///
/// let place = |token| once.run(Key::new("place", token), None, async |claim| {
///     let order = Put::builder().table_name("orders").item("order_id", S("17".into()));
///     claim.write(order.condition_expression("attribute_not_exists(order_id)"))?;
///     Ok::<_, WriteError>(())
/// });
/// place("first").await?;
/// assert!(matches!(place("second").await, Err(Error::Refused(_))));
///
/// let orders = dynamodb.client().scan().table_name("orders").send().await?;
/// assert_eq!(orders.count(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TestDynamoDb {
    endpoint: String,
}

impl TestDynamoDb {
    /// Starts an empty emulator in this process, on a free port of the loopback interface. It ends
    /// with the runtime of the test.
    ///
    /// # Errors
    ///
    /// When no port is free, or the emulator doesn't start.
    pub async fn start() -> Result<Self, TestError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let database = dynoxide::Database::memory().map_err(failed)?;
        tokio::spawn(dynoxide::server::serve_on(listener, database));
        Ok(Self::at(format!("http://{address}")))
    }

    /// Uses the API at this address, such as `http://localhost:8000`.
    pub fn at(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
        }
    }

    /// Returns the address, for the `AWS_ENDPOINT_URL_DYNAMODB` of another process.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Makes a client of the API, to write what a test begins with and to read what it leaves.
    pub fn client(&self) -> Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            // It fails a request on a machine that is too busy to read the answer.
            .stalled_stream_protection(
                aws_sdk_dynamodb::config::StalledStreamProtectionConfig::disabled(),
            )
            .endpoint_url(&self.endpoint)
            .region(Region::from_static("eu-central-1"))
            // Any will do: the request is signed, and no emulator checks it.
            .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
            .build();
        Client::from_conf(config)
    }

    /// Makes a store on its own idempotency table.
    ///
    /// # Errors
    ///
    /// When the table can't be made.
    pub async fn store(&self) -> Result<DynamoDbStore, TestError> {
        let owner = Owner::random().map_err(failed)?;
        let table = format!("idempotency-{}", owner.as_str());
        self.create_table(&table, &["id"]).await?;
        Ok(DynamoDbStore::new(self.client(), table))
    }

    /// Makes a table with this key: the attribute of the partition key, and that of the sort key, if
    /// there is one. Both are strings. A table with another key, or with an index, is made with the
    /// [`client`](Self::client).
    ///
    /// # Errors
    ///
    /// When the table exists, or can't be made.
    pub async fn create_table(&self, name: &str, key: &[&str]) -> Result<(), TestError> {
        let mut request = self
            .client()
            .create_table()
            .table_name(name)
            .billing_mode(BillingMode::PayPerRequest);
        let mut roles = [KeyType::Hash, KeyType::Range].into_iter();
        for attribute in key {
            let element = KeySchemaElement::builder()
                .attribute_name(*attribute)
                .set_key_type(roles.next());
            let definition = AttributeDefinition::builder()
                .attribute_name(*attribute)
                .attribute_type(ScalarAttributeType::S);
            request = request
                .key_schema(element.build().map_err(failed)?)
                .attribute_definitions(definition.build().map_err(failed)?);
        }
        let reply = request.send().await;
        reply.map_err(|error| self.refused(&error)).map(|_| ())
    }

    /// Says what the API answered, or that none is there.
    fn refused<E: StdError + 'static>(&self, error: &SdkError<E, HttpResponse>) -> TestError {
        let words = in_words(error);
        failed(match error {
            SdkError::DispatchFailure(_) => format!(
                "nothing answers at {}: start DynamoDB Local there, or an emulator in the test with `TestDynamoDb::start`: {words}",
                self.endpoint
            ),
            _ => words,
        })
    }
}

fn failed(error: impl Into<BoxError>) -> TestError {
    TestError::DynamoDb(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn where_nothing_answers_the_error_says_what_to_start() {
        let free = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let nowhere = TestDynamoDb::at(format!("http://127.0.0.1:{port}"));
        let said = nowhere.store().await.unwrap_err().to_string();
        let advice = format!("nothing answers at http://127.0.0.1:{port}: start DynamoDB Local");
        assert!(said.contains(&advice), "{said}");
        assert!(said.contains("Connection refused"), "{said}");
    }

    #[tokio::test]
    async fn a_table_that_exists_is_named_as_the_reason() {
        let dynamodb = TestDynamoDb::start().await.unwrap();
        dynamodb.create_table("orders", &["id"]).await.unwrap();
        let twice = dynamodb.create_table("orders", &["id"]).await;
        let said = twice.unwrap_err().to_string();
        assert!(said.contains("Table already exists"), "{said}");
        assert!(!said.contains("nothing answers"), "{said}");
    }
}
