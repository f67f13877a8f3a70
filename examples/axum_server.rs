//! A plain axum server, outside Lambda, with a client that hangs up and retries. The server ends on SIGTERM, which the example
//! sends to itself.
//!
//! ```sh
//! cargo run --example axum_server
//! ```
//!
//! A server of several processes needs a store that they share: `DynamoDbStore` works outside Lambda too. There is no deadline
//! here, so a claim has a short lease, which is renewed while the handler runs. `docs/recipes/servers.md` says more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use futures_util::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Idempotency, InFlight};
use nix::sys::signal::{Signal, raise};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("payments")
        .renewed_lease(Duration::from_secs(30))
        .in_flight(InFlight::WaitUpTo(Duration::from_secs(5)))
        .build()?;
    let charges = Arc::new(AtomicUsize::new(0));
    let begun = Arc::new(Notify::new());
    let (counter, begins) = (Arc::clone(&charges), Arc::clone(&begun));
    let charge = move |body: String| {
        let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
        begins.notify_one();
        async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            (StatusCode::CREATED, format!("charge {number}: {body}"))
        }
    };
    let router = Router::new()
        .route("/charges", post(charge))
        .layer(IdempotencyLayer::unscoped(once.clone()));

    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let server = tokio::spawn(async move {
        let until = async move {
            terminate.recv().await;
        };
        let until = until.shared();
        let ended = until
            .clone()
            .then(|()| tokio::time::sleep(Duration::from_secs(8)));
        let serving = axum::serve(listener, router).with_graceful_shutdown(until);
        let mut serving = tokio::spawn(serving.into_future());
        tokio::select! {
            served = &mut serving => served??,
            // A handler is slow, or a client that sends or reads slowly holds its connection.
            () = ended => {}
        }
        // The runs of these requests, and of clients that hung up, may not have ended.
        let left = once.drain(Duration::from_secs(18)).await;
        // The connections end with the process: the answers of these runs leave before.
        if !serving.is_finished() {
            let _ = tokio::time::timeout(Duration::from_secs(2), serving).await;
        }
        Ok::<_, std::io::Error>(left)
    });

    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let send = async |key: &str, body: &'static str| -> Result<(StatusCode, bool, Bytes), Error> {
        let request =
            Request::post(format!("http://{address}/charges")).header("idempotency-key", key);
        let answer = client.request(request.body(body.into())?).await?;
        let is_replayed = answer.headers().contains_key("idempotent-replayed");
        let status = answer.status();
        Ok((
            status,
            is_replayed,
            answer.into_body().collect().await?.to_bytes(),
        ))
    };
    // This client hangs up while the handler runs, and its retry waits until that is over.
    tokio::select! {
        biased;
        () = begun.notified() => {}
        answer = send("cart-17", "12.50 EUR") => {
            return Err(format!("no handler ran: {answer:?}").into());
        }
    }
    let first = send("cart-17", "12.50 EUR").await?;
    let retry = send("cart-17", "12.50 EUR").await?;
    let other = send("cart-17", "99.00 EUR").await?;
    assert_eq!(
        first,
        (
            StatusCode::CREATED,
            true,
            Bytes::from("charge 1: 12.50 EUR")
        )
    );
    assert_eq!(retry, (StatusCode::CREATED, true, first.2.clone()));
    assert_eq!(other.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(charges.load(Ordering::SeqCst), 1);
    println!(
        "4 requests, 1 charge: {}",
        String::from_utf8_lossy(&retry.2)
    );

    // A request that is under way when the server is told to end gets its answer.
    let end = async {
        begun.notified().await;
        raise(Signal::SIGTERM).map_err(Error::from)
    };
    let (last, ()) = tokio::try_join!(send("cart-18", "5.00 EUR"), end)?;
    let answer = Bytes::from("charge 2: 5.00 EUR");
    assert_eq!(last, (StatusCode::CREATED, false, answer));
    assert_eq!(server.await??, 0, "runs were cut off");
    println!("the last answer: {}", String::from_utf8_lossy(&last.2));
    Ok(())
}
