//! An axum router in a Lambda function. In a function it serves events; anywhere else it sends itself two, and looks.
//!
//! ```sh
//! cargo run --example axum_in_lambda
//! ```

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::post;
use http_body_util::BodyExt;
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::store::{MemoryStore, Store};
use lambda_idempotency::{Claim, Idempotency};
use tower::ServiceExt;

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn book(Path(shop): Path<String>, claim: Claim) -> (StatusCode, String) {
    // For the payment provider: the same in every attempt.
    let provider_key = claim.derive_key("provider");
    (
        StatusCode::CREATED,
        format!("booked at {shop}, paid as {provider_key}"),
    )
}

/// `Router::layer` puts the layer behind the routing, so it knows the template: the operation is `POST /shops/{shop}/bookings`.
fn router(store: impl Store) -> Result<Router, Error> {
    let once = Idempotency::builder(store).namespace("bookings").build()?;
    let layer = IdempotencyLayer::unscoped(once)
        .route("POST /shops/{shop}/bookings", RoutePolicy::required())?
        .other_routes(RoutePolicy::off());
    Ok(Router::new()
        .route("/shops/{shop}/bookings", post(book))
        .layer(layer))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .json()
        .with_writer(std::io::stderr)
        .init();
    // In a function of your own: `DynamoDbStore::from_env().await?`.
    let router = router(MemoryStore::new())?;
    if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
        return lambda_http::run(router).await;
    }
    let event = |shop: &str| {
        let event = serde_json::json!({
            "version": "2.0", "routeKey": "$default", "rawPath": format!("/shops/{shop}/bookings"), "rawQueryString": "",
            "headers": { "idempotency-key": "\"8e03978e-40d5-43dd-bc93-6894a57f9324\"" },
            "requestContext": { "stage": "$default", "http": { "method": "POST", "path": format!("/shops/{shop}/bookings") } },
            "body": "two seats", "isBase64Encoded": false,
        });
        lambda_http::request::from_str(&event.to_string())
    };
    let first = router.clone().oneshot(event("7")?).await?;
    let retry = router.clone().oneshot(event("7")?).await?;
    assert_eq!(
        (first.status(), retry.status()),
        (StatusCode::CREATED, StatusCode::CREATED)
    );
    assert_eq!(retry.headers()["idempotent-replayed"], "true");
    let (first, retry) = (
        first.into_body().collect().await?,
        retry.into_body().collect().await?,
    );
    let first = first.to_bytes();
    assert_eq!(first, retry.to_bytes());
    println!("twice the same: {}", String::from_utf8_lossy(&first));

    // One key on another path of the template is a mistake, and gets no one else's answer.
    let other = router.oneshot(event("8")?).await?;
    assert_eq!(other.status(), StatusCode::UNPROCESSABLE_ENTITY);
    println!("the key on another shop: {}", other.status());
    Ok(())
}
