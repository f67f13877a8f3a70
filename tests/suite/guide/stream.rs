use std::io;
use std::sync::{Arc, Mutex};

use lambda_idempotency::dynamodb_streams::{
    BatchError, BatchLayer, Change, ChangeKind, DynamoDbStreamEvent, ItemFailures, Message,
};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock};
use lambda_idempotency::{Claim, Idempotency};
use lambda_runtime::{Context, Error, LambdaEvent};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::Service;

// The function, in your `src/`. Its `main` ends with `serve(once, mailer).await`.

async fn serve<M: Mailer>(once: Idempotency, mailer: M) -> Result<(), Error> {
    lambda_runtime::run(worker(once, mailer)).await
}

#[derive(Deserialize)]
struct Order {
    id: u64,
    email: String,
}

trait Mailer: Clone + Send + Sync + 'static {
    fn send(
        &self,
        order: &Order,
        key: String,
    ) -> impl Future<Output = Result<(), io::Error>> + Send;
}

async fn notify<M: Mailer>(
    mailer: M,
    change: Change<Order>,
    claim: Claim,
) -> Result<(), io::Error> {
    match (change.event, change.new) {
        (ChangeKind::Insert, Some(order)) => mailer.send(&order, claim.derive_key("mail")).await,
        _ => Ok(()), // only new orders are confirmed
    }
}

fn worker<M: Mailer>(
    once: Idempotency,
    mailer: M,
) -> impl Service<
    LambdaEvent<DynamoDbStreamEvent>,
    Response = ItemFailures,
    Error = BatchError,
    Future: Send,
> {
    BatchLayer::new(once)
        .operation("notify")
        .handler(move |message: Message<Change<Order>>| {
            notify(mailer.clone(), message.body, message.claim)
        })
}

// The tests.

/// Remembers its mails, each with the order and the key, and refuses those to `down`.
#[derive(Clone, Default)]
struct FakeMailer {
    mails: Arc<Mutex<Vec<(u64, String)>>>,
    down: Option<&'static str>,
}

impl FakeMailer {
    fn orders(&self) -> Vec<u64> {
        let mails = self.mails.lock().unwrap();
        let mut orders: Vec<_> = mails.iter().map(|(order, _)| *order).collect();
        orders.sort_unstable();
        orders
    }
}

impl Mailer for FakeMailer {
    async fn send(&self, order: &Order, key: String) -> Result<(), io::Error> {
        if self.down == Some(order.email.as_str()) {
            return Err(io::Error::other("no route"));
        }
        self.mails.lock().unwrap().push((order.id, key));
        Ok(())
    }
}

/// A change of the table, as Lambda delivers it: the sequence number is its place in the stream.
fn placed(sequence_number: &str, order: u64, email: &str) -> Value {
    let id = json!({"N": order.to_string()});
    json!({
        "eventID": format!("event-{sequence_number}"),
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000",
        "dynamodb": {
            "SequenceNumber": sequence_number,
            "Keys": {"id": id},
            "NewImage": {"id": id, "email": {"S": email}},
        },
    })
}

/// Delivers the changes in one batch; the sequence numbers that the reply names.
async fn deliver(
    once: &Idempotency,
    mailer: &FakeMailer,
    changes: &[Value],
) -> Result<Vec<String>, Error> {
    let event = serde_json::from_value(json!({ "Records": changes }))?;
    let mut worker = worker(once.clone(), mailer.clone());
    let reply = worker.call(LambdaEvent::new(event, Context::default()));
    Ok(reply.await?.batch_item_failures)
}

#[tokio::test]
async fn a_change_that_is_delivered_twice_is_notified_once() -> Result<(), Error> {
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("notices")
        .build()?;
    let mailer = FakeMailer::default();

    let changes = [placed("111", 1, "ann@example.com")];
    assert!(deliver(&once, &mailer, &changes).await?.is_empty());
    assert!(deliver(&once, &mailer, &changes).await?.is_empty());

    assert_eq!(mailer.orders(), [1]);
    Ok(())
}

#[tokio::test]
async fn a_failure_is_the_checkpoint_and_what_is_done_after_it_is_replayed() -> Result<(), Error> {
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("notices")
        .build()?;
    let mut mailer = FakeMailer {
        down: Some("bob@example.com"),
        ..FakeMailer::default()
    };

    let changes = [
        placed("111", 1, "ann@example.com"),
        placed("222", 2, "bob@example.com"),
        placed("333", 3, "cas@example.com"),
    ];
    assert_eq!(deliver(&once, &mailer, &changes).await?, ["222"]);
    assert_eq!(mailer.orders(), [1, 3]);

    // Lambda delivers from the checkpoint on.
    mailer.down = None;
    assert!(deliver(&once, &mailer, &changes[1..]).await?.is_empty());
    assert_eq!(mailer.orders(), [1, 2, 3]);
    Ok(())
}

#[tokio::test]
async fn after_a_crash_the_mail_is_sent_under_the_same_key() -> Result<(), Error> {
    let clock = ManualClock::default();
    let store = FaultyStore::new(MemoryStore::new());
    let once = Idempotency::builder(store.clone())
        .namespace("notices")
        .clock(clock.clone())
        .build()?;
    let mailer = FakeMailer::default();

    // The mail is sent, and the process dies before the outcome is stored.
    let changes = [placed("111", 1, "ann@example.com")];
    let dies = deliver(&once, &mailer, &changes);
    store.crash_before(Call::Complete).cut_off(dies).await?;
    assert_eq!(deliver(&once, &mailer, &changes).await?, ["111"]); // in flight

    clock.pass_lease(&once);
    assert!(deliver(&once, &mailer, &changes).await?.is_empty());
    let mails = mailer.mails.lock().unwrap();
    assert_eq!(mails.len(), 2);
    assert_eq!(mails[0], mails[1]); // the mail provider drops the second of one key
    Ok(())
}
