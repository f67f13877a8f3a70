//! Extracts the claim of a request in axum handlers.

use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::Response;
use http::request::Parts;

use super::problem::{Problem, stated};
use crate::engine::claim::Claim;

const NO_CLAIM: &str = concat!(
    "the request has no claim: its route is outside of the idempotency layer, or the layer lets it pass through; extract `Option<Claim>` where that may be",
    see!("no-claim")
);

/// Logs that a request has no claim, and makes its response.
fn rejected() -> Response<Body> {
    tracing::error!(event = "no_claim", error = %NO_CLAIM, "idempotency");
    let problem = Problem::Misconfigured;
    let response = problem.details(None).to_response().map(Body::from);
    stated(response, problem.status())
}

/// Extracts the claim that [`http::IdempotencyLayer`](crate::http::IdempotencyLayer) holds for the
/// request. A request has none where its route is outside of the layer, or the layer lets it pass
/// through (a method that is not guarded, a route that is [off](crate::http::RoutePolicy::off)): it
/// is answered with the problem [`misconfigured`](crate::http#misconfigured), 500. A handler of
/// routes with and without claims extracts `Option<Claim>`.
///
/// ```
/// use axum::{Router, routing::post};
/// use lambda_idempotency::http::IdempotencyLayer;
/// use lambda_idempotency::{Claim, Idempotency, store::MemoryStore};
///
/// async fn charge(claim: Claim, body: String) -> String {
///     format!("{body}, charged as {}", claim.derive_key("provider"))
/// }
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
/// let router: Router = Router::new()
///     .route("/charges", post(charge))
///     .layer(IdempotencyLayer::unscoped(once));
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> FromRequestParts<S> for Claim {
    type Rejection = Response<Body>;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or_else(rejected)
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> OptionalFromRequestParts<S> for Claim {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}
