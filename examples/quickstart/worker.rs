//! An SQS worker, and a queue that delivers too often.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lambda_idempotency::sqs::{BatchLayer, Message, SqsBatchResponse, SqsEvent};
use lambda_runtime::{Context, LambdaEvent};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::{Service, ServiceBuilder};

use crate::database::Database;
use crate::table::{Figures, Table};

#[derive(Deserialize)]
struct Payment {
    payment_id: String,
}

pub async fn scenes(
    database: &Database,
    table: &mut Table,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut worker = ServiceBuilder::new()
        .layer(
            BatchLayer::new(database.engine("payments-worker")?)
                .operation("charge")
                .key(|payment: &Payment| payment.payment_id.clone()),
        )
        .service_fn(move |_: Message<Payment>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>("charged".to_owned()) }
        });

    // Ten messages, of which three repeat a payment of the same batch: a producer that sent twice.
    let batch = event((0..10).map(|n| payment(n % 7, 100)))?;
    let mut deliver =
        async |event: SqsEvent| -> Result<(Figures, usize), Box<dyn Error + Send + Sync>> {
            let deliveries = event.records.len();
            let reply: SqsBatchResponse = worker
                .call(LambdaEvent::new(event, Context::default()))
                .await?;
            let (runs, failed) = (
                runs.swap(0, Ordering::SeqCst),
                reply.batch_item_failures.len(),
            );
            let figures = Figures {
                deliveries,
                runs,
                replays: deliveries - runs - failed,
                refusals: failed,
                requests: database.take_requests(),
            };
            Ok((figures, failed))
        };

    let (figures, _) = deliver(batch.clone()).await?;
    let expected = Figures {
        deliveries: 10,
        runs: 7,
        replays: 3,
        refusals: 0,
        requests: 2,
    };
    table.add("SQS: a batch of 10 with 3 duplicates", figures, expected);

    let (figures, _) = deliver(batch).await?;
    let expected = Figures {
        runs: 0,
        replays: 10,
        requests: 2,
        ..expected
    };
    table.add("SQS: the same batch, delivered again", figures, expected);

    let (figures, _) = deliver(event([payment(1, 999)])?).await?;
    let expected = Figures {
        deliveries: 1,
        runs: 0,
        replays: 0,
        refusals: 1,
        requests: 1,
    };
    table.add(
        "SQS: a payment id reused with another amount",
        figures,
        expected,
    );
    Ok(())
}

fn payment(number: usize, amount: u64) -> Value {
    json!({ "payment_id": format!("payment-{number}"), "amount": amount })
}

/// An event as SQS makes it: every delivery under a message id of its own.
fn event(bodies: impl IntoIterator<Item = Value>) -> serde_json::Result<SqsEvent> {
    let records: Vec<_> = bodies
        .into_iter()
        .enumerate()
        .map(|(position, body)| json!({ "messageId": format!("message-{position}"), "body": body.to_string() }))
        .collect();
    serde_json::from_value(json!({ "Records": records }))
}
