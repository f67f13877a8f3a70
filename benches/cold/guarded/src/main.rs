//! The same worker, protected by the library.

use cold_shared::{Payment, enter, table};
use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::sqs::{BatchLayer, Message};
use lambda_runtime::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = DynamoDbStore::from_env().await?;
    let client = store.client().clone();
    let ledger = table("LEDGER_TABLE");
    let once = Idempotency::builder(store).namespace("cold").build()?;
    let worker = BatchLayer::new(once)
        .operation("charge")
        .key(|payment: &Payment| payment.payment_id.clone())
        .handler(move |message: Message<Payment>| {
            let (client, ledger) = (client.clone(), ledger.clone());
            async move { enter(&client, &ledger, message.body).await }
        });
    lambda_runtime::run(worker).await
}
