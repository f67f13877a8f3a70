//! The condition of a payout, on an emulator. `scripts/templates` adds this to the
//! function's tests, which a user compiles without an emulator.

use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue::N;
use lambda_idempotency::testing::TestDynamoDb;
use lambda_runtime::Error;

use crate::payouts::Table;
use crate::settlements::{Payouts, Settlement};

#[tokio::test]
async fn a_payout_stays_when_another_has_its_id() -> Result<(), Error> {
    let dynamodb = TestDynamoDb::start().await?;
    dynamodb.create_table("payouts", &["payout_id"]).await?;
    let table = Table {
        client: dynamodb.client(),
        name: "payouts".to_owned(),
    };
    let pay = |amount| {
        let settlement_id = "s-1".to_owned();
        let settlement = Settlement {
            settlement_id,
            amount,
        };
        table.pay("p-1".to_owned(), settlement)
    };

    pay(1250).await?;
    // Another attempt of the same event.
    pay(1250).await?;
    let refused = pay(99).await.unwrap_err();
    let refused = DisplayErrorContext(&*refused).to_string();
    assert!(refused.contains("ConditionalCheckFailed"), "{refused}");

    let items = dynamodb
        .client()
        .scan()
        .table_name("payouts")
        .send()
        .await?;
    assert_eq!(items.items().len(), 1);
    assert_eq!(items.items()[0]["amount"], N("1250".to_owned()));
    Ok(())
}
