use std::io;
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::testing::TestDynamoDb;
use lambda_idempotency::{Error, Idempotency, Key, Outcome, powertools};

// The function, in your `src/`.

fn id(order_id: &str) -> Option<String> {
    powertools::id("payments-prod.app.charge", order_id)
}

async fn charge(once: &Idempotency, order_id: &str) -> Result<Outcome<String>, Error<io::Error>> {
    let key = id(order_id).map(|id| Key::raw("charge", id));
    once.run(key, None, |_| async { Ok("receipt of Rust".into()) })
        .await
}

// The tests.

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// An empty table, in this process.
async fn table() -> Result<TestDynamoDb, Box<dyn std::error::Error>> {
    let dynamodb = TestDynamoDb::start().await?;
    dynamodb.create_table("shared", &["id"]).await?;
    Ok(dynamodb)
}

/// Its own engine on the table, as another process has it.
fn engine(dynamodb: &TestDynamoDb) -> Result<Idempotency, Box<dyn std::error::Error>> {
    let store = DynamoDbStore::new(dynamodb.client(), "shared");
    Ok(Idempotency::builder(store).namespace("payments").build()?)
}

fn in_an_hour() -> Result<Duration, Box<dyn std::error::Error>> {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(since_epoch + Duration::from_hours(1))
}

#[tokio::test]
async fn a_second_process_on_the_table_gets_the_outcome_of_the_first() -> TestResult {
    let dynamodb = table().await?;
    let (first, second) = (engine(&dynamodb)?, engine(&dynamodb)?);

    assert!(!charge(&first, "A-17").await?.is_replayed());
    assert!(charge(&second, "A-17").await?.is_replayed());
    Ok(())
}

#[tokio::test]
async fn what_the_function_in_python_has_charged_is_replayed() -> TestResult {
    let dynamodb = table().await?;
    let record = dynamodb.client().put_item().table_name("shared");
    let record = record
        .item("id", S(id("A-17").ok_or("no id")?))
        .item("status", S("COMPLETED".into()))
        .item("data", S(r#""receipt of Python""#.into()))
        .item("expiration", N(in_an_hour()?.as_secs().to_string()));
    record.send().await?;

    let outcome = charge(&engine(&dynamodb)?, "A-17").await?;

    assert!(outcome.is_replayed());
    assert_eq!(outcome.into_inner(), "receipt of Python");
    Ok(())
}

#[tokio::test]
async fn what_the_function_in_python_charges_now_is_in_flight() -> TestResult {
    let dynamodb = table().await?;
    let until = in_an_hour()?;
    let record = dynamodb.client().put_item().table_name("shared");
    let record = record
        .item("id", S(id("A-17").ok_or("no id")?))
        .item("status", S("INPROGRESS".into()))
        .item("in_progress_expiration", N(until.as_millis().to_string()))
        .item("expiration", N(until.as_secs().to_string()));
    record.send().await?;

    let refused = charge(&engine(&dynamodb)?, "A-17").await;

    assert!(matches!(refused, Err(Error::InFlight { .. })));
    Ok(())
}
