//! A server whose clients go away: a socket that is closed, a timeout outside of the layer, a shutdown.

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{AtDeadline, Builder, Idempotency, InFlight, Key};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};
use tower::ServiceExt;
use tower_http::timeout::TimeoutLayer;

use super::api::{Api, Door, Failure, answer};
use crate::on_each_server;
use crate::support::{Begun, Fault, Proxy, Server, VirtualClock, builder_on};

macro_rules! in_real_time {
    ($name:ident) => {
        on_each_server!($name, start_paused = false);
    };
}

/// Longer than anything here takes. Sockets are waited for in real time.
const LONG: Duration = Duration::from_mins(1);

/// An axum server with one handler, which says when it has begun and waits to be let go.
#[derive(Clone)]
struct Shop {
    address: SocketAddr,
    store: DynamoDbStore,
    once: Idempotency,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    runs: AtomicUsize,
    begun: Notify,
    /// The server dropped a request.
    dropped: Notify,
}

/// Tells that a request was dropped, unless it was answered.
struct Dropped(Arc<Seen>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.dropped.notify_one();
    }
}

impl Shop {
    /// `gate` lets a handler go on with each permit.
    async fn open(
        store: DynamoDbStore,
        settings: impl FnOnce(Builder) -> Builder,
        gate: &Arc<Semaphore>,
    ) -> Self {
        let once = builder_on(store.clone(), "shop");
        let once = once.in_flight(InFlight::WaitUpTo(LONG));
        let once = settings(once).build().unwrap();
        let seen = Arc::new(Seen::default());
        let (handler, gate) = (Arc::clone(&seen), Arc::clone(gate));
        let charge = move |headers: HeaderMap| {
            let (handler, gate) = (Arc::clone(&handler), Arc::clone(&gate));
            async move {
                let run = handler.runs.fetch_add(1, Ordering::SeqCst) + 1;
                handler.begun.notify_one();
                gate.acquire().await.unwrap().forget();
                assert!(!headers.contains_key("panics"), "on purpose");
                (StatusCode::CREATED, format!("charge {run}"))
            }
        };
        let outside = Arc::clone(&seen);
        let watched =
            from_fn(move |request: Request, next: Next| watch(Arc::clone(&outside), request, next));
        let router = Router::new()
            .route("/charges", post(charge))
            .layer(IdempotencyLayer::unscoped(once.clone()))
            .layer(watched);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            address,
            store,
            once,
            seen,
        }
    }

    /// Sends a request over its own connection, and returns the connection.
    async fn ask(&self, key: &str, header: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "POST /charges HTTP/1.1\r\nhost: shop\r\nconnection: close\r\nidempotency-key: {key}\r\n{header}\
             content-length: 2\r\n\r\n{{}}"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    /// Sends a request and gives its answer as text: status line, headers, body.
    async fn send(&self, key: &str) -> String {
        read(self.ask(key, "").await).await
    }

    fn runs(&self) -> usize {
        self.seen.runs.load(Ordering::SeqCst)
    }

    /// Closes the client's socket, and waits until the server has dropped its request.
    async fn hang_up(&self, socket: TcpStream) {
        drop(socket);
        self.soon(self.seen.dropped.notified()).await;
    }

    async fn begun(&self) {
        self.soon(self.seen.begun.notified()).await;
    }

    async fn soon<T>(&self, what: impl Future<Output = T>) -> T {
        timeout(LONG, what).await.expect("in time")
    }
}

/// Around each request: says that it was dropped, or answers with 504 when its handler has begun, as a timeout does.
async fn watch(seen: Arc<Seen>, request: Request, next: Next) -> Response {
    let is_impatient = request.headers().contains_key("impatient");
    let dropped = Dropped(Arc::clone(&seen));
    let response = {
        let mut response = pin!(next.run(request));
        tokio::select! {
            response = &mut response => response,
            () = seen.begun.notified(), if is_impatient => StatusCode::GATEWAY_TIMEOUT.into_response(),
        }
    };
    std::mem::forget(dropped);
    response
}

async fn read(mut socket: TcpStream) -> String {
    let mut answer = String::new();
    timeout(LONG, socket.read_to_string(&mut answer))
        .await
        .expect("in time")
        .unwrap();
    answer
}

#[track_caller]
fn assert_replay_of_the_first(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(answer.contains("idempotent-replayed: true"), "{answer}");
    assert!(answer.ends_with("charge 1"), "{answer}");
}

#[track_caller]
fn assert_overloaded(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    assert!(answer.contains(r#""code":"overloaded""#), "{answer}");
}

in_real_time!(a_client_that_hangs_up_while_the_handler_runs_is_given_its_answer_on_the_retry);
async fn a_client_that_hangs_up_while_the_handler_runs_is_given_its_answer_on_the_retry(
    server: Server,
) {
    let gate = Arc::new(Semaphore::new(0));
    let shop = Shop::open(server.store().await, |once| once, &gate).await;
    let client = shop.ask("k-1", "").await;
    shop.begun().await;
    shop.hang_up(client).await;

    gate.add_permits(2);
    assert_replay_of_the_first(&shop.send("k-1").await);
    assert_eq!(shop.runs(), 1);
}

in_real_time!(a_client_that_hangs_up_while_the_completion_is_sent_is_given_its_answer_on_the_retry);
async fn a_client_that_hangs_up_while_the_completion_is_sent_is_given_its_answer_on_the_retry(
    server: Server,
) {
    let proxy = Proxy::before(&server).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let gate = Arc::new(Semaphore::new(2));
    let shop = Shop::open(store, |once| once, &gate).await;
    proxy.inject("UpdateItem", Fault::Stop);
    let client = shop.ask("k-1", "").await;
    proxy.held().await;
    shop.hang_up(client).await;
    proxy.let_go();

    assert_replay_of_the_first(&shop.send("k-1").await);
    assert_eq!(shop.runs(), 1);
}

in_real_time!(a_timeout_outside_of_the_layer_leaves_the_run_going);
async fn a_timeout_outside_of_the_layer_leaves_the_run_going(server: Server) {
    let gate = Arc::new(Semaphore::new(0));
    let shop = Shop::open(server.store().await, |once| once, &gate).await;
    let late = read(shop.ask("k-1", "impatient: yes\r\n").await).await;
    assert!(late.starts_with("HTTP/1.1 504"), "{late}");

    gate.add_permits(2);
    assert_replay_of_the_first(&shop.send("k-1").await);
    assert_eq!(shop.runs(), 1);
}

in_real_time!(a_request_beyond_the_limit_is_a_503_and_claims_nothing);
async fn a_request_beyond_the_limit_is_a_503_and_claims_nothing(server: Server) {
    let gate = Arc::new(Semaphore::new(0));
    let one = |once: Builder| once.settings(|settings| settings.detached_limit = NonZeroU32::MIN);
    let shop = Shop::open(server.store().await, one, &gate).await;
    let client = shop.ask("k-1", "").await;
    shop.begun().await;
    // A hang-up ends no run, so the limit counts it.
    shop.hang_up(client).await;
    assert_overloaded(&shop.send("k-2").await);

    gate.add_permits(2);
    assert_eq!(shop.once.drain(LONG).await, 0);
    // Of another process, which drains nothing.
    let other = Shop::open(shop.store.clone(), |once| once, &gate).await;
    assert_replay_of_the_first(&other.send("k-1").await);
    let second = other.send("k-2").await;
    assert!(second.starts_with("HTTP/1.1 201"), "{second}");
    assert!(!second.contains("idempotent-replayed"), "{second}");
    assert_eq!((shop.runs(), other.runs()), (1, 1));
}

in_real_time!(a_duplicate_whose_client_hung_up_waits_no_longer);
async fn a_duplicate_whose_client_hung_up_waits_no_longer(server: Server) {
    let proxy = Proxy::before(&server).await;
    let store = DynamoDbStore::new(proxy.server().client(), server.idempotency_table().await);
    let gate = Arc::new(Semaphore::new(0));
    let shop = Shop::open(store, |once| once, &gate).await;
    let first = shop.ask("k-1", "").await;
    shop.begun().await;
    proxy.take_total();
    let duplicate = shop.ask("k-1", "").await;
    let waits = async {
        while proxy.take_total() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    shop.soon(waits).await;
    shop.hang_up(duplicate).await;

    let only_the_first = async { while shop.once.drain(Duration::from_millis(20)).await > 1 {} };
    shop.soon(only_the_first).await;
    gate.add_permits(1);
    assert_eq!(shop.once.drain(LONG).await, 0);
    assert!(read(first).await.starts_with("HTTP/1.1 201"));
    assert_eq!(shop.runs(), 1);
}

in_real_time!(draining_waits_for_the_run_of_a_client_that_hung_up);
async fn draining_waits_for_the_run_of_a_client_that_hung_up(server: Server) {
    let gate = Arc::new(Semaphore::new(0));
    let shop = Shop::open(server.store().await, |once| once, &gate).await;
    let client = shop.ask("k-1", "").await;
    shop.begun().await;
    shop.hang_up(client).await;

    assert_eq!(shop.once.drain(Duration::from_millis(20)).await, 1);
    assert_overloaded(&shop.send("k-2").await);
    gate.add_permits(1);
    assert_eq!(shop.once.drain(LONG).await, 0);

    let next = Shop::open(shop.store.clone(), |once| once, &gate).await;
    assert_replay_of_the_first(&next.send("k-1").await);
    assert_eq!((shop.runs(), next.runs()), (1, 0));
}

in_real_time!(a_panic_of_the_handler_ends_the_connection_and_releases_the_claim);
async fn a_panic_of_the_handler_ends_the_connection_and_releases_the_claim(server: Server) {
    let gate = Arc::new(Semaphore::new(2));
    let shop = Shop::open(server.store().await, |once| once, &gate).await;
    let answer = read(shop.ask("k-1", "panics: yes\r\n").await).await;
    assert_eq!(answer, "", "as without the layer");

    let retry = shop.send("k-1").await;
    assert!(retry.ends_with("charge 2"), "{retry}");
    assert!(!retry.contains("idempotent-replayed"), "{retry}");
}

in_real_time!(the_lease_of_a_server_is_renewed_while_its_handler_runs);
async fn the_lease_of_a_server_is_renewed_while_its_handler_runs(server: Server) {
    let gate = Arc::new(Semaphore::new(0));
    let renewed = |once: Builder| once.renewed_lease(LONG);
    let shop = Shop::open(server.store().await, renewed, &gate).await;
    let client = shop.ask("k-1", "").await;
    shop.begun().await;
    let key = Key::new("POST /charges", "k-1");
    let id = shop.once.record_id(&key).unwrap();
    let lease = async || {
        let found = shop.once.store().load(&id, Instant::now() + LONG).await;
        found.unwrap().unwrap().content.unwrap().lease.unwrap()
    };
    let first = lease().await;
    // The client's going ends no renewal.
    shop.hang_up(client).await;
    tokio::time::pause();
    tokio::time::sleep(LONG / 2).await;
    tokio::time::resume();
    assert!(lease().await > first);

    gate.add_permits(1);
    assert_replay_of_the_first(&shop.send("k-1").await);
    assert_eq!(shop.runs(), 1);
}

on_each_server!(an_invocation_whose_future_is_dropped_leaves_its_key_to_the_next_one);
async fn an_invocation_whose_future_is_dropped_leaves_its_key_to_the_next_one(server: Server) {
    let begun = Arc::new(Begun::default());
    let working = Arc::clone(&begun);
    let handler = move |run, _| {
        let working = Arc::clone(&working);
        async move {
            if run == 1 {
                working.then_never::<()>().await;
            }
            Ok::<_, Failure>(answer(201, format!("order {run}")))
        }
    };
    let in_lambda =
        |once: Builder| once.settings(|settings| settings.at_deadline = AtDeadline::End);
    let api = Api::configured(&server, in_lambda, |layer| layer, handler).await;
    let mut context = lambda_http::Context::default();
    context.deadline = VirtualClock::deadline(Duration::from_mins(2));
    let call = Door::Http.post("k-1").context(context);
    begun.hang_up(api.send(&call)).await;

    let retry = api.send(&call).await;
    assert_eq!((retry.status.as_u16(), api.runs()), (201, 2));
    assert!(!retry.is_replayed());
}

/// Under the timeouts of `docs/recipes/servers.md`.
#[tokio::test(start_paused = true)]
async fn a_client_that_stops_in_its_body_is_answered() {
    let once = builder_on(MemoryStore::new(), "shop").build().unwrap();
    let (handled, uploaded) = (LONG / 4, LONG);
    let router = Router::new()
        .route("/charges", post(|| async { StatusCode::CREATED }))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            handled,
        ))
        .layer(IdempotencyLayer::unscoped(once.clone()))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::REQUEST_TIMEOUT,
            uploaded,
        ));
    let half = stream::iter([Ok::<_, Failure>(Bytes::from_static(b"{"))]);
    let half = Body::from_stream(half.chain(stream::pending()));
    let request = http::Request::post("/charges").header("idempotency-key", "k-1");
    let answer = router.oneshot(request.body(half).unwrap());
    let answer = timeout(2 * LONG, answer).await.expect("in time");
    assert_eq!(answer.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(once.drain(Duration::ZERO).await, 0);
}
