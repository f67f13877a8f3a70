//! Extracts the claim of a request in axum handlers.

use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::IntoResponse;
use http::Response;
use http::request::Parts;

use super::problem::Problem;
use crate::engine::claim::Claim;

/// Reports that a request has no [`Claim`]: its route is outside of an
/// [`IdempotencyLayer`](super::IdempotencyLayer), or the layer lets it pass through (a method that
/// is not guarded, a route that is [off](super::RoutePolicy::off)).
///
/// As a response it is the problem [`misconfigured`](super#misconfigured), 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request has no claim: its route is outside of the idempotency layer, or the layer lets it pass through; extract `Option<Claim>` where that may be{}", see!("no-claim")
)]
#[non_exhaustive]
pub struct ClaimRejection;

impl IntoResponse for ClaimRejection {
    fn into_response(self) -> Response<Body> {
        tracing::error!(event = "no_claim", error = %self, "idempotency");
        let problem = Problem::Misconfigured.details(None).to_response();
        problem.map(Body::from)
    }
}

/// Extracts the claim that [`http::IdempotencyLayer`](crate::http::IdempotencyLayer) holds for the
/// request. Without one the request is answered with
/// [`ClaimRejection`](crate::http::ClaimRejection); a handler of routes with and without claims
/// extracts `Option<Claim>`.
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
    type Rejection = ClaimRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ClaimRejection> {
        parts.extensions.get().cloned().ok_or(ClaimRejection)
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> OptionalFromRequestParts<S> for Claim {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}
