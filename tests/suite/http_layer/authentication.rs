//! Authentication, inside the layer and outside.

use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use lambda_http::Body;
use lambda_idempotency::Idempotency;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::store::MemoryStore;
use tower::{Layer, ServiceExt, service_fn};

use super::api::Failure;

/// The client, as the authentication layer has verified it.
#[derive(Clone)]
struct Client(String);

/// The tokens that are valid, each with its client.
type Tokens = Arc<Mutex<Vec<(&'static str, &'static str)>>>;

/// The client of a request, where its token is valid.
fn verified(tokens: &Tokens, request: &Request<Body>) -> Option<Client> {
    let sent = request.headers().get("authorization")?;
    let tokens = tokens.lock().unwrap();
    let mut valid = tokens.iter();
    let (_, client) = valid.find(|(token, _)| sent == token)?;
    Some(Client((*client).to_owned()))
}

fn order(token: &str) -> Request<Body> {
    Request::post("/orders")
        .header("idempotency-key", "cart-1")
        .header("authorization", token)
        .body(Body::Empty)
        .unwrap()
}

fn engine() -> Idempotency {
    let builder = Idempotency::builder(MemoryStore::new());
    builder.namespace("shop").build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_replay_passes_by_what_is_inside_and_is_refused_by_what_is_outside() {
    let tokens: Tokens = Arc::new(Mutex::new(vec![("t-1", "anna"), ("t-2", "ben")]));

    let inside = Arc::clone(&tokens);
    let handler = move |request| {
        let client = verified(&inside, &request);
        async move {
            let status = client.map_or(StatusCode::UNAUTHORIZED, |_| StatusCode::CREATED);
            let response = Response::builder().status(status);
            Ok::<_, Failure>(response.body(Full::<bytes::Bytes>::default())?)
        }
    };
    let open = IdempotencyLayer::unscoped(engine()).layer(service_fn(handler));

    let by_client =
        |parts: &http::request::Parts| Some(parts.extensions.get::<Client>()?.0.clone());
    let layer = IdempotencyLayer::scoped(engine(), by_client);
    let guarded = layer.layer(service_fn(|request: Request<Body>| async move {
        let Client(name) = request.extensions().get().ok_or("nobody")?;
        Ok::<_, Failure>(Response::new(Full::<bytes::Bytes>::from(name.clone())))
    }));
    let outside = Arc::clone(&tokens);
    let guarded = service_fn(move |mut request| {
        let (client, guarded) = (verified(&outside, &request), guarded.clone());
        async move {
            let Some(client) = client else {
                return Ok::<_, Failure>(StatusCode::UNAUTHORIZED);
            };
            request.extensions_mut().insert(client);
            Ok(guarded.oneshot(request).await?.status())
        }
    });

    for token in ["t-1", "t-2"] {
        assert_eq!(
            open.clone().oneshot(order(token)).await.unwrap().status(),
            201
        );
        assert_eq!(guarded.clone().oneshot(order(token)).await.unwrap(), 200);
    }
    tokens.lock().unwrap().clear();
    let replay = open.oneshot(order("t-1")).await.unwrap();
    assert_eq!(replay.status(), 201, "nobody inside is asked");
    assert_eq!(guarded.oneshot(order("t-1")).await.unwrap(), 401);
}
