//! The same worker, protected by hand: the two requests that any durable claim costs, written against the SDK.
//!
//! It is what the library's cold start is compared with. It has none of the library's care: no fingerprint, no fence worth the
//! name, no takeover.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure::AllOld;
use cold_shared::{Payment, client, enter, table};
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = client().await;
    let (records, ledger) = (table("IDEMPOTENCY_TABLE"), table("LEDGER_TABLE"));
    let (client, records, ledger) = (&client, &records, &ledger);
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        for message in event.payload.records {
            let payment: Payment = serde_json::from_str(&message.body.unwrap_or_default())?;
            let id = payment.payment_id.clone();
            claim(client, records, &id, &event.context.request_id).await?;
            enter(client, ledger, payment).await?;
            complete(client, records, &id, &event.context.request_id).await?;
        }
        Ok::<_, Error>(SqsBatchResponse::default())
    }))
    .await
}

async fn claim(client: &Client, table: &str, id: &str, owner: &str) -> Result<(), Error> {
    client
        .put_item()
        .table_name(table)
        .item("id", S(id.to_owned()))
        .item("status", S("INPROGRESS".to_owned()))
        .item("owner", S(owner.to_owned()))
        .item("expiration", N((now()? + 3_600).to_string()))
        .condition_expression("attribute_not_exists(#id)")
        .expression_attribute_names("#id", "id")
        .return_values_on_condition_check_failure(AllOld)
        .send()
        .await?;
    Ok(())
}

async fn complete(client: &Client, table: &str, id: &str, owner: &str) -> Result<(), Error> {
    client
        .update_item()
        .table_name(table)
        .key("id", S(id.to_owned()))
        .update_expression("SET #status = :completed, #data = :data")
        .condition_expression("#owner = :owner AND #status = :running")
        .expression_attribute_names("#status", "status")
        .expression_attribute_names("#data", "data")
        .expression_attribute_names("#owner", "owner")
        .expression_attribute_values(":completed", S("COMPLETED".to_owned()))
        .expression_attribute_values(":running", S("INPROGRESS".to_owned()))
        .expression_attribute_values(":data", S("null".to_owned()))
        .expression_attribute_values(":owner", S(owner.to_owned()))
        .return_values_on_condition_check_failure(AllOld)
        .send()
        .await?;
    Ok(())
}

fn now() -> Result<u64, Error> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}
