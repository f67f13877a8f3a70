//! Nothing in the process remembers a key, but for the local cache, which is bounded.

use std::future::Future;
use std::io::Error as HandlerError;

use bytes::Bytes;
use http_body_util::Full;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::sqs::{BatchLayer, Message};
use lambda_idempotency::store::{CachedStore, MemoryStore, Store};
use lambda_idempotency::{Fingerprint, Idempotency, Key};
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::forgetful::Forgetful;
use crate::memory::{alive, alone, megabytes};
use crate::support::Server;
use crate::support::events::{batch, message};

/// The most bytes by which a few buffers and tables may grow whose size doesn't depend on the number of keys.
const SLACK: usize = 300_000;

/// Returns the number of keys that go through each door.
fn keys() -> u64 {
    let asked =
        std::env::var("BOUNDS_KEYS").map(|text| text.parse().expect("BOUNDS_KEYS is a number"));
    asked.unwrap_or(10_000)
}

/// Returns the growth in live bytes from the first tenth of the keys, after which the cache is full, to the last key.
async fn growth<F: Future<Output = ()>>(
    door: &str,
    keys: u64,
    mut work: impl FnMut(u64) -> F,
) -> usize {
    for key in 0..keys / 10 {
        work(key).await;
    }
    let first = alive();
    for key in keys / 10..keys {
        work(key).await;
    }
    let last = alive();
    println!(
        "{keys} times through {door}: {} alive after a tenth, {} at the end",
        megabytes(first),
        megabytes(last)
    );
    last.saturating_sub(first)
}

fn engine<S: Store>(store: S) -> Idempotency {
    Idempotency::builder(store)
        .namespace("bounds")
        .build()
        .unwrap()
}

/// Makes a cache that a tenth of the keys fills.
fn cached(store: impl Store) -> CachedStore {
    CachedStore::new(store).max_bytes(500_000)
}

async fn run(once: &Idempotency, key: u64) {
    let token = format!("order-{key}");
    let fingerprint = Fingerprint::json(format!("[{key}]").as_bytes());
    let outcome = once.run(Key::new("charge", token), fingerprint, |claim| async move {
        Ok::<_, HandlerError>(claim.derive_key("gateway"))
    });
    outcome.await.unwrap();
}

#[test]
fn a_run_leaves_nothing_behind() {
    alone(async {
        let once = engine(cached(Forgetful));
        let grown = growth("run", keys(), |key| run(&once, key)).await;
        assert!(grown < SLACK, "{grown}");
    });
}

/// Shows that the bound of the other tests can be exceeded.
#[test]
fn a_store_that_remembers_every_key_is_noticed() {
    alone(async {
        let once = engine(MemoryStore::new());
        let grown = growth("run, with a store that remembers", 10_000, |key| {
            run(&once, key)
        })
        .await;
        assert!(grown > 3 * SLACK, "{grown}");
    });
}

#[test]
fn a_batch_leaves_nothing_behind() {
    alone(async {
        let worker = BatchLayer::new(engine(cached(Forgetful)))
            .handler(|_: Message<Value>| async { Ok::<_, HandlerError>(()) });
        let grown = growth("batches of 100", keys() / 100, |number| {
            deliver(worker.clone(), number)
        })
        .await;
        assert!(grown < SLACK, "{grown}");
    });
}

async fn deliver<W>(mut worker: W, number: u64)
where
    W: Service<
            lambda_runtime::LambdaEvent<lambda_idempotency::sqs::SqsEvent>,
            Response = lambda_idempotency::sqs::SqsBatchResponse,
            Error = lambda_idempotency::sqs::BatchError,
        >,
{
    let messages = (0..100).map(|n| {
        message(
            &format!("m-{number}-{n}"),
            json!({ "order": n }).to_string(),
        )
    });
    let reply = worker.call(batch(messages)).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
}

#[test]
fn a_request_leaves_nothing_behind_not_even_its_path() {
    alone(async {
        let handler = |_: http::Request<_>| async {
            Ok::<_, HandlerError>(http::Response::new(Full::new(Bytes::new())))
        };
        let api = IdempotencyLayer::unscoped(engine(cached(Forgetful))).layer(service_fn(handler));
        let grown = growth("HTTP, each with its own path", keys(), |key| {
            let request = http::Request::post(format!("/orders/{key}"))
                .header("idempotency-key", format!("k-{key}"));
            let answer = api
                .clone()
                .oneshot(request.body(Full::<Bytes>::default()).unwrap());
            async { assert_eq!(answer.await.unwrap().status(), 200) }
        })
        .await;
        assert!(grown < SLACK, "{grown}");
    });
}

/// The SDK, its connections and its caches are in the process too.
#[test]
fn through_the_sdk_nothing_is_left_behind_either_dynamodb_local() {
    alone(async {
        let server = Server::dynamodb_local().await;
        let store = DynamoDbStore::new(server.client(), server.idempotency_table().await);
        let worker = BatchLayer::new(engine(cached(store)))
            .handler(|_: Message<Value>| async { Ok::<_, HandlerError>(()) });
        let grown = growth(
            "batches of 100, on DynamoDB Local",
            keys().min(200_000) / 100,
            |number| deliver(worker.clone(), number),
        )
        .await;
        assert!(grown < SLACK, "{grown}");
    });
}
