//! Runs a command beside a DynamoDB API with the tables of the sample functions and of the templates. The command's environment leads
//! the AWS SDK to this API and names the tables.
//!
//! The API is in this process, in memory, on a free port, and ends with the command. If `DYNAMODB_LOCAL_ENDPOINT` is set, the tables
//! are made there instead, and stay.
//!
//! ```sh
//! cargo run --example local_dynamodb -- cargo lambda watch
//! ```
//!
//! Without a command it prints that environment and ends. `docs/local.md` leads through it.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType,
};
use lambda_idempotency::testing::TestDynamoDb;
use tokio::process::Command;

type Failure = Box<dyn Error + Send + Sync>;

const REGION: &str = "eu-central-1";
/// Any will do: the server asks for a signature and doesn't check it. DynamoDB Local has a set of tables for each key, if it isn't shared.
const ACCESS_KEY: &str = "test";

/// Each table: the variable that a function reads its name from, its name, its key.
const TABLES: [(&str, &str, &[Attribute]); 8] = [
    ("IDEMPOTENCY_TABLE", "idempotency", &[text("id")]),
    ("ORDERS_TABLE", "orders", &[text("order_id")]),
    ("OUTBOX_TABLE", "outbox", &[text("aggregate"), text("id")]),
    ("LEDGER_TABLE", "ledger", &[text("entry_id")]),
    ("MOVEMENTS_TABLE", "movements", &[text("entry_id")]),
    ("JOURNAL_TABLE", "journal", &[text("entry_id")]),
    ("PAYOUTS_TABLE", "payouts", &[text("payout_id")]),
    ("SHOP_TABLE", "shop", &[text("effect_id")]),
];

/// The key of the outbox's index.
const PENDING: [Attribute; 2] = [text("pending"), number("recorded_at")];

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let dynamodb = match env::var("DYNAMODB_LOCAL_ENDPOINT") {
        Ok(endpoint) => TestDynamoDb::at(endpoint),
        Err(_) => TestDynamoDb::start().await?,
    };
    let client = dynamodb.client();
    for (_, table, key) in TABLES {
        create(&client, table, key).await?;
    }

    let mut environment = vec![
        ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.endpoint()),
        ("AWS_REGION", REGION),
        // Some versions of the AWS CLI read this one instead.
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", ACCESS_KEY),
    ];
    environment.extend(TABLES.map(|(variable, table, _)| (variable, table)));
    for (name, value) in &environment {
        println!("export {name}={value}");
    }

    let mut arguments = env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        let tables = client.list_tables().send().await?;
        println!("# {} tables at this endpoint.", tables.table_names().len());
        println!("# Name a command that is to run beside them:");
        println!("# cargo run --example local_dynamodb -- cargo lambda watch");
        return Ok(ExitCode::SUCCESS);
    };
    let status = Command::new(&program)
        .args(arguments)
        // A profile or a session of a real account has no business here.
        .env_remove("AWS_PROFILE")
        .env_remove("AWS_SESSION_TOKEN")
        .envs(environment)
        .status()
        .await
        .map_err(|error| format!("{} could not be started: {error}", program.display()))?;
    Ok(status.code().map_or(ExitCode::FAILURE, exit_code))
}

fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Makes a table, with the index of its pending events if it is the outbox. One that exists stays as it is.
async fn create(client: &Client, table: &str, key: &[Attribute]) -> Result<(), Failure> {
    let mut request = client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .set_key_schema(Some(schema(key)?));
    let mut attributes = key.to_vec();
    if table == "outbox" {
        attributes.extend(PENDING);
        let projection = Projection::builder().projection_type(ProjectionType::KeysOnly);
        let index = GlobalSecondaryIndex::builder()
            .index_name("pending")
            .set_key_schema(Some(schema(&PENDING)?))
            .projection(projection.build());
        request = request.global_secondary_indexes(index.build()?);
    }
    for attribute in attributes {
        let definition = AttributeDefinition::builder()
            .attribute_name(attribute.name)
            .attribute_type(attribute.kind);
        request = request.attribute_definitions(definition.build()?);
    }
    match request.send().await.map_err(SdkError::into_service_error) {
        // Made by an earlier run, on a server that keeps its tables.
        Err(CreateTableError::ResourceInUseException(_)) => Ok(()),
        made => Ok(made.map(drop)?),
    }
}

/// The partition key, and the sort key if there is one.
fn schema(key: &[Attribute]) -> Result<Vec<KeySchemaElement>, Failure> {
    let mut schema = Vec::new();
    for (attribute, role) in key.iter().zip([KeyType::Hash, KeyType::Range]) {
        let element = KeySchemaElement::builder()
            .attribute_name(attribute.name)
            .key_type(role);
        schema.push(element.build()?);
    }
    Ok(schema)
}

#[derive(Clone)]
struct Attribute {
    name: &'static str,
    kind: ScalarAttributeType,
}

const fn text(name: &'static str) -> Attribute {
    Attribute {
        name,
        kind: ScalarAttributeType::S,
    }
}

const fn number(name: &'static str) -> Attribute {
    Attribute {
        name,
        kind: ScalarAttributeType::N,
    }
}
