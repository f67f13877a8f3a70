//! The condition of an entry, on an emulator. `scripts/templates` adds this to the
//! function's tests, which a user compiles without an emulator.

use aws_sdk_dynamodb::types::AttributeValue::N;
use lambda_idempotency::testing::TestDynamoDb;
use lambda_runtime::Error;

use crate::ledger::Table;
use crate::payments::{Ledger, Payment};

#[tokio::test]
async fn an_entry_stays_when_another_has_its_id() -> Result<(), Error> {
    let dynamodb = TestDynamoDb::start().await?;
    dynamodb.create_table("ledger", &["entry_id"]).await?;
    let table = Table {
        client: dynamodb.client(),
        name: "ledger".to_owned(),
    };
    let enter = |amount| {
        let payment_id = "p-1".to_owned();
        table.enter("e-1".to_owned(), Payment { payment_id, amount })
    };

    enter(1250).await?;
    // Another attempt of the same message.
    enter(1250).await?;
    let refused = enter(99).await.unwrap_err().to_string();
    assert!(refused.contains("ConditionalCheckFailed"), "{refused}");

    let items = dynamodb.client().scan().table_name("ledger").send().await?;
    assert_eq!(items.items().len(), 1);
    assert_eq!(items.items()[0]["amount"], N("1250".to_owned()));
    Ok(())
}
