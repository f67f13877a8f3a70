use axum::body::Body;
use axum::http::{Request, StatusCode, request::Parts};
use axum::{Router, routing::post};
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{TestError, TestRequest};
use lambda_idempotency::{Claim, Idempotency};
use tower::ServiceExt;

// The server, in your `src/`. Its `main` adds the layer that authenticates.

/// The client, as `authenticate` has verified it.
#[derive(Clone)]
struct Client(String);

fn client_of(parts: &Parts) -> Option<String> {
    Some(parts.extensions.get::<Client>()?.0.clone())
}

fn router(once: Idempotency) -> Router {
    let layer = IdempotencyLayer::scoped(once, client_of);
    Router::new().route("/orders", post(order)).layer(layer)
}

async fn order(claim: Claim) -> (StatusCode, String) {
    (StatusCode::CREATED, claim.derive_uuid("order"))
}

// The tests.

/// A client's request, as it comes out of `authenticate`.
fn request(client: &str) -> Result<Request<Body>, TestError> {
    let order = TestRequest::post("/orders").key("cart-17").body("tea");
    let mut request = order.request()?.map(Body::new);
    request.extensions_mut().insert(Client(client.to_owned()));
    Ok(request)
}

#[tokio::test]
async fn each_client_has_its_own_answer() -> Result<(), Box<dyn std::error::Error>> {
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("orders")
        .build()?;
    let router = router(once);
    let mut answers = Vec::new();
    for client in ["red", "red", "blue"] {
        let answer = router.clone().oneshot(request(client)?).await?;
        assert_eq!(answer.status(), StatusCode::CREATED);
        let is_replayed = answer.headers().contains_key("idempotent-replayed");
        let body = axum::body::to_bytes(answer.into_body(), 1_024).await?;
        answers.push((body, is_replayed));
    }
    assert_eq!(answers[1].0, answers[0].0);
    assert_ne!(answers[2].0, answers[0].0);
    assert_eq!(
        [false, true, false],
        [answers[0].1, answers[1].1, answers[2].1]
    );
    Ok(())
}
