//! An axum router behind the layer: which answers commit the handler's transaction.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::{Claim, Verdict};
use tower::ServiceExt;

use crate::support::{Store, count, engine, store, table};

/// Orders by these statements, and gives this answer, whether or not the server takes them.
fn router(
    store: &Store,
    is_claimless: bool,
    statements: String,
    (status, wish): (u16, Option<Verdict>),
) -> Router {
    let once = engine(store.clone()).once;
    let once = if is_claimless { once.claimless() } else { once };
    let store = store.clone();
    let place = move |claim: Claim| {
        let (store, statements) = (store.clone(), statements.clone());
        async move {
            let Ok(tx) = store.transaction(&claim).await else {
                return StatusCode::SERVICE_UNAVAILABLE.into_response();
            };
            let _ = tx.batch_execute(&statements).await;
            let mut response = StatusCode::from_u16(status).unwrap().into_response();
            if let Some(wish) = wish {
                response.extensions_mut().insert(wish);
            }
            response
        }
    };
    Router::new()
        .route("/orders", post(place))
        .layer(IdempotencyLayer::unscoped(once))
}

/// Sends an order, and returns the status of its answer, and whether it is a replay.
async fn sent(router: &Router) -> (u16, bool) {
    let request = Request::post("/orders").header("idempotency-key", "order-1");
    let request = request.body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let is_replayed = response.headers().contains_key("idempotent-replayed");
    (response.status().as_u16(), is_replayed)
}

#[tokio::test]
async fn an_answer_of_400_or_above_rolls_back_unless_it_is_declared_complete() {
    // The second insertion violates the key (`23505`).
    for (status, wish, insertions, made) in [
        (201, None, 1, 1),
        (402, None, 1, 0),
        (422, None, 2, 0),
        (402, Some(Verdict::Complete), 1, 1),
        (201, Some(Verdict::Fail), 1, 0),
    ] {
        for is_claimless in [true, false] {
            let store = store().await;
            let rows = table(&store, "n bigint PRIMARY KEY").await;
            let insertions = format!("INSERT INTO {rows} VALUES (1);").repeat(insertions);
            let router = router(&store, is_claimless, insertions, (status, wish));
            let case = format!("{status} {wish:?} {is_claimless}");
            assert_eq!(sent(&router).await, (status, false), "{case}");
            assert_eq!(sent(&router).await, (status, true), "{case}");
            assert_eq!(count(&store, &rows).await, made, "{case}");
        }
    }
}
