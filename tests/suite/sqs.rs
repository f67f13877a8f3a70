//! The SQS layer: what a batch of messages, some of them duplicates, does to the world and to its queue.

use std::future::Ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::sqs::{BatchError, BatchLayer, Message, SqsBatchResponse, SqsEvent};
use lambda_idempotency::{Builder, Idempotency};
use lambda_runtime::LambdaEvent;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tower::Service;

use crate::on_each_server;
use crate::support::events::{batch, message};
use crate::support::retention::days;
use crate::support::{Proxy, Server, VirtualClock, builder_on};

mod bad_input;
mod composite;
mod dropped;
mod duplicates;
mod envelopes;
mod errors;
mod fingerprints;
mod groups;
mod handlers;
mod hanging;
mod keys;
mod misconfigured;
mod order;
mod pointers;
mod refusals;
mod rejected;
mod rejections;
mod retention;
mod steps;
mod time;
mod turns;
mod visibility;

#[derive(Clone, Debug, Deserialize)]
struct Payment {
    payment_id: String,
    amount: u64,
}

#[derive(Debug, thiserror::Error)]
enum PaymentError {
    #[error("card declined")]
    Declined,
    #[error("gateway unreachable")]
    Unreachable,
}

/// A message that asks for a payment.
fn payment(message_id: &str, payment_id: &str, amount: u64) -> Value {
    message(message_id, body(payment_id, amount))
}

fn body(payment_id: &str, amount: u64) -> String {
    json!({ "payment_id": payment_id, "amount": amount }).to_string()
}

/// The ids of the messages that took effect. Sorted, since handlers run side by side.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    fn of<T>(&self, message: &Message<T>) {
        self.0.lock().unwrap().push(message.id().to_owned());
    }

    /// A handler whose messages all take effect.
    fn handler<T>(
        &self,
    ) -> impl Fn(Message<T>) -> Ready<Result<(), PaymentError>> + Clone + use<T> {
        let effects = self.clone();
        move |message| {
            effects.of(&message);
            std::future::ready(Ok(()))
        }
    }

    /// Since the last call.
    fn take(&self) -> Vec<String> {
        let mut messages = std::mem::take(&mut *self.0.lock().unwrap());
        messages.sort();
        messages
    }
}

fn builder(store: DynamoDbStore) -> Builder {
    builder_on(store, "sqs")
}

async fn engine(server: &Server) -> Idempotency {
    builder(server.store().await).build().unwrap()
}

/// The layer that most tests wrap a handler in.
fn charge(once: &Idempotency) -> BatchLayer<Payment, PaymentError> {
    BatchLayer::new(once.clone())
        .operation("charge")
        .key(|payment: &Payment| payment.payment_id.clone())
}

trait Worker: Service<LambdaEvent<SqsEvent>, Response = SqsBatchResponse, Error = BatchError> {}
impl<W> Worker for W where
    W: Service<LambdaEvent<SqsEvent>, Response = SqsBatchResponse, Error = BatchError>
{
}

/// A worker whose handler always takes effect.
fn charging(once: &Idempotency, effects: &Effects) -> impl Worker + Clone + use<> {
    charge(once).handler(effects.handler())
}

/// As `charging`, and no message ends before so many run.
fn charging_together(
    once: &Idempotency,
    effects: &Effects,
    count: usize,
) -> impl Worker + Clone + use<> {
    let (effects, all) = (effects.clone(), Arc::new(Barrier::new(count)));
    charge(once).handler(move |message| {
        effects.of(&message);
        let all = Arc::clone(&all);
        async move {
            // Where a message isn't claimed, the others don't wait for ever.
            let _ = tokio::time::timeout(Duration::from_mins(1), all.wait()).await;
            Ok(())
        }
    })
}

/// Delivers a batch; the ids that the worker asks for again.
async fn deliver(
    worker: &mut impl Worker,
    messages: impl IntoIterator<Item = Value>,
) -> Vec<String> {
    let reply = worker.call(batch(messages)).await.unwrap();
    let failures = reply.batch_item_failures.into_iter();
    failures.map(|failure| failure.item_identifier).collect()
}

/// Delivers a batch, of which the worker is to ask for these messages again.
async fn reports(
    worker: &mut impl Worker,
    messages: impl IntoIterator<Item = Value>,
    expected: &[&str],
) {
    assert_eq!(deliver(worker, messages).await, expected);
}

const NOTHING: [&str; 0] = [];

on_each_server!(a_batch_that_comes_twice_takes_effect_once);
async fn a_batch_that_comes_twice_takes_effect_once(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let mut worker = charging(&once, &effects);
    let messages = || (1..=10).map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n));

    assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
    assert_eq!(effects.take().len(), 10);

    assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
    assert_eq!(effects.take(), NOTHING);
}

on_each_server!(with_single_writes_a_new_message_takes_two_requests_and_a_duplicate_one);
async fn with_single_writes_a_new_message_takes_two_requests_and_a_duplicate_one(server: Server) {
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await;
    let mut worker = charge(&once)
        .settings(|settings| settings.single_writes = true)
        .handler(|_| async { Ok(()) });
    let messages = || (1..=5).map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n));
    proxy.take_total();

    deliver(&mut worker, messages()).await;
    assert_eq!(proxy.take_total(), 10);
    deliver(&mut worker, messages()).await;
    assert_eq!(proxy.take_total(), 5);
}

on_each_server!(after_a_half_failed_batch_only_the_failed_half_runs_again);
async fn after_a_half_failed_batch_only_the_failed_half_runs_again(server: Server) {
    let (once, effects) = (engine(&server).await, Effects::default());
    let repaired = Arc::new(Mutex::new(false));
    let (done, is_repaired) = (effects.clone(), Arc::clone(&repaired));
    let mut worker = charge(&once).handler(move |message| {
        let works = message.body.amount % 2 == 0 || *is_repaired.lock().unwrap();
        if works {
            done.of(&message);
        }
        async move { works.then_some(()).ok_or(PaymentError::Unreachable) }
    });
    let messages = || (1..=4).map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n));

    assert_eq!(deliver(&mut worker, messages()).await, ["m-1", "m-3"]);
    assert_eq!(effects.take(), ["m-2", "m-4"]);

    *repaired.lock().unwrap() = true;
    assert_eq!(deliver(&mut worker, messages()).await, NOTHING);
    assert_eq!(effects.take(), ["m-1", "m-3"]);
}

on_each_server!(without_a_setting_an_outcome_is_kept_for_seven_days);
async fn without_a_setting_an_outcome_is_kept_for_seven_days(server: Server) {
    let table = server.idempotency_table().await;
    let once = builder(DynamoDbStore::new(server.client(), &table))
        .build()
        .unwrap();
    let mut single = charge(&once)
        .settings(|settings| settings.single_writes = true)
        .handler(|_| async { Ok(()) });
    let mut grouped = charge(&once).handler(|_| async { Ok(()) });
    reports(&mut single, [payment("m-1", "p-1", 5)], &[]).await;
    let pair = [payment("m-2", "p-2", 5), payment("m-3", "p-3", 5)];
    assert_eq!(deliver(&mut grouped, pair).await, NOTHING);
    assert_eq!(days(&server, &table).await, [7, 7, 7]);
}

on_each_server!(reports_come_in_the_order_of_the_batch_whatever_ends_first);
async fn reports_come_in_the_order_of_the_batch_whatever_ends_first(server: Server) {
    let once = engine(&server).await;
    let mut worker = charge(&once).handler(|message| async move {
        tokio::time::sleep(Duration::from_millis(message.body.amount)).await;
        Err::<(), _>(PaymentError::Unreachable)
    });
    let messages = [
        payment("m-1", "p-1", 60),
        payment("m-2", "p-2", 30),
        payment("m-3", "p-3", 0),
    ];
    assert_eq!(deliver(&mut worker, messages).await, ["m-1", "m-2", "m-3"]);
}

on_each_server!(no_more_messages_run_side_by_side_than_allowed);
async fn no_more_messages_run_side_by_side_than_allowed(server: Server) {
    let once = engine(&server).await;
    for (allowed, expected) in [(Some(0), 1), (Some(1), 1), (Some(3), 3), (None, 10)] {
        let running = Arc::new(Mutex::new((0, 0)));
        let mut layer = BatchLayer::new(once.clone()).operation(format!("op-{allowed:?}"));
        if let Some(allowed) = allowed {
            layer = layer.settings(|settings| settings.concurrency = allowed);
        }
        let gauge = Arc::clone(&running);
        let mut worker = layer.handler(move |_: Message<u64>| {
            let gauge = Arc::clone(&gauge);
            async move {
                let enter = |(now, most): (i32, i32)| (now + 1, most.max(now + 1));
                let leave = |(now, most): (i32, i32)| (now - 1, most);
                let change = |step: &dyn Fn((i32, i32)) -> (i32, i32)| {
                    let mut gauge = gauge.lock().unwrap();
                    *gauge = step(*gauge);
                };
                change(&enter);
                // Until as many as expected have met, and then for a while, so that one too many would come.
                while gauge.lock().unwrap().1 < expected {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                change(&leave);
                Ok::<_, PaymentError>(())
            }
        });
        let messages = (0..12).map(|n| message(&format!("m-{n}"), "1"));
        assert_eq!(deliver(&mut worker, messages).await, NOTHING);
        assert_eq!(*running.lock().unwrap(), (0, expected), "{allowed:?}");
    }
}

on_each_server!(an_empty_batch_gets_an_empty_reply);
async fn an_empty_batch_gets_an_empty_reply(server: Server) {
    let once = engine(&server).await;
    let mut worker = charging(&once, &Effects::default());
    let reply = worker.call(batch([])).await.unwrap();
    let reply = serde_json::to_value(reply).unwrap();
    assert_eq!(reply, json!({ "batchItemFailures": [] }));
}
