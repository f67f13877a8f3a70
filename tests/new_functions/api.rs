//! The condition of an order, on an emulator. `scripts/templates` adds this to the
//! function's tests, which a user compiles without an emulator.

use aws_sdk_dynamodb::types::AttributeValue::N;
use lambda_http::Error;
use lambda_idempotency::testing::TestDynamoDb;

use crate::orders::{Order, Orders};
use crate::table::Table;

#[tokio::test]
async fn an_order_stays_when_another_has_its_id() -> Result<(), Error> {
    let dynamodb = TestDynamoDb::start().await?;
    dynamodb.create_table("orders", &["order_id"]).await?;
    let table = Table {
        client: dynamodb.client(),
        name: "orders".to_owned(),
    };
    let place = |sku: &str, quantity| {
        let sku = sku.to_owned();
        table.place("o-1".to_owned(), Order { sku, quantity })
    };

    place("tea", 2).await?;
    // Another attempt of the same request.
    place("tea", 2).await?;
    let refused = place("tea", 3).await.unwrap_err().to_string();
    assert!(refused.contains("ConditionalCheckFailed"), "{refused}");
    assert!(place("milk", 2).await.is_err());

    let items = dynamodb.client().scan().table_name("orders").send().await?;
    assert_eq!(items.items().len(), 1);
    assert_eq!(items.items()[0]["quantity"], N("2".to_owned()));
    Ok(())
}
