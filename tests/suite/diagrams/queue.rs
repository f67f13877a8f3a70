//! A batch of messages, whose claims and outcomes leave in groups.

use lambda_idempotency::sqs::{BatchLayer, Message};
use tower::Service;

use super::engine::Table;
use super::trace::{Diagram, Style};
use crate::support::events;

pub(super) async fn batch() -> Diagram {
    let table = Table::on(2, &["status", "owner"]).await;
    let environment = table.environment(1).await;
    let own = environment.clone();
    let mut worker = BatchLayer::new(environment.once.clone())
        .operation("charge")
        .key(|order: &String| order.clone())
        .concurrency(1)
        .handler(move |message: Message<String>| {
            let own = own.clone();
            async move {
                own.begins();
                own.charges(3, &message.claim.derive_key("gateway"));
                own.ends();
                Ok::<_, std::io::Error>(())
            }
        });
    let orders = ["A-17", "A-18", "A-19"];
    let messages = orders.map(|order| events::message(order, format!("\"{order}\"")));
    environment.delivered(&format!("a batch: {}", orders.join(", ")));
    let reply = worker.call(events::batch(messages)).await.unwrap();
    let failed = reply.batch_item_failures.len();
    let trace = &table.stage.trace;
    trace.arrow(1, 0, Style::Reply, format!("batchItemFailures: {failed}"));
    Diagram {
        name: "batch",
        title: "A batch of messages: group commit",
        description: "The claims of all messages leave in one request, each statement with its own condition. Each handler runs with its own \
                      derived key. The outcomes leave together, too.",
        lanes: vec!["SQS", "Lambda", "DynamoDB", "Provider"],
        events: trace.take(),
    }
}
