//! The condition of an entry, on an emulator. `scripts/templates` adds this to the
//! function's tests, which a user compiles without an emulator.

use aws_sdk_dynamodb::types::AttributeValue::N;
use lambda_idempotency::testing::TestDynamoDb;
use lambda_runtime::Error;

use crate::journal::Table;
use crate::movements::{Journal, Movement};

#[tokio::test]
async fn an_entry_stays_when_another_has_its_id() -> Result<(), Error> {
    let dynamodb = TestDynamoDb::start().await?;
    dynamodb.create_table("journal", &["entry_id"]).await?;
    let table = Table {
        client: dynamodb.client(),
        name: "journal".to_owned(),
    };
    let enter = |sku: &str, delta| {
        let (movement_id, sku) = ("m-1".to_owned(), sku.to_owned());
        let movement = Movement {
            movement_id,
            sku,
            delta,
        };
        table.enter("e-1".to_owned(), movement)
    };

    enter("tea", -2).await?;
    // Another attempt of the same record.
    enter("tea", -2).await?;
    let refused = enter("tea", 2).await.unwrap_err().to_string();
    assert!(refused.contains("ConditionalCheckFailed"), "{refused}");
    assert!(enter("milk", -2).await.is_err());

    let items = dynamodb
        .client()
        .scan()
        .table_name("journal")
        .send()
        .await?;
    assert_eq!(items.items().len(), 1);
    assert_eq!(items.items()[0]["delta"], N("-2".to_owned()));
    Ok(())
}
