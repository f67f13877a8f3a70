//! The whole path: request, order, outbox, relay, queue, payment. Each process is killed at each step; one order, one payment.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::payments_worker::{batch, failed};
use crate::support::gateway::order;
use crate::support::gateway::{Gateway, Response};
use crate::support::lambda::{Function, Item, Reply, Sandbox, text};
use crate::support::{Fault, Proxy, QueueApi, Server, Stream};

mod batches;
mod inbox;
mod refusals;
mod sweep;

/// Longer than any test waits.
const FOREVER: Duration = Duration::from_hours(1);

const NONE: [&str; 0] = [];

/// An event that is put into a function's outbox as `Outbox::emit` would.
struct Put<'a> {
    aggregate: &'a str,
    id: &'a str,
    transaction: &'a str,
    position: usize,
    recorded_at: Option<&'a str>,
    data: Option<&'a str>,
}

impl Default for Put<'_> {
    fn default() -> Self {
        Self {
            aggregate: "order-1",
            id: "0-1",
            transaction: "t",
            position: 0,
            recorded_at: Some("1"),
            data: Some("{}"),
        }
    }
}

impl Put<'_> {
    async fn into(self, path: &Path) {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let put = path.orders.server().client().put_item();
        let put = put
            .table_name(path.orders.outbox())
            .item("aggregate", text(self.aggregate))
            .item("id", text(self.id))
            .item("type", text("order.created"))
            .item("transaction", text(self.transaction))
            .item("position", AttributeValue::N(self.position.to_string()))
            .item("pending", text("0"))
            // Of an earlier publication: an operator wants another.
            .item("expiration", AttributeValue::N("4102444800".to_owned()));
        let put = match self.data {
            Some(data) => put.item("data", text(data)),
            None => put,
        };
        let put = match self.recorded_at {
            Some(number) => put.item("recorded_at", AttributeValue::N(number.to_owned())),
            None => put,
        };
        put.send().await.expect("an item");
    }
}

/// The functions, and what lies between them.
struct Path {
    orders: Function,
    relay: Function,
    worker: Function,
    queue: QueueApi,
    /// Before the queue.
    queue_wire: Proxy,
    stream: Stream,
    /// The messages that the queue has taken so far, each as often as it was sent.
    sent: Vec<Value>,
}

impl Path {
    async fn new() -> Self {
        let orders = Function::orders_api().await;
        let queue = QueueApi::answering(None).await;
        let queue_wire = Proxy::before(&Server::behind(queue.endpoint().to_owned())).await;
        Self {
            relay: orders.outbox_relay(queue_wire.server().endpoint()),
            worker: Function::payments_worker().await,
            stream: Stream::of(orders.server(), orders.outbox()).await,
            orders,
            queue,
            queue_wire,
            sent: Vec::new(),
        }
    }

    fn request(key: &str) -> Value {
        Gateway::Http.post(&[("Idempotency-Key", key)], &order())
    }

    async fn place(&self, key: &str) -> Response {
        let mut sandbox = self.orders.start().await;
        Response::of(sandbox.invoke(Self::request(key)).await)
    }

    /// Delivers what the stream has to a relay, as the event source mapping would.
    async fn relay(&mut self, relay: &mut Sandbox) -> Value {
        let event = self.stream.event().await;
        let answer = relay.invoke(event.clone()).await.answer();
        self.stream.answered(&event, &answer);
        self.collect();
        answer["batchItemFailures"].clone()
    }

    fn collect(&mut self) {
        for (operation, message) in self.queue.take() {
            assert_eq!(operation, "SendMessage");
            self.sent.push(message);
        }
    }

    /// All that the queue has, repetitions too, though a FIFO queue would drop them.
    fn deliveries(&self) -> Value {
        let bodies = self
            .sent
            .iter()
            .map(|message| message["MessageBody"].as_str().unwrap().to_owned());
        batch(&bodies.collect::<Vec<_>>())
    }

    async fn work(&self) -> Vec<String> {
        failed(self.worker.start().await.invoke(self.deliveries()).await)
    }

    /// One order, its event published, and one payment of it, however often each was sent.
    async fn assert_one(&self, sends: usize) {
        let orders = self.orders.effects().await;
        assert_eq!(orders.len(), 1, "orders");
        let events = self.relay.effects().await;
        assert_eq!(events.len(), 1, "events");
        assert!(events[0].contains_key("published_at") && !events[0].contains_key("pending"));
        assert_eq!(self.sent.len(), sends, "messages");
        for message in &self.sent {
            assert_eq!(message["MessageDeduplicationId"], text(&events[0], "id"));
            assert_eq!(message["MessageGroupId"], text(&orders[0], "order_id"));
            assert_eq!(
                message["MessageAttributes"]["event_type"]["StringValue"],
                "order.created"
            );
        }
        let payments = self.worker.effects().await;
        assert_eq!(payments.len(), 1, "payments");
        assert_eq!(text(&payments[0], "order_id"), text(&orders[0], "order_id"));
    }
}

#[tokio::test]
async fn an_order_becomes_one_payment_however_often_each_step_is_repeated() {
    let mut path = Path::new().await;
    assert!(!path.place("cart-1").await.is_replayed());
    assert!(path.place("cart-1").await.is_replayed());
    let mut relay = path.relay.start().await;
    assert_eq!(path.relay(&mut relay).await, json!([]));
    // The marks have come by meanwhile, and the whole stream comes again.
    assert_eq!(path.relay(&mut relay).await, json!([]));
    path.stream = Stream::of(path.orders.server(), path.orders.outbox()).await;
    assert_eq!(path.relay(&mut relay).await, json!([]));
    assert_eq!(path.work().await, NONE);
    assert_eq!(path.work().await, NONE);
    path.assert_one(1).await;
}

/// The API is killed where a fault holds it. After its lease a retry goes on, or replays where the order was placed before.
#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_api_is_killed_a_retry_finds_all_or_nothing_written() {
    let points = [
        ("PutItem", Fault::Delay(FOREVER), false),
        ("PutItem", Fault::SlowReply(FOREVER), false),
        ("TransactWriteItems", Fault::Delay(FOREVER), false),
        ("TransactWriteItems", Fault::SlowReply(FOREVER), true),
    ];
    join_all(points.map(|(operation, fault, replays)| async move {
        let at = format!("{operation} {fault:?}");
        let mut path = Path::new().await;
        let (proxy, doomed) = path.orders.behind_a_proxy().await;
        proxy.inject(operation, fault);
        let mut doomed = doomed.start().await;
        doomed.begin(Path::request("cart-1")).await;
        proxy.held().await;
        doomed.kill();

        let left = path.orders.records().await;
        let is_claimed = |record: &&Item| text(record, "status") == "INPROGRESS";
        if let Some(claimed) = left.iter().find(is_claimed) {
            let orders = path.orders.effects().await;
            assert!(orders.is_empty(), "{at}: nothing without its record");
            path.orders.end_lease(claimed).await;
        }
        let retried = path.place("cart-1").await;
        let answered = (retried.status, retried.is_replayed());
        assert_eq!(answered, (201, replays), "{at}: {}", retried.answer);
        let mut relay = path.relay.start().await;
        assert_eq!(path.relay(&mut relay).await, json!([]), "{at}");
        assert_eq!(path.work().await, NONE, "{at}");
        path.assert_one(1).await;
    }))
    .await;
}

/// The relay is killed where a fault holds it, at the queue or at the table; another gets the batch again.
#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_relay_is_killed_an_event_has_one_id_however_often_it_is_published() {
    let points = [
        ("SendMessage", Fault::Delay(FOREVER), 1),
        ("SendMessage", Fault::SlowReply(FOREVER), 2),
        ("UpdateItem", Fault::Delay(FOREVER), 2),
        ("UpdateItem", Fault::SlowReply(FOREVER), 1),
    ];
    join_all(points.map(|(operation, fault, sends)| async move {
        let at = format!("{operation} {fault:?}");
        let mut path = Path::new().await;
        path.place("cart-1").await;
        let (table_wire, doomed) = path.relay.behind_a_proxy().await;
        let wire = match operation {
            "SendMessage" => path.queue_wire.clone(),
            _ => table_wire,
        };
        wire.inject(operation, fault);
        let mut doomed = doomed.start().await;
        doomed.begin(path.stream.event().await).await;
        wire.held().await;
        doomed.kill();
        path.collect();

        let mut relay = path.relay.start().await;
        assert_eq!(path.relay(&mut relay).await, json!([]), "{at}");
        assert_eq!(path.work().await, NONE, "{at}");
        assert_eq!(path.sent.len(), sends, "{at}");
        path.assert_one(sends).await;
    }))
    .await;
}

#[tokio::test]
async fn the_worker_killed_before_its_effect_and_after_its_completion_pays_once() {
    let mut path = Path::new().await;
    path.place("cart-1").await;
    let mut relay = path.relay.start().await;
    path.relay(&mut relay).await;

    let mut doomed = path.worker.slow(FOREVER).start().await;
    doomed.begin(path.deliveries()).await;
    let left = path.worker.claimed_by_attempt(1).await;
    doomed.kill();
    path.worker.end_lease(&left).await;

    let mut doomed = path.worker.start().await;
    doomed.begin(path.deliveries()).await;
    while text(&path.worker.record().await, "status") != "COMPLETED" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Nobody hears the answer that it was about to give.
    doomed.kill();
    assert_eq!(path.work().await, NONE);
    path.assert_one(1).await;
}

#[tokio::test]
async fn an_event_that_no_stream_announces_is_found_by_the_sweep() {
    let mut path = Path::new().await;
    path.place("cart-1").await;
    let mut relay = path.relay.start().await;
    let schedule = json!({ "source": "aws.scheduler" });
    for _ in 0..2 {
        let answer = relay.invoke(schedule.clone()).await.answer();
        assert_eq!(answer["batchItemFailures"], json!([]));
        path.collect();
    }
    assert_eq!(path.work().await, NONE);
    path.assert_one(1).await;
}

#[tokio::test]
async fn an_event_that_cannot_be_published_comes_again_and_the_others_do_not_wait() {
    let mut path = Path::new().await;
    for cart in ["cart-1", "cart-2", "cart-3"] {
        path.place(cart).await;
    }
    path.queue_wire.inject("SendMessage", Fault::DENY);
    let mut relay = path.relay.start().await;
    let failures = path.relay(&mut relay).await;
    assert_eq!(failures.as_array().unwrap().len(), 1, "{failures}");
    assert_eq!(path.sent.len(), 2);

    assert_eq!(path.relay(&mut relay).await, json!([]));
    assert_eq!(path.sent.len(), 3, "and no other again");
    assert_eq!(path.work().await, NONE);
    assert_eq!(path.worker.effects().await.len(), 3);
}

#[tokio::test]
async fn an_event_that_is_published_and_not_marked_is_logged_as_published() {
    let mut path = Path::new().await;
    path.place("cart-1").await;
    let (table_wire, relay) = path.relay.behind_a_proxy().await;
    table_wire.inject("UpdateItem", Fault::DENY);
    let mut relay = relay.start().await;
    let failures = path.relay(&mut relay).await;
    assert_eq!(failures.as_array().unwrap().len(), 1, "{failures}");
    let lines = relay.lines();
    assert!(
        lines.contains("\"published, not marked: it is published again\""),
        "{lines}"
    );
    assert!(!lines.contains("\"not published\""), "{lines}");

    assert_eq!(path.relay(&mut relay).await, json!([]));
    assert_eq!(path.work().await, NONE);
    path.assert_one(2).await;
}

#[tokio::test]
async fn a_sweep_that_cannot_publish_fails_and_the_event_stays() {
    let path = Path::new().await;
    path.place("cart-1").await;
    path.queue_wire.inject("SendMessage", Fault::DENY);
    let mut relay = path.relay.start().await;
    assert_matches!(relay.invoke(json!({})).await, Reply::Failed(_));
    let events = path.relay.effects().await;
    assert!(events[0].contains_key("pending"));
}

/// Returns the request of one event at this target: its operation, its message, and the order's id.
async fn sent_to(target: &str) -> (String, Value, String) {
    let path = Path::new().await;
    let order_id = path.place("cart-1").await.body()["order_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut relay = path.relay.target(target).start().await;
    let answer = relay.invoke(path.stream.event().await).await.answer();
    assert_eq!(answer["batchItemFailures"], json!([]));
    let mut sent = path.queue.take();
    assert_eq!(sent.len(), 1);
    let (operation, message) = sent.remove(0);
    (operation, message, order_id)
}

#[tokio::test]
async fn a_standard_queue_gets_the_data_and_its_attributes() {
    let (operation, message, order_id) = sent_to("sqs:http://sqs.invalid/1/payments").await;
    assert_eq!(operation, "SendMessage");
    let data: Value = serde_json::from_str(message["MessageBody"].as_str().unwrap()).unwrap();
    assert_eq!(data["order_id"], order_id);
    assert_eq!(
        message["MessageAttributes"]["aggregate"]["StringValue"],
        order_id
    );
    assert!(message["MessageAttributes"]["event_id"]["StringValue"].is_string());
    assert_eq!(message.get("MessageGroupId"), None);
}

#[tokio::test]
async fn a_topic_gets_the_data_and_its_attributes() {
    for (topic, group) in [("orders", None), ("orders.fifo", Some("MessageGroupId"))] {
        let target = format!("sns:arn:aws:sns:eu-central-1:123456789012:{topic}");
        let (operation, message, order_id) = sent_to(&target).await;
        assert_eq!(operation, "Publish");
        assert_eq!(
            format!("sns:{}", message["TopicArn"].as_str().unwrap()),
            target
        );
        let data: Value = serde_json::from_str(message["Message"].as_str().unwrap()).unwrap();
        assert_eq!(data["order_id"], order_id);
        let values: Vec<_> = message.values_of("Value.StringValue");
        assert!(
            values.contains(&"order.created".to_owned()) && values.contains(&order_id),
            "{values:?}"
        );
        assert_eq!(
            message.get("MessageGroupId").and_then(Value::as_str),
            group.map(|_| order_id.as_str())
        );
    }
}

/// The values of a form's fields whose names end so.
trait Form {
    fn values_of(&self, ending: &str) -> Vec<String>;
}

impl Form for Value {
    fn values_of(&self, ending: &str) -> Vec<String> {
        let fields = self.as_object().unwrap().iter();
        let found = fields.filter(|(name, _)| name.ends_with(ending));
        found
            .map(|(_, value)| value.as_str().unwrap().to_owned())
            .collect()
    }
}

#[tokio::test]
async fn a_bus_gets_the_data_within_what_surrounds_it() {
    let (operation, message, order_id) = sent_to("eventbridge:orders").await;
    assert_eq!(operation, "PutEvents");
    let entry = &message["Entries"][0];
    assert_eq!(
        (entry["EventBusName"].as_str(), entry["DetailType"].as_str()),
        (Some("orders"), Some("order.created"))
    );
    let detail: Value = serde_json::from_str(entry["Detail"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&detail["data"]["order_id"], &detail["aggregate"]),
        (&json!(order_id), &json!(order_id))
    );
    assert!(detail["id"].is_string());
}

#[tokio::test]
async fn an_entry_that_the_bus_refuses_comes_again() {
    let path = Path::new().await;
    path.place("cart-1").await;
    let refused = r#"{"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure"}]}"#;
    path.queue_wire.inject("PutEvents", Fault::Reply(refused));
    let mut relay = path.relay.target("eventbridge:orders").start().await;
    for (refusals, is_pending) in [(1, true), (0, false)] {
        let answer = relay.invoke(path.stream.event().await).await.answer();
        assert_eq!(
            answer["batchItemFailures"].as_array().unwrap().len(),
            refusals,
            "{answer}"
        );
        assert_eq!(
            path.relay.effects().await[0].contains_key("pending"),
            is_pending
        );
    }
}
