//! An axum server outside Lambda, as the page on servers has it: each order is counted in a table. It prints its address, and is
//! ended from outside.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router, extract::State};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::{Idempotency, InFlight};
use load::Error;
use mimalloc::MiMalloc;
use serde::Deserialize;
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Deserialize)]
struct Order {
    sku: String,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::ERROR)
        .init();
    let store = DynamoDbStore::from_env().await?;
    let client = store.client().clone();
    let once = Idempotency::builder(store)
        .namespace("load")
        .renewed_lease(Duration::from_secs(30))
        .in_flight(InFlight::WaitUpTo(Duration::from_secs(5)))
        .settings(|settings| settings.group_requests = true)
        .build()?;
    let router = Router::new()
        .route("/orders", post(place))
        .with_state(client)
        .layer(IdempotencyLayer::unscoped(once));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

/// Counts: an order that is placed twice is seen.
async fn place(
    State(client): State<Client>,
    Json(order): Json<Order>,
) -> Result<StatusCode, StatusCode> {
    let placed = client
        .update_item()
        .table_name("orders")
        .key("order_id", S(order.sku.clone()))
        .update_expression("SET sku = :sku ADD runs :one")
        .expression_attribute_values(":sku", S(order.sku))
        .expression_attribute_values(":one", N("1".to_owned()))
        .send()
        .await;
    placed.map_or(Err(StatusCode::BAD_GATEWAY), |_| Ok(StatusCode::CREATED))
}
