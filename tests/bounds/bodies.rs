//! Bodies as large as Lambda delivers and takes them: 6 MB.

use std::io::Error as HandlerError;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::store::Store;
use lambda_idempotency::{Idempotency, Selector};
use tower::{Layer, ServiceExt, service_fn};

use crate::forgetful::Forgetful;
use crate::memory::{alone, megabytes, peak_of};
use crate::support::Server;

const SIX_MEGABYTES: usize = 6_000_000;

fn on(store: impl Store + Clone) -> IdempotencyLayer {
    let once = Idempotency::builder(store).namespace("bounds");
    IdempotencyLayer::unscoped(once.build().unwrap())
}

/// Sends a request with this body to a handler that answers with that one; the peak beyond the two.
async fn send(layer: IdempotencyLayer, body: Bytes, answer: Bytes) -> usize {
    let length = answer.len();
    let handler = service_fn(move |request: http::Request<_>| {
        let answer = answer.clone();
        async move {
            drop(request);
            Ok::<_, HandlerError>(http::Response::new(Full::new(answer)))
        }
    });
    let api = layer.layer(handler);
    let body = Full::new(body).map_err(HandlerError::other).boxed_unsync();
    let request = http::Request::post("/orders")
        .header("idempotency-key", "k-1")
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    let (answer, peak) = peak_of(async {
        api.oneshot(request)
            .await
            .unwrap()
            .into_body()
            .collect()
            .await
    })
    .await;
    assert_eq!(answer.unwrap().to_bytes().len(), length);
    peak
}

fn text() -> Bytes {
    format!("{{\"text\": \"{}\"}}", "x".repeat(SIX_MEGABYTES - 20)).into()
}

/// The JSON that has the most values for its length.
fn numbers() -> Bytes {
    format!("[{}1]", "1,".repeat(SIX_MEGABYTES / 2 - 2)).into()
}

/// The JSON that has the most objects for its length.
fn objects() -> Bytes {
    let objects = r#"{"":0},"#.repeat(SIX_MEGABYTES / 7 - 3);
    format!(r#"{{"id": [[{objects}{{}}]]}}"#).into()
}

/// Text that doesn't compress well.
fn answer() -> Bytes {
    let mut dice = fastrand::Rng::with_seed(7);
    (0..SIX_MEGABYTES - 100)
        .map(|_| dice.alphanumeric() as u8)
        .collect()
}

#[test]
fn a_request_of_six_megabytes_is_not_copied_often() {
    alone(async {
        for (name, body) in [("one text", text()), ("three million numbers", numbers())] {
            let peak = send(on(Forgetful), body, Bytes::from_static(b"{}")).await;
            println!("a request of 6 MB, {name}: {}", megabytes(peak));
            assert!(peak < 2 * SIX_MEGABYTES, "{name}: {peak}");
        }
    });
}

#[test]
fn a_key_in_a_body_of_six_megabytes_is_found_without_its_values() {
    alone(async {
        for pointer in ["/id", "/id/0", "/other"] {
            let key = Selector::pointer(pointer).unwrap();
            let layer = on(Forgetful).other_routes(RoutePolicy::optional().key_from(key));
            let peak = send(layer, objects(), Bytes::from_static(b"{}")).await;
            println!(
                "a request of 6 MB, its key at {pointer}: {}",
                megabytes(peak)
            );
            assert!(peak < 2 * SIX_MEGABYTES, "{pointer}: {peak}");
        }
    });
}

#[test]
fn an_answer_of_six_megabytes_is_not_copied_often() {
    alone(async {
        let peak = send(on(Forgetful), Bytes::from_static(b"{}"), answer()).await;
        println!("an answer of 6 MB: {}", megabytes(peak));
        assert!(peak < 5 * SIX_MEGABYTES, "{peak}");
    });
}

#[test]
fn through_the_sdk_it_takes_no_more_dynamodb_local() {
    alone(async {
        let server = Server::dynamodb_local().await;
        let store = DynamoDbStore::new(server.client(), server.idempotency_table().await);
        let peak = send(on(store), Bytes::from_static(b"{}"), answer()).await;
        println!("an answer of 6 MB, on DynamoDB Local: {}", megabytes(peak));
        assert!(peak < 5 * SIX_MEGABYTES, "{peak}");
    });
}
