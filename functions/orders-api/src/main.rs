//! `POST /orders`, behind API Gateway or a load balancer: an order that is sent twice with one `Idempotency-Key` is placed
//! once.
//!
//! The handler writes nothing itself: it hands the order, and the event that tells of it, to its claim. They commit together with
//! the answer that a retry gets, or not at all. The relay (`functions/outbox-relay`) sends the event on.
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `ORDERS_TABLE` | the table of the orders; partition key `order_id` |
//! | `OUTBOX_TABLE` | the table of the events; [`lambda_idempotency::dynamodb::outbox`] describes it |
//! | `METRIC_NAMESPACE`, `RUST_LOG` | as `telemetry` has it |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that panics has found something")
)]

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::Put;
use lambda_http::http::header::{CONTENT_TYPE, HeaderValue};
use lambda_http::http::request::Parts;
use lambda_http::http::{Method, StatusCode};
use lambda_http::{Body, Error, Request, Response, run_concurrent};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::dynamodb::outbox::{Event, Outbox};
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy, path};
use lambda_idempotency::store::transaction::Write;
use lambda_idempotency::{Claim, Idempotency};
use serde_json::{Value, json};
use telemetry::Exporter;
use telemetry::variables::needed;
use tokio::signal::unix::{SignalKind, signal};
use tower::ServiceBuilder;

mod order;

use order::Order;

/// The time for which a process that is told to end waits for its orders.
const DRAIN: Duration = Duration::from_secs(20);

/// The time that the answers of the last orders have to be sent.
const ANSWER: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct Orders {
    table: String,
    outbox: Outbox,
}

impl Orders {
    /// Awaits nothing: the layer makes all writes.
    fn serve(&self, request: Request) -> Result<Response<Body>, Error> {
        let (parts, body) = request.into_parts();
        match (&parts.method, path(&parts)) {
            (&Method::POST, "/orders") => match Order::parse(&body) {
                Ok(order) => {
                    let claim = parts.extensions.get::<Claim>();
                    let claim = claim.ok_or("the route is not behind the layer")?;
                    answer(201, &self.place(claim, &order)?)
                }
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

    fn place(&self, claim: &Claim, order: &Order) -> Result<Value, Error> {
        // The same in every attempt, as is the payment's: whoever gets the event twice can tell.
        let order_id = claim.derive_uuid("order");
        let payment_id = claim.derive_uuid("payment");
        let put = Put::builder()
            .table_name(&self.table)
            .item("order_id", S(order_id.clone()))
            .item("sku", S(order.sku.clone()))
            .item("quantity", N(order.quantity.to_string()))
            .item("amount", N(order.amount.to_string()))
            .item("currency", S(order.currency.clone()))
            .condition_expression("attribute_not_exists(order_id)");
        // The record is forgotten one day, the order is not.
        claim.write(Write::from(put).or_else(|_| placed_before()))?;
        let created = json!({
            "order_id": order_id,
            "payment_id": payment_id,
            "amount": order.amount,
            "currency": order.currency,
        });
        let event = Event::new("order.created", &order_id);
        let event_id = self.outbox.emit(claim, event, &created)?;
        tracing::info!(order_id, event_id, "placing the order");
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

fn placed_before() -> Response<Body> {
    let refusal = json!({ "error": "this order was placed long ago" });
    let mut response = Response::new(refusal.to_string().into());
    *response.status_mut() = StatusCode::CONFLICT;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
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
        // No name that a request can have.
        return Some("no tenant".to_owned());
    };
    let tenant = tenant.to_str().ok()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_valid = (1..=64).contains(&tenant.len()) && tenant.chars().all(is_name);
    is_valid.then(|| tenant.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let metrics = telemetry::start()?;
    start(metrics)
        .await
        .inspect_err(|error| tracing::error!(%error, "the API stopped"))
}

async fn start(metrics: Exporter) -> Result<(), Error> {
    let store = DynamoDbStore::from_env().await?;
    let orders = Orders {
        table: needed("ORDERS_TABLE", "the name of the orders' table")?,
        outbox: Outbox::new(needed("OUTBOX_TABLE", "the name of the outbox")?),
    };
    let once = Idempotency::builder(store)
        .namespace("orders-api")
        .build()?;
    let layer = IdempotencyLayer::scoped(once.clone(), tenant)
        .route("POST /orders", RoutePolicy::required())?
        // A route that isn't there is answered with 404 or 405, with a key or without.
        .other_routes(RoutePolicy::off());
    let api = ServiceBuilder::new()
        .layer(metrics.clone())
        .layer(layer)
        .service_fn(move |request| std::future::ready(orders.serve(request)));
    // A Managed Instance is told to end so. Its orders have their own tasks there.
    let mut told_to_end = signal(SignalKind::terminate())?;
    tokio::select! {
        served = run_concurrent(api) => served,
        _ = told_to_end.recv() => {
            // Logs how many are left.
            let _ = once.drain(DRAIN).await;
            tokio::time::sleep(ANSWER).await;
            metrics.flush();
            Ok(())
        }
    }
}
