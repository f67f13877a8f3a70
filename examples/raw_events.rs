//! A handler of API Gateway's own events on `lambda_runtime`, without `lambda_http`. In a function it serves events; anywhere
//! else it sends itself some, and looks.
//!
//! ```sh
//! cargo run --example raw_events
//! ```

use aws_lambda_events::apigw::{ApiGatewayProxyRequest, ApiGatewayProxyResponse};
use lambda_idempotency::Idempotency;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::http::events::Incoming;
use lambda_idempotency::store::MemoryStore;
use lambda_runtime::{Context, Error, LambdaEvent};
use serde_json::json;
use tower::{ServiceBuilder, ServiceExt};

/// As a handler of `LambdaEvent<ApiGatewayProxyRequest>`, with the claim beside payload and context.
async fn refund(event: Incoming<ApiGatewayProxyRequest>) -> Result<ApiGatewayProxyResponse, Error> {
    let claim = event.claim.ok_or("refunds need the layer")?;
    let mut response = ApiGatewayProxyResponse::default();
    response.status_code = 201;
    response
        .multi_value_headers
        .append("x-attempt", claim.attempt().into());
    response.body = Some(format!("refunded: {}", event.payload.body.unwrap_or_default()).into());
    Ok(response)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .json()
        .with_writer(std::io::stderr)
        .init();
    // In a function of your own: `DynamoDbStore::from_env().await?`.
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("refunds")
        .build()?;
    let function = ServiceBuilder::new()
        .layer(IdempotencyLayer::unscoped(once))
        .service_fn(refund);
    if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
        return lambda_runtime::run(function).await;
    }
    let send = async |keys: &[&str]| {
        let event = serde_json::from_value(json!({
            "resource": "/refunds", "path": "/refunds", "httpMethod": "POST",
            "headers": { "Idempotency-Key": keys.last() }, "multiValueHeaders": { "Idempotency-Key": keys },
            "requestContext": { "stage": "prod", "resourcePath": "/refunds", "httpMethod": "POST", "identity": {} },
            "body": "12.50 EUR", "isBase64Encoded": false,
        }))?;
        function
            .clone()
            .oneshot(LambdaEvent::new(event, Context::default()))
            .await
    };
    let (first, retry) = (send(&["cart-17"]).await?, send(&["cart-17"]).await?);
    assert_eq!((first.status_code, retry.status_code), (201, 201));
    assert_eq!(retry.body, first.body);
    assert!(
        retry
            .multi_value_headers
            .contains_key("idempotent-replayed")
    );
    println!("twice the same: {:?}", retry.body);

    // A REST API hands on each value of a header that was repeated: two keys are a mistake that is told.
    let refused = send(&["cart-17", "cart-18"]).await?;
    assert_eq!(refused.status_code, 400);
    println!("two keys: {}", refused.status_code);
    Ok(())
}
