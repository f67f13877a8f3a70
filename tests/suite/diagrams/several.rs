//! Several effects: in one transaction, in steps, and as an event that leaves with them.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Put, Update};
use lambda_idempotency::dynamodb::outbox::{Event as OutboxEvent, Outbox};
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::{BoxError, Key, Outcome, StepError};
use serde_json::json;

use super::engine::{LEASE, Table, payload};
use super::trace::{Diagram, Style};
use super::wire::Stage;
use crate::support::lambda::Function;
use crate::support::{Begun, QueueApi};

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: i32) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(super) async fn transaction() -> Diagram {
    let table = Table::on(2, &["status", "owner", "data", "order_id"]).await;
    let orders = table.server.table_with_key("orders", "order_id").await;
    let stock = table.server.table_with_key("stock", "sku").await;
    let put = table.server.client().put_item().table_name(&stock);
    put.item("sku", text("tea"))
        .item("pieces", number(5))
        .send()
        .await
        .unwrap();
    let environment = table.environment(1).await;
    environment.delivered("POST /orders: tea");
    let own = environment.clone();
    let answer = environment.once.run(
        Key::new("order", "cart-1"),
        payload("tea"),
        async move |claim| {
            own.begins();
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
            own.ends();
            Ok::<_, WriteError>("A-17".to_owned())
        },
    );
    let answer = answer.await.unwrap();
    assert!(matches!(answer, Outcome::Executed(_)));
    let trace = &table.stage.trace;
    trace.arrow(1, 0, Style::Reply, format!("201, order {}", answer.get()));
    Diagram {
        name: "transaction",
        title: "Business writes and outcome are one transaction",
        description: "The handler hands its writes to the claim. One transaction, whose first condition is the fence, has them and the outcome: \
                      all of it is there, or nothing.",
        lanes: vec!["Client", "Lambda", "DynamoDB"],
        events: trace.take(),
    }
}

pub(super) async fn steps() -> Diagram {
    let table = Table::on(
        3,
        &[
            "status",
            "owner",
            "attempt",
            "step:charge",
            "step:ship",
            "data",
        ],
    )
    .await;
    let (first, second) = (table.environment(1).await, table.environment(2).await);
    let key = || Key::new("fulfil", "A-17");
    let begun = Begun::default();
    first.delivered("fulfil order A-17");
    let own = first.clone();
    let attempt = first.once.run(key(), payload("A-17"), async |claim| {
        own.begins();
        let charge = async |key: String| Ok::<_, std::io::Error>(own.charges(4, &key));
        claim.step("charge", charge).await?;
        begun
            .then_never::<Result<String, StepError<std::io::Error>>>()
            .await
    });
    begun.cut_off(attempt).await;
    first.dies("dies before it ships");
    table.stage.passes(LEASE + Duration::from_secs(2));
    second.delivered("fulfil order A-17");
    let own = second.clone();
    let answer = second.once.run(key(), payload("A-17"), async move |claim| {
        own.begins();
        let charge = async |key: String| Ok::<_, std::io::Error>(own.charges(4, &key));
        let receipt = claim.step("charge", charge).await?;
        let trace = own.stage.trace.clone();
        let ship = async |key: String| {
            let text = format!("ship, key {}", Stage::short(&key));
            trace.arrow(2, 4, Style::Call, text);
            trace.arrow(4, 2, Style::Reply, "shipped");
            Ok::<_, std::io::Error>(())
        };
        claim.step("ship", ship).await?;
        own.ends();
        Ok::<_, StepError<std::io::Error>>(receipt)
    });
    let answer = answer.await.unwrap();
    let trace = &table.stage.trace;
    trace.arrow(2, 0, Style::Reply, answer.get().clone());
    Diagram {
        name: "steps",
        title: "Steps: a retry goes on where the last attempt ended",
        description: "Each step is noted on the record before and after its effect. The attempt dies between two steps; the next one is given \
                      the result of the first step, and only ships.",
        lanes: vec!["SQS", "Lambda 1", "Lambda 2", "DynamoDB", "Providers"],
        events: trace.take(),
    }
}

/// With the real relay as a process.
pub(super) async fn outbox() -> Diagram {
    let table = Table::on(
        2,
        &["status", "owner", "event_type", "aggregate", "pending"],
    )
    .await;
    let events = table.server.outbox_table().await;
    let environment = table.environment(1).await;
    environment.delivered("POST /orders: tea");
    let own = environment.clone();
    let outbox = Outbox::new(&events);
    let answer = environment.once.run(
        Key::new("order", "cart-1"),
        payload("tea"),
        async move |claim| {
            own.begins();
            let event = OutboxEvent::new("order.created", "A-17");
            let id = outbox.emit(&claim, event, &json!({ "order_id": "A-17" }))?;
            own.ends();
            Ok::<_, BoxError>(id)
        },
    );
    let id = answer.await.unwrap().into_inner();
    let trace = table.stage.trace.clone();
    trace.arrow(1, 0, Style::Reply, "201, order A-17");

    let queue = QueueApi::answering(None).await;
    let wire = table.wire(3, []).await;
    let relay = Function::relay_of(&table.server, &events, queue.endpoint()).behind(&wire);
    let mut relay = relay.start().await;
    let stream = json!({ "Records": [{ "eventName": "INSERT", "dynamodb": {
        "Keys": { "aggregate": { "S": "A-17" }, "id": { "S": id } }, "SequenceNumber": "1" } }] });
    trace.arrow(2, 3, Style::Call, "the table's stream: a new event");
    let answer = relay.invoke(stream).await.answer();
    let sent = queue.take();
    assert_eq!(
        (answer["batchItemFailures"].clone(), sent.len()),
        (json!([]), 1)
    );
    // What the relay asks the queue for comes between its read and its mark.
    let mut happened = trace.take();
    let mark = happened.len() - 2;
    let (operation, message) = &sent[0];
    let body = message["MessageBody"].as_str().unwrap();
    trace.arrow(3, 4, Style::Call, format!("{operation}: {body}"));
    trace.arrow(4, 3, Style::Reply, "OK");
    happened.splice(mark..mark, trace.take());
    Diagram {
        name: "outbox",
        title: "An event leaves with the transaction",
        description: "The event is an item of the transaction. The outbox table's stream wakes the relay, which reads the event, sends it, and \
                      marks it as published.",
        lanes: vec!["Client", "Lambda", "DynamoDB", "Relay", "Queue"],
        events: happened,
    }
}
