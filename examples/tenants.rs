//! Keys that belong to tenants: two clients that choose the same key never meet.
//!
//! ```sh
//! cargo run --example tenants
//! ```

use http::StatusCode;
use http_body_util::BodyExt;
use lambda_http::{Body, Request, Response};
use lambda_idempotency::Idempotency;
use lambda_idempotency::http::{IdempotencyLayer, scope};
use lambda_idempotency::store::MemoryStore;
use serde_json::{Value, json};
use tower::{ServiceBuilder, ServiceExt};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// An event of an HTTP API whose JWT authorizer has verified who the client is; without one, nobody has.
fn event(subject: Option<&str>) -> Result<Request, serde_json::Error> {
    let authorizer =
        subject.map(|subject| json!({ "jwt": { "claims": { "sub": subject }, "scopes": null } }));
    let event = json!({
        "version": "2.0", "routeKey": "POST /orders", "rawPath": "/orders", "rawQueryString": "",
        "headers": { "idempotency-key": "cart-1", "x-user": "whatever the client says" },
        "requestContext": {
            "stage": "$default", "routeKey": "POST /orders", "authorizer": authorizer.unwrap_or(Value::Null),
            "http": { "method": "POST", "path": "/orders" },
        },
        "body": "tea", "isBase64Encoded": false,
    });
    lambda_http::request::from_str(&event.to_string())
}

async fn order(request: Request) -> Result<Response<Body>, Error> {
    let claim = request.extensions().get::<lambda_idempotency::Claim>();
    let order = claim.ok_or("orders need the layer")?.derive_key("order");
    Ok(Response::builder()
        .status(StatusCode::CREATED)
        .body(order.into())?)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("orders")
        .build()?;
    let api = ServiceBuilder::new()
        // The authorizer has verified this claim: nothing runs without it, and no header replaces it.
        .layer(IdempotencyLayer::scoped(once, scope::jwt_claim("sub")))
        .service_fn(order);
    let send = async |subject| -> Result<(StatusCode, bool, String), Error> {
        let answer = api.clone().oneshot(event(subject)?).await?;
        let is_replayed = answer.headers().contains_key("idempotent-replayed");
        let status = answer.status();
        let text = String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec())?;
        Ok((status, is_replayed, text))
    };

    let (anna, ben) = (send(Some("anna")).await?, send(Some("ben")).await?);
    assert_eq!((anna.0, ben.0), (StatusCode::CREATED, StatusCode::CREATED));
    assert_ne!(anna.2, ben.2);
    assert_eq!(
        send(Some("anna")).await?,
        (StatusCode::CREATED, true, anna.2)
    );
    assert_eq!(send(Some("ben")).await?, (StatusCode::CREATED, true, ben.2));
    println!("one key, two clients: two orders, and each gets its own again");

    let (status, _, problem) = send(None).await?;
    assert_eq!(status, StatusCode::FORBIDDEN);
    println!("nobody in particular: {problem}");
    Ok(())
}
