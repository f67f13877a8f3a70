//! `POST /orders`, behind API Gateway or a load balancer: an order that is sent twice with one `Idempotency-Key` is placed
//! once.
//!
//! The handler is deliberately not idempotent: each run places an order under a new id, so that an order placed twice would
//! show. What keeps it from happening is the layer.
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `ORDERS_TABLE` | the table of the orders; partition key `order_id` |
//! | `METRIC_NAMESPACE`, `RUST_LOG` | as `telemetry` has it |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that panics has found something")
)]

use std::env;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use lambda_http::http::Method;
use lambda_http::http::request::Parts;
use lambda_http::{Body, Error, Request, Response, run_concurrent};
use lambda_idempotency::Idempotency;
use lambda_idempotency::http::{IdempotencyLayer, Route, path};
use lambda_idempotency::store::dynamodb::DynamoDbStore;
use serde_json::{Value, json};
use telemetry::Flush;
use tower::ServiceBuilder;
use uuid::Uuid;

mod order;

use order::Order;

#[derive(Clone)]
struct Orders {
    client: Client,
    table: String,
}

impl Orders {
    async fn serve(self, request: Request) -> Result<Response<Body>, Error> {
        let (parts, body) = request.into_parts();
        match (&parts.method, path(&parts)) {
            (&Method::POST, "/orders") => match Order::parse(&body) {
                Ok(order) => answer(201, &self.place(order).await?),
                Err(reason) => answer(400, &json!({ "error": reason })),
            },
            (_, "/orders") => {
                let mut refusal = answer(405, &json!({ "error": "only POST is allowed" }))?;
                refusal.headers_mut().insert("allow", "POST".parse()?);
                Ok(refusal)
            }
            _ => answer(404, &json!({ "error": "there is nothing but /orders" })),
        }
    }

    async fn place(self, order: Order) -> Result<Value, Error> {
        let order_id = Uuid::new_v4().to_string();
        self.client
            .put_item()
            .table_name(self.table)
            .item("order_id", S(order_id.clone()))
            .item("sku", S(order.sku.clone()))
            .item("quantity", N(order.quantity.to_string()))
            .item("amount", N(order.amount.to_string()))
            .item("currency", S(order.currency.clone()))
            .send()
            .await
            .inspect_err(|error| {
                tracing::error!(error = %DisplayErrorContext(error), "the order was not placed");
            })?;
        tracing::info!(order_id, "order placed");
        Ok(json!({
            "order_id": order_id,
            "status": "created",
            "sku": order.sku,
            "quantity": order.quantity,
            "amount": order.amount,
            "currency": order.currency,
        }))
    }
}

fn answer(status: u16, body: &Value) -> Result<Response<Body>, Error> {
    Ok(Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(body.to_string().into())?)
}

/// A real API takes the tenant from a verified token; a header keeps the sample short. Orders without one share their keys; one
/// that can't be read is nobody's, and is refused.
fn tenant(parts: &Parts) -> Option<String> {
    let Some(tenant) = parts.headers.get("x-tenant-id") else {
        return Some(String::new());
    };
    let tenant = tenant.to_str().ok()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_valid = (1..=64).contains(&tenant.len()) && tenant.chars().all(is_name);
    is_valid.then(|| tenant.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let flush = telemetry::start()?;
    start(flush)
        .await
        .inspect_err(|error| tracing::error!(%error, "the API stopped"))
}

async fn start(flush: Flush) -> Result<(), Error> {
    let store = DynamoDbStore::from_env().await?;
    let orders = Orders {
        client: store.client().clone(),
        table: env::var("ORDERS_TABLE")
            .ok()
            .filter(|table| !table.is_empty())
            .ok_or("set ORDERS_TABLE to the name of the orders' table")?,
    };
    let once = Idempotency::builder(store)
        .namespace("orders-api")
        .build()?;
    let layer = IdempotencyLayer::new(once)
        .route("POST /orders", Route::required())?
        // What isn't there is answered with 404 or 405, with a key or without.
        .other_routes(Route::off())
        .scope(tenant)
        .require_scope();
    let api = ServiceBuilder::new()
        .layer(flush)
        .layer(layer)
        .service_fn(move |request| orders.clone().serve(request));
    run_concurrent(api).await
}
