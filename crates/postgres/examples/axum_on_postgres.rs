//! An axum server whose orders and whose keys commit in one PostgreSQL transaction. It ends on SIGTERM.
//!
//! ```sh
//! scripts/with postgres -- cargo run -p lambda-idempotency-postgres --example axum_on_postgres
//! curl -i -H 'idempotency-key: order-1' -H 'content-type: application/json' -d '{"cents": 1250}' http://127.0.0.1:PORT/orders
//! ```
//!
//! It prints the port. Send the request twice: the second answer is the first one, with `idempotent-replayed: true`.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use deadpool_postgres::{Manager, Pool};
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::{Claim, Idempotency, InFlight};
use lambda_idempotency_postgres::{PostgresStore, TransactionError};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};
use tokio_postgres::NoTls;

type Store = PostgresStore<Pool>;

#[derive(Deserialize)]
struct Order {
    cents: i64,
}

#[derive(Serialize)]
struct Placed {
    number: i64,
}

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error(transparent)]
    Sql(#[from] tokio_postgres::Error),
}

/// A failure of the database isn't stored: the transaction is rolled back, and a retry runs. Where
/// another run of the key was in the way, the layer answers instead.
impl IntoResponse for OrderError {
    fn into_response(self) -> Response {
        if !matches!(self, Self::Transaction(TransactionError::Met)) {
            eprintln!("the order was not placed: {self}");
        }
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    }
}

async fn place(
    State(store): State<Store>,
    claim: Claim,
    Json(order): Json<Order>,
) -> Result<(StatusCode, Json<Placed>), OrderError> {
    // The key's place is its first statement: a duplicate ends here.
    let tx = store.transaction(&claim).await?;
    let insert = "INSERT INTO orders (cents) VALUES ($1) RETURNING number";
    let number = tx.query_one(insert, &[&order.cents]).await?.get("number");
    // The layer stores this answer and commits.
    Ok((StatusCode::CREATED, Json(Placed { number })))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let manager = Manager::new(std::env::var("POSTGRES_URL")?.parse()?, NoTls);
    // One connection for each request that runs at once.
    let pool = Pool::builder(manager).max_size(16).build()?;
    let orders = "CREATE TABLE IF NOT EXISTS orders (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, cents bigint NOT NULL)";
    pool.get().await?.batch_execute(orders).await?;
    let store = Store::new(pool);
    store.create_tables().await?;

    // A duplicate that comes while the first one is at work waits for its answer.
    let once = Idempotency::builder(store.clone())
        .namespace("shop")
        .in_flight(InFlight::WaitUpTo(Duration::from_mins(1)))
        .build()?
        .claimless();
    let router = Router::new()
        .route("/orders", post(place))
        .layer(IdempotencyLayer::unscoped(once.clone()))
        .with_state(store);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let (mut stop, mut end) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::terminate())?,
    );
    println!("http://{}/orders", listener.local_addr()?);
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        stop.recv().await;
    });
    let mut serving = tokio::spawn(serving.into_future());
    tokio::select! {
        served = &mut serving => served??,
        // A handler is slow, or a client that sends or reads slowly holds its connection.
        () = async { end.recv().await; sleep(Duration::from_secs(8)).await } => {}
    }
    // The runs of these requests, and of clients that hung up, may not have ended.
    let left = once.drain(Duration::from_secs(18)).await;
    // The connections end with the process: the answers of these runs leave before.
    if !serving.is_finished() {
        let _ = timeout(Duration::from_secs(2), serving).await;
    }
    if left > 0 {
        eprintln!("runs that were cut off: {left}");
    }
    Ok(())
}
