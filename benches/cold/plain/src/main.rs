//! A worker that isn't protected: one request for each message.

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use cold_shared::{client, enter, table};
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = client().await;
    let ledger = table("LEDGER_TABLE");
    let (client, ledger) = (&client, &ledger);
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        for message in event.payload.records {
            let payment = serde_json::from_str(&message.body.unwrap_or_default())?;
            enter(client, ledger, payment).await?;
        }
        Ok::<_, Error>(SqsBatchResponse::default())
    }))
    .await
}
