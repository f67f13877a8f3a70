//! HTTP: the `Idempotency-Key` header, for any tower service of [`http::Request`](::http::Request).
//!
//! A client puts a key of its own making on a request and the same key on each retry, as
//! [draft-ietf-httpapi-idempotency-key-header] has it. [`IdempotencyLayer`] sees to it that the handler runs once for it, and
//! that a retry gets the same answer: status, headers and body, byte for byte.
//!
//! ```
//! use lambda_http::{Body, Request, Response};
//! use lambda_idempotency::{Claim, Idempotency, http::IdempotencyLayer, store::MemoryStore};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! async fn charge(request: Request) -> Result<Response<Body>, lambda_http::Error> {
//!     // What the engine holds for this request, under the layer: a key for the payment provider comes from it.
//!     let claim = request.extensions().get::<Claim>().ok_or("charge needs the layer")?;
//!     let provider_key = claim.derive_key("provider");
//!     Ok(Response::builder().status(201).body(format!("charged as {provider_key}").into())?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
//! let api = ServiceBuilder::new()
//!     .layer(IdempotencyLayer::new(once).scope(|parts| {
//!         // Who the client is, from something that it can't choose: here, what a proxy in front has verified.
//!         Some(parts.headers.get("x-tenant-id")?.to_str().ok()?.to_owned())
//!     }))
//!     .service_fn(charge);
//! // In a function: lambda_http::run(api).await
//!
//! let request = || {
//!     ::http::Request::post("https://shop.example/charges")
//!         .header("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
//!         .header("x-tenant-id", "tenant-7")
//!         .body(Body::from(r#"{"amount": 1250}"#))
//! };
//! let first = api.clone().oneshot(request()?).await?;
//! let retry = api.oneshot(request()?).await?;
//! assert_eq!(retry.status(), 201);
//! assert_eq!(retry.headers()["idempotent-replayed"], "true");
//! # use http_body_util::BodyExt;
//! assert_eq!(retry.into_body().collect().await?.to_bytes(), first.into_body().collect().await?.to_bytes());
//! # Ok(()) }
//! ```
//!
//! It wraps the *handler*: a service that `lambda_http::run` or `run_concurrent` is given, an axum router, a closure through
//! [`service_fn`](tower::service_fn). It spawns nothing. Handlers of raw events, without `lambda_http`, are wrapped by
//! [`events::EventLayer`].
//!
//! # Which requests
//!
//! POST and PATCH need a key; other methods pass through untouched, without their answers being buffered
//! ([`methods`](IdempotencyLayer::methods)): a CORS preflight among them. [`route`](IdempotencyLayer::route) says for each route
//! whether a key is [required](Route::required), [optional](Route::optional) or [not looked at](Route::off), and how long its
//! outcomes are kept.
//!
//! The key is 1 to 255 printable ASCII characters, bare or in the double quotes that the draft asks for: `order-17` and
//! `"order-17"` are one key. [`strict`](IdempotencyLayer::strict) takes the quoted form only. A request without one is refused, or
//! run unprotected where the engine's [`MissingKey`](crate::MissingKey) policy says so.
//!
//! # Whose key
//!
//! **Set a [`scope`](IdempotencyLayer::scope).** Clients choose their keys, and nothing stops two of them from choosing the
//! same, by accident or by malice. Without a scope they meet in one record, and a client that sends another's request with
//! another's key is given the other's answer. The usual scopes are ready made: [`scope`].
//!
//! # The same request
//!
//! A key belongs to one request of one operation. The operation is method and route template where API Gateway, axum (feature
//! `axum`) or a declared route tells it, else method and path. The fingerprint covers method, path (with the stage, where there is
//! one), query and body; the order of query parameters doesn't count, nor does the layout of a body whose content type says JSON.
//! Headers count where [`fingerprint_headers`](IdempotencyLayer::fingerprint_headers) names them, and fields of a JSON body don't
//! where [`fingerprint_without`](IdempotencyLayer::fingerprint_without) does. The same key with anything else gets a
//! [mismatch](#mismatch).
//!
//! # What is kept
//!
//! Final answers, for 24 hours unless [`retention`](crate::Builder::retention) or the route says otherwise: 2xx, 3xx and those 4xx
//! that a retry would get again. 400, 401, 403, 408, 409, 421, 425, 429 and 5xx end the claim, so that a retry runs
//! ([`keep_server_errors`](IdempotencyLayer::keep_server_errors) stores 5xx too); so do an error and a panic of the handler, which
//! go on to the caller. A handler decides for one answer with a [`Verdict`](crate::Verdict) among the response's extensions.
//!
//! # What a replay looks like
//!
//! Status, headers and body of the original, with `Idempotent-Replayed: true`, and `Idempotency-Processed-At` with the HTTP date on
//! which it was made. Left out, of the replay and of the record: hop-by-hop headers; `Date`, because a replay is a message of
//! today; and `Set-Cookie`, because a session's cookie is a credential, which must neither lie in the table nor be handed out again
//! after it was withdrawn. [`headers_left_out`](IdempotencyLayer::headers_left_out) replaces the last two. Trailers are not kept.
//!
//! An answer that a duplicate may not get says so: `Idempotency-Status: unprotected` where no record stands behind it (the store
//! is down and fails open, the key was optional and missing, the kill switch is thrown), `unrecorded` where the outcome could not
//! be stored.
//!
//! # Large and streamed answers
//!
//! An answer larger than [`inline_limit`](crate::Builder::inline_limit) is kept compressed, beside its record if need be. Where the
//! store takes nothing so large (DynamoDB: 400 KB, compressed), it is sent, but not kept: a retry learns that it was
//! [done](#outcome-omitted). So is one that streams: `text/event-stream`, or more than
//! [`answer_limit`](IdempotencyLayer::answer_limit) bytes. It is passed on as it comes, and logged as `streamed`. The effect is
//! protected, the answer isn't: where it may run again instead, the handler says `Verdict::Release`.
//!
//! # Claim and deadline
//!
//! The handler finds the [`Claim`](crate::Claim) among the request's extensions. The claim lasts until the invocation's deadline, which
//! `lambda_http` puts there too; elsewhere for the engine's [`lease`](crate::Builder::lease), and where the deadline is
//! [earlier than the engine](crate::Idempotency::deadline).
//!
//! A handler with [steps](crate::Claim::step) returns their errors as its own: an interrupted one is then answered with
//! [409](#interrupted), a lost lease with [409](#lease-lost). An answer that the handler makes of such an error (in axum it must) is
//! the answer; give it a status of 500 or above, so that the claim is released.
//!
//! [draft-ietf-httpapi-idempotency-key-header]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
//!
#![doc = include_str!("http/problems.md")]

mod answer_body;
mod body;
mod capture;
mod config;
mod details;
pub mod events;
mod fingerprint;
mod header;
mod kept;
mod layer;
mod operation;
mod problem;
mod refusals;
mod response;
mod route;
pub mod scope;
mod service;
mod settings;
mod verdict;

pub use answer_body::ResponseBody;
pub use body::{ReadError, RequestBody};
pub use config::ConfigError;
pub use details::ProblemDetails;
pub use layer::IdempotencyLayer;
pub use operation::path;
pub use route::Route;
pub use service::IdempotencyService;

/// How many bytes a request body may have unless
/// [`IdempotencyLayer::body_limit`] says otherwise: 6 MiB, the limit that Lambda itself puts on a
/// synchronous payload.
pub const BODY_LIMIT: usize = 6 * 1_024 * 1_024;
