use std::io;
use std::sync::{Arc, Mutex};

use lambda_idempotency::sqs::{BatchError, BatchLayer, Message, SqsBatchResponse, SqsEvent};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{
    Call, Crash, FaultyStore, ManualClock, TestClaim, TestError, TestMessage,
};
use lambda_idempotency::{Idempotency, Key, StepError};
use lambda_runtime::{Error, LambdaEvent};
use serde::{Deserialize, Serialize};
use tower::{Service, ServiceBuilder};

// The function, in your `src/`. Its `main` ends with `serve(once, gateway).await`.

async fn serve<G: Gateway>(once: Idempotency, gateway: G) -> Result<(), Error> {
    lambda_runtime::run(worker(once, gateway)).await
}

#[derive(Deserialize, Serialize)]
struct Payment {
    order_id: String,
    amount: u64,
}

trait Gateway: Clone + Send + Sync + 'static {
    fn charge(
        &self,
        amount: u64,
        key: String,
    ) -> impl Future<Output = Result<String, io::Error>> + Send;
}

async fn pay<G: Gateway>(
    gateway: G,
    message: Message<Payment>,
) -> Result<String, StepError<io::Error>> {
    let amount = message.body.amount;
    let charge = |key| gateway.charge(amount, key);
    message.claim.step("charge", charge).await
}

fn worker<G: Gateway>(
    once: Idempotency,
    gateway: G,
) -> impl Service<LambdaEvent<SqsEvent>, Response = SqsBatchResponse, Error = BatchError> {
    ServiceBuilder::new()
        .layer(
            BatchLayer::new(once)
                .operation("pay")
                .key(|payment: &Payment| payment.order_id.clone()),
        )
        .service_fn(move |message| pay(gateway.clone(), message))
}

// The tests.

/// Remembers its charges' keys, and dies where the test says so.
#[derive(Clone, Default)]
struct FakeGateway {
    keys: Arc<Mutex<Vec<String>>>,
    crash: Option<Crash>,
}

impl FakeGateway {
    fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap().clone()
    }
}

impl Gateway for FakeGateway {
    async fn charge(&self, amount: u64, key: String) -> Result<String, io::Error> {
        self.keys.lock().unwrap().push(key);
        match &self.crash {
            Some(crash) => crash.here().await,
            None => Ok(format!("receipt for {amount}")),
        }
    }
}

fn message(id: &str) -> Result<TestMessage, TestError> {
    let order_id = "A-17".to_owned();
    TestMessage::json(
        id,
        &Payment {
            order_id,
            amount: 1250,
        },
    )
}

async fn deliver(
    once: &Idempotency,
    gateway: &FakeGateway,
    messages: impl IntoIterator<Item = TestMessage>,
) -> Result<Vec<String>, Error> {
    let event = TestMessage::batch(messages);
    let mut worker = worker(once.clone(), gateway.clone());
    let reply = worker.call(event).await?;
    let failures = reply.batch_item_failures.into_iter();
    Ok(failures.map(|failure| failure.item_identifier).collect())
}

#[tokio::test]
async fn the_handler_charges_under_the_key_of_its_step() -> Result<(), Error> {
    let claim = TestClaim::new(Key::new("pay", "A-17")).namespace("payments");
    let claim = claim.claim().await?;
    let expected = claim.derive_key("charge");
    let gateway = FakeGateway::default();

    let receipt = pay(gateway.clone(), message("m-1")?.with_claim(claim)?).await?;

    assert_eq!(receipt, "receipt for 1250");
    assert_eq!(gateway.keys(), [expected]);
    Ok(())
}

#[tokio::test]
async fn a_second_attempt_does_not_repeat_a_confirmed_charge() -> Result<(), Error> {
    let claim = TestClaim::new(Key::new("pay", "A-17")).confirmed("charge", "receipt 1")?;
    let gateway = FakeGateway::default();

    let message = message("m-1")?.receives(2);
    let message = message.with_claim(claim.claim().await?)?;

    assert_eq!(pay(gateway.clone(), message).await?, "receipt 1");
    assert!(gateway.keys().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_order_is_charged_once_until_its_outcome_expires() -> Result<(), Error> {
    let clock = ManualClock::default();
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("payments")
        .clock(clock.clone())
        .build()?;
    let gateway = FakeGateway::default();

    let nothing: [&str; 0] = [];
    let twice = [message("m-1")?, message("m-2")?];
    assert_eq!(deliver(&once, &gateway, twice).await?, nothing);
    assert_eq!(deliver(&once, &gateway, [message("m-3")?]).await?, nothing);
    assert_eq!(gateway.keys().len(), 1);

    clock.pass_retention(&once);
    assert_eq!(deliver(&once, &gateway, [message("m-4")?]).await?, nothing);
    assert_eq!(gateway.keys().len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_crash_in_the_charge_is_retried_under_the_same_key() -> Result<(), Error> {
    let clock = ManualClock::default();
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("payments")
        .clock(clock.clone())
        .build()?;
    let mut gateway = FakeGateway::default();

    // The process dies after the charge.
    let crash = Crash::new();
    gateway.crash = Some(crash.clone());
    let dies = deliver(&once, &gateway, [message("m-1")?]);
    crash.cut_off(dies).await?;
    gateway.crash = None;

    // Delivered again while the lease lasts, and after it.
    let again = [message("m-1")?.receives(2)];
    assert_eq!(deliver(&once, &gateway, again).await?, ["m-1"]);
    clock.pass_lease(&once);
    let again = [message("m-1")?.receives(3)];
    assert!(deliver(&once, &gateway, again).await?.is_empty());

    let keys = gateway.keys();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
    Ok(())
}

#[tokio::test]
async fn a_crash_after_the_charge_does_not_charge_again() -> Result<(), Error> {
    let clock = ManualClock::default();
    let store = FaultyStore::new(MemoryStore::new());
    let once = Idempotency::builder(store.clone())
        .namespace("payments")
        .clock(clock.clone())
        .build()?;
    let gateway = FakeGateway::default();

    let dies = deliver(&once, &gateway, [message("m-1")?]);
    store.crash_before(Call::Complete).cut_off(dies).await?;
    clock.pass_lease(&once);

    let again = [message("m-1")?.receives(2)];
    assert!(deliver(&once, &gateway, again).await?.is_empty());
    assert_eq!(gateway.keys().len(), 1);
    Ok(())
}
