//! Many requests, through both clients, to a protected server behind a wire that loses, delays and cuts.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that panics has found something"
)]
#![cfg(feature = "reqwest")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::{Json, Router, routing::post};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Extensions, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Claim, Idempotency};
use lambda_idempotency_client::{
    Delivery, IdempotencyKey, KeyLayer, KeyMiddleware, Policy, RequestError, Unkeyed,
};
use reqwest_middleware::ClientBuilder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceExt};

/// The number of times that each order was placed.
type Ledger = Arc<Mutex<HashMap<String, u32>>>;

async fn place(
    State(ledger): State<Ledger>,
    claim: Claim,
    order: String,
) -> (StatusCode, Json<Value>) {
    // Some are slow, so that a repetition meets them.
    if claim.derive_key("slow").starts_with(['0', '1']) {
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    *ledger.lock().unwrap().entry(order.clone()).or_default() += 1;
    (StatusCode::CREATED, Json(json!({ "order": order })))
}

/// A server whose every answer is for one order; returns its address.
async fn server(ledger: &Ledger) -> SocketAddr {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("orders");
    let builder = builder.settings(|settings| settings.max_retry_after = Duration::from_secs(1));
    let once = builder.lease(Duration::from_mins(1)).build().unwrap();
    let router = Router::new()
        .route("/orders", post(place).patch(place))
        .layer(IdempotencyLayer::unscoped(once))
        .with_state(Arc::clone(ledger));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// The fault that the wire gives one connection, which has one request.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Pass,
    Delay,
    Refuse,
    LoseRequest,
    LoseReply,
    /// At any place: in the head, or in the body.
    CutReply,
}

/// A wire to the server; each connection meets the next fault. Returns its address.
async fn wire(to: SocketAddr, seed: u64) -> SocketAddr {
    use Fault::{CutReply, Delay, LoseReply, LoseRequest, Pass, Refuse};
    let faults = [
        Pass,
        Pass,
        Pass,
        Delay,
        Refuse,
        LoseRequest,
        LoseReply,
        CutReply,
    ];
    let mut random = fastrand::Rng::with_seed(seed);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let fault = *random.choice(&faults).unwrap();
            tokio::spawn(async move { connect(client, to, fault).await });
        }
    });
    address
}

/// Carries one request and its answer, as far as the fault lets it.
async fn connect(mut client: TcpStream, to: SocketAddr, fault: Fault) -> std::io::Result<()> {
    if matches!(fault, Fault::Refuse) {
        return Ok(());
    }
    let mut server = TcpStream::connect(to).await?;
    let request = read_message(&mut client).await?;
    match fault {
        Fault::LoseRequest => return Ok(()),
        Fault::Delay => tokio::time::sleep(Duration::from_millis(60)).await,
        _ => {}
    }
    server.write_all(&request).await?;
    if matches!(fault, Fault::LoseReply) {
        // The server may still be at work when its client is gone.
        return Ok(());
    }
    let reply = read_message(&mut server).await?;
    let carried = match fault {
        Fault::CutReply => &reply[..fastrand::usize(1..reply.len())],
        _ => &reply,
    };
    client.write_all(carried).await
}

/// Reads a message of HTTP/1.1 with a `Content-Length`.
async fn read_message(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        if stream.read_buf(&mut message).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8_lossy(&message).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Ok(message);
        }
    }
}

fn policy() -> Policy {
    // So many that none is given up: the faults of the wire are no odds to pass.
    Policy::default()
        .attempts(60)
        .attempt_time(Duration::from_secs(20))
        .time(Duration::from_mins(10))
        .backoff(Duration::from_millis(5))
}

/// 2,000 in `make verify`.
fn requests() -> usize {
    let given = std::env::var("CLIENT_REQUESTS");
    given.map_or(500, |given| given.parse().unwrap())
}

/// Sends many requests, and looks at the answer of each and at its effect.
async fn send_all<F>(call: impl Fn(Method, String) -> F, ledger: &Ledger)
where
    F: Future<Output = (StatusCode, Delivery, Bytes)>,
{
    let answers = stream::iter(0..requests()).map(|number| {
        let order = format!("order-{number}");
        let method = [Method::POST, Method::PATCH][number % 2].clone();
        let answer = call(method, order.clone());
        async move { (order, answer.await) }
    });
    let answers: Vec<_> = answers.buffer_unordered(32).collect().await;
    let (mut repeated, mut replayed) = (0, 0);
    for (order, (status, delivery, body)) in answers {
        assert_eq!(status, StatusCode::CREATED, "{order}");
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            body,
            json!({ "order": order }),
            "the answer of another request"
        );
        assert_eq!(ledger.lock().unwrap().get(&order), Some(&1), "{order}");
        assert!(delivery.key.is_some());
        repeated += usize::from(delivery.attempts > 1);
        replayed += usize::from(delivery.is_replayed);
    }
    // Half of the connections fail; a reply is lost in a quarter of them.
    assert!(
        repeated > requests() / 4 && replayed > requests() / 20,
        "{repeated} {replayed}"
    );
}

#[tokio::test]
async fn a_tower_client_has_each_effect_once_over_a_bad_wire() {
    let ledger = Ledger::default();
    let address = wire(server(&ledger).await, 1).await;
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build_http();
    let client = KeyLayer::new(policy()).layer(client);
    let send = |method: Method, order: String| {
        let client = client.clone();
        async move {
            let mut key = None;
            loop {
                let request = Request::builder().method(method.clone());
                let request = request.uri(format!("http://{address}/orders"));
                let mut request = request.body(Full::new(Bytes::from(order.clone()))).unwrap();
                request.extensions_mut().extend(extensions(key.take()));
                let (head, body) = client.clone().oneshot(request).await.unwrap().into_parts();
                let delivery = head.extensions.get::<Delivery>().cloned().unwrap();
                match body.collect().await {
                    Ok(body) => return (head.status, delivery, body.to_bytes()),
                    // The answer broke off behind its head: its request is repeated with its key.
                    Err(_) => key = delivery.key,
                }
            }
        }
    };
    send_all(send, &ledger).await;
}

#[tokio::test]
async fn a_reqwest_client_has_each_effect_once_over_a_bad_wire() {
    let ledger = Ledger::default();
    let address = wire(server(&ledger).await, 2).await;
    let client = reqwest::Client::builder()
        .pool_max_idle_per_host(0)
        .no_proxy()
        .build()
        .unwrap();
    let client = ClientBuilder::new(client)
        .with(KeyMiddleware::new(policy()))
        .build();
    let send = |method: Method, order: String| {
        let client = client.clone();
        async move {
            let mut key = None;
            loop {
                let request = client.request(method.clone(), format!("http://{address}/orders"));
                let mut request = request.body(order.clone());
                if let Some(key) = key.take() {
                    request = request.with_extension::<IdempotencyKey>(key);
                }
                let response = request.send().await.unwrap();
                let delivery = response.extensions().get::<Delivery>().cloned().unwrap();
                let status = response.status();
                match response.bytes().await {
                    Ok(body) => return (status, delivery, body),
                    Err(_) => key = delivery.key,
                }
            }
        }
    };
    send_all(send, &ledger).await;
}

fn extensions(key: Option<IdempotencyKey>) -> Extensions {
    let mut extensions = Extensions::new();
    if let Some(key) = key {
        extensions.insert(key);
    }
    extensions
}

/// A server that reads the request and says nothing.
async fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
        }
    });
    address
}

#[tokio::test]
async fn a_request_without_an_answer_is_an_error_with_its_key() {
    let address = silent().await;
    let short = policy().attempts(2).attempt_time(Duration::from_millis(50));
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(KeyMiddleware::new(short))
        .build();
    let key = IdempotencyKey::new("order-1").unwrap();
    let request = client
        .post(format!("http://{address}/orders"))
        .with_extension(key.clone());
    let Err(reqwest_middleware::Error::Middleware(error)) = request.send().await else {
        panic!("an answer");
    };
    let error = error.downcast::<RequestError>().unwrap();
    assert_eq!((error.key(), error.attempts()), (Some(&key), 2));
    assert!(error.into_cause().is_none(), "it took too long");
}

#[tokio::test]
async fn what_cannot_be_sent_twice_is_sent_once() {
    let ledger = Ledger::default();
    let to = server(&ledger).await;
    let nowhere = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(KeyMiddleware::new(policy()))
        .build();
    let streamed = || reqwest::Body::wrap(Full::new(Bytes::from("order-s")));
    let post = |address: SocketAddr| client.post(format!("http://{address}/orders"));
    for request in [
        post(nowhere).body(streamed()),
        post(nowhere).with_extension(Unkeyed),
    ] {
        let Err(reqwest_middleware::Error::Middleware(error)) = request.send().await else {
            panic!("an answer");
        };
        let error = error.downcast::<RequestError>().unwrap();
        assert_eq!(error.attempts(), 1, "{error}");
    }
    let answer = post(to).body(streamed()).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert_eq!(answer.extensions().get::<Delivery>().unwrap().attempts, 1);
}
