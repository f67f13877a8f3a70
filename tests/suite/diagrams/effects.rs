//! Several effects: in one transaction, in steps, and as an event that leaves with them.

use aws_sdk_dynamodb::types::{AttributeValue, Put, Update};
use lambda_idempotency::dynamodb::outbox::{Event as OutboxEvent, Outbox};
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::{Key, StepError};
use serde_json::json;

use super::stage::{Diagram, Stage, TABLE, Table, payload};
use crate::support::lambda::Function;
use crate::support::{Begun, QueueApi};

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: i32) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(super) async fn transaction() -> Diagram {
    let shown = &["status", "owner", "data", "order_id", "pieces"];
    let table = Table::on(&["Client", "Lambda", TABLE], shown).await;
    let orders = table.server.table_with_key("orders", "order_id").await;
    let stock = table.server.table_with_key("stock", "sku").await;
    let put = table.server.client().put_item().table_name(&stock);
    let put = put.item("sku", text("tea")).item("pieces", number(5));
    put.send().await.unwrap();
    let environment = table.environment("Lambda").await;
    environment.delivered("POST /orders: tea");
    let run = environment.once.run(
        Key::new("order", "cart-1"),
        payload("tea"),
        async move |claim| {
            let order = Put::builder()
                .table_name(&orders)
                .item("order_id", text("A-17"));
            claim.write(order.condition_expression("attribute_not_exists(order_id)"))?;
            let take = Update::builder()
                .table_name(&stock)
                .key("sku", text("tea"))
                .update_expression("ADD pieces :minus_one")
                .condition_expression("pieces >= :one")
                .expression_attribute_values(":one", number(1))
                .expression_attribute_values(":minus_one", number(-1));
            claim.write(take)?;
            Ok::<_, WriteError>("order A-17".to_owned())
        },
    );
    let answer = run.await.unwrap();
    assert!(!answer.is_replayed());
    environment.replies(&format!("201, {}", answer.get()));
    table.stage.diagram(
        "transaction",
        "Business writes and outcome are one transaction",
        "The handler hands its writes to the claim. One transaction, whose first condition is the fence, has them and the outcome: all of \
         it is there, or nothing.",
    )
}

pub(super) async fn steps() -> Diagram {
    let lanes = &["SQS", "Lambda 1", "Lambda 2", TABLE, "Provider"];
    let shown = &[
        "status",
        "owner",
        "attempt",
        "step:charge",
        "step:ship",
        "data",
    ];
    let table = Table::on(lanes, shown).await;
    let [first, second] = table.two_environments().await;
    let key = || Key::new("fulfil", "A-17");
    let begun = Begun::default();
    first.delivered("fulfil A-17");
    let own = first.clone();
    let attempt = first.once.run(key(), payload("A-17"), async |claim| {
        own.begins();
        let charge = async |key: String| Ok::<_, std::io::Error>(own.charges(&key));
        claim.step("charge", charge).await?;
        begun
            .then_never::<Result<String, StepError<std::io::Error>>>()
            .await
    });
    begun.cut_off(attempt).await;
    first.dies("before it ships");
    table.stage.lease_ends();
    second.delivered("fulfil A-17");
    let own = second.clone();
    let run = second.once.run(key(), payload("A-17"), async move |claim| {
        own.begins();
        let charge = async |key: String| Ok::<_, std::io::Error>(own.charges(&key));
        let receipt = claim.step("charge", charge).await?;
        let ship = async |key: String| {
            own.calls(&format!("ship, {}", Stage::short(&key)), "shipped");
            Ok::<_, std::io::Error>(())
        };
        claim.step("ship", ship).await?;
        own.ends();
        Ok::<_, StepError<std::io::Error>>(receipt)
    });
    second.replies(run.await.unwrap().get());
    // Short enough for a phone. Other diagrams show the conditions and the plain answers.
    let mut happened = table.stage.take();
    happened.retain(|line| !line.ends_with(": OK"));
    for line in happened {
        table.stage.line(line.split("<br/>if ").next().unwrap());
    }
    table.stage.diagram(
        "steps",
        "Steps: a retry goes on where the last attempt ended",
        "Each step is noted on the record before and after its effect. The attempt dies between two steps; the next one is given the \
         result of the first step, and only ships. The conditions of the writes are left out.",
    )
}

/// With the real relay as a process.
pub(super) async fn outbox() -> Diagram {
    let shown = &["status", "owner", "event_type", "aggregate", "pending"];
    let table = Table::on(&["Lambda", TABLE, "Relay", "Queue"], shown).await;
    let events = table.server.outbox_table().await;
    let environment = table.environment("Lambda").await;
    let outbox = Outbox::new(&events);
    let run = environment.once.run(
        Key::new("order", "cart-1"),
        payload("tea"),
        async move |claim| {
            let event = OutboxEvent::new("order.created", "A-17");
            outbox.emit(&claim, event, &json!({ "order_id": "A-17" }))
        },
    );
    let id = run.await.unwrap().into_inner();
    let queue = QueueApi::answering(None).await;
    let wire = table.wire("Relay").await;
    let relay = Function::relay_of(&table.server, &events, queue.endpoint()).behind(&wire);
    let mut relay = relay.start().await;
    let stream = json!({ "Records": [{ "eventName": "INSERT", "dynamodb": {
        "Keys": { "aggregate": { "S": "A-17" }, "id": { "S": id } }, "SequenceNumber": "1" } }] });
    table
        .stage
        .arrow(TABLE, "->>", "Relay", "stream: a new event");
    let answer = relay.invoke(stream).await.answer();
    let sent = queue.take();
    assert_eq!(
        (answer["batchItemFailures"].clone(), sent.len()),
        (json!([]), 1)
    );
    // The relay sends to the queue between its read and its mark.
    let mut lines = table.stage.take();
    let (operation, message) = &sent[0];
    assert_eq!(message["MessageBody"], r#"{"order_id":"A-17"}"#);
    let text = format!("{operation} of order A-17");
    table.stage.arrow("Relay", "->>", "Queue", &text);
    table.stage.arrow("Queue", "-->>", "Relay", "OK");
    let mark = lines.len() - 2;
    lines.splice(mark..mark, table.stage.take());
    for line in lines {
        table.stage.line(line);
    }
    table.stage.diagram(
        "outbox",
        "An event leaves with the transaction",
        "The event is an item of the transaction. The outbox table's stream wakes the relay, which reads the event, sends it, and marks it \
         as published.",
    )
}
