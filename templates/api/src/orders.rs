//! The orders, and the API that places each of them once.

use lambda_http::{Body, Error, Request, Response};
use lambda_idempotency::http::{IdempotencyLayer, ResponseBody, scope};
use lambda_idempotency::{Claim, Idempotency};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::{Service, ServiceBuilder};

/// The body of a request: `{"sku": "tea", "quantity": 2}`.
#[derive(Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) sku: String,
    pub(crate) quantity: u32,
}

/// Where orders are placed. `table.rs` has the function's, `tests.rs` a double.
pub(crate) trait Orders: Clone + Send + Sync + 'static {
    fn place(
        &self,
        order_id: String,
        order: Order,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Serves a request: runs `order` for the first request of an `Idempotency-Key`, and answers its retries with the stored response.
pub(crate) fn api<O: Orders>(
    once: Idempotency,
    orders: O,
) -> impl Service<Request, Response = Response<ResponseBody<Body>>, Error = Error, Future: Send + 'static>
{
    // Each client has keys of its own: the user or the role that signed the request. With a JWT authorizer in template.yaml, it is
    // `scope::jwt_claim("sub")`.
    let layer = IdempotencyLayer::scoped(once, scope::iam_identity())
        .on_error(|parts, error| tracing::error!(path = parts.uri.path(), %error, "no order"));
    ServiceBuilder::new()
        .layer(layer)
        .service_fn(move |request| order(orders.clone(), request))
}

/// Your work. An error is answered with 500, and a retry runs again.
async fn order<O: Orders>(orders: O, request: Request) -> Result<Response<Body>, Error> {
    let Ok(order) = serde_json::from_slice::<Order>(request.body().as_ref()) else {
        return answer(400, &json!({ "error": "the body is not an order" }));
    };
    let claim = request.extensions().get::<Claim>();
    // The same id in each attempt: an attempt that takes over from a process that died writes the same order.
    let order_id = claim.ok_or("no claim")?.derive_uuid("order");
    orders.place(order_id.clone(), order).await?;
    answer(201, &json!({ "order_id": order_id }))
}

fn answer(status: u16, body: &Value) -> Result<Response<Body>, Error> {
    let response = Response::builder().status(status);
    let response = response.header("content-type", "application/json");
    Ok(response.body(body.to_string().into())?)
}
