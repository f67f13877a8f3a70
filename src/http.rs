//! HTTP: the `Idempotency-Key` header, for any tower service of [`http::Request`](::http::Request).
//!
//! A client puts a key that it makes on a request and the same key on each retry, as
//! [draft-ietf-httpapi-idempotency-key-header] has it. [`IdempotencyLayer`] sees to it that the
//! handler runs once for it, and that a retry gets the same answer: status, headers and body, byte
//! for byte.
//!
//! ```
//! use lambda_http::{Body, Request, Response};
//! use lambda_idempotency::{Claim, Idempotency, http::IdempotencyLayer, store::MemoryStore};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! async fn charge(request: Request) -> Result<Response<Body>, lambda_http::Error> {
//!     // The layer's claim of this request: the key for the payment provider comes from it.
//!     let claim = request.extensions().get::<Claim>().ok_or("charge needs the layer")?;
//!     let provider_key = claim.derive_key("provider");
//!     Ok(Response::builder().status(201).body(format!("charged as {provider_key}").into())?)
//! }
//!
//! /// The client, as it was verified outside of the layer.
//! #[derive(Clone)]
//! struct Tenant(&'static str);
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
//! let api = ServiceBuilder::new()
//!     // Outside: a layer of your own that verifies the client, answers 401, or puts its `Tenant` into the extensions.
//!     .layer(IdempotencyLayer::scoped(once, |parts| {
//!         Some(parts.extensions.get::<Tenant>()?.0.to_owned())
//!     }))
//!     .service_fn(charge);
//! // In a function: lambda_http::run(api).await
//!
//! let request = || {
//!     ::http::Request::post("https://shop.example/charges")
//!         .header("idempotency-key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
//!         .extension(Tenant("tenant-7"))
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
//! It wraps the *handler*: a service that `lambda_http::run` or `run_concurrent` is given, an axum
//! router, a closure through [`service_fn`](tower::service_fn), or a handler of raw events, without
//! `lambda_http` (module `events`).
//!
//! Outside Lambda, where no invocation's deadline is known, and where a handler
//! [goes on](crate::AtDeadline::GoOn) after it, claim, handler and completion of a
//! request with a key run in their own task, so that a client that hangs up cuts nothing off:
//! its retry is given the answer. A server calls [`drain`](crate::Idempotency::drain) before it
//! ends; [`detached_limit`](crate::Settings::detached_limit) bounds the tasks. Where a deadline ends the
//! handler, nothing is spawned. `docs/recipes/servers.md` in the repository says how a server is put together.
//!
//! # Which features
//!
//! | your service | features |
//! |---|---|
//! | any tower service of `http::Request`, outside Lambda | `http` |
//! | an axum server, outside Lambda | `axum` |
//! | a function with `lambda_http`, or of raw events | `lambda-http` |
//! | an axum router in a function | `axum` and `lambda-http` |
//!
//! Only `lambda-http` links Lambda's crates, and only with it the layer knows the invocation's
//! deadline and API Gateway's routes.
//!
//! # Which requests
//!
//! POST and PATCH need a key; other methods pass through, without their answers being
//! buffered ([`methods`](Settings::methods)): a CORS preflight among them.
//! [`route`](IdempotencyLayer::route) says for each route whether a key is
//! [required](RoutePolicy::required), [optional](RoutePolicy::optional) or
//! [not looked at](RoutePolicy::off), and how long its outcomes are kept.
//!
//! The key is 1 to 255 printable ASCII characters, bare or in the double quotes that the draft asks
//! for: `order-17` and `"order-17"` are one key. [`strict`](Settings::strict) takes the
//! quoted form only. A request without one is refused, or run unprotected where the engine's
//! [`OnMissingKey`](crate::OnMissingKey) policy says so.
//!
//! A route may take its key from another place: from another [header](RoutePolicy::key_header), from the
//! JSON [body](RoutePolicy::key_from) (a webhook's `event.id`), from its [path](RoutePolicy::key_parameter),
//! or by a [closure](RoutePolicy::key).
//!
//! # Whose key
//!
//! **An API with several clients needs a [scope](IdempotencyLayer::scoped).** Clients choose their
//! keys, and nothing stops two of them from choosing the same, by accident or by malice. Without a
//! scope they meet in one record, and a client that sends another's request with another's key is
//! given the other's answer. The feature `lambda-http` has the usual scopes ready made, in
//! `http::scope`. An API with a single client says so: [`unscoped`](IdempotencyLayer::unscoped).
//!
//! **Authentication belongs outside of the layer.** A replay doesn't reach the handler, nor anything
//! else inside: an authentication layer there isn't asked, and whoever knows a key and its request
//! gets the answer, after their token was withdrawn as before. Outside, it refuses them first, and
//! puts the verified identity where the scope finds it: into the request's extensions. Behind API
//! Gateway, an authorizer does this.
//!
//! # The same request
//!
//! A key belongs to one request of one operation. The operation is method and route template where
//! API Gateway (feature `lambda-http`), axum (feature `axum`) or a declared route tells it, else
//! method and path. After a deployment that renames a parameter of the template, retries of earlier
//! requests run again. A declared route is compared with the [`path()`] inside of the API, without stage and base
//! path; in a nested axum router, also with what the nest has left of it. The fingerprint covers method,
//! path (with both), query and body; the order of query parameters doesn't count, nor does the layout of a body whose
//! content type says JSON. A `multipart/form-data` body of up to 1,000 parts is compared part by
//! part, so that its boundary, which clients make anew for each try, doesn't count. Of an
//! `application/x-www-form-urlencoded` body in UTF-8 the fields count, in their order, and not what
//! of them is escaped: `+` is `%20`. A form that is malformed is compared by its bytes, as any other
//! body is. A body with `Content-Encoding: gzip` or `deflate` counts as what is in it; one in another
//! coding, a damaged one, and one that opens to more than [`body_limit`](Settings::body_limit), or than 6 MiB, by its bytes. Headers count where
//! [`fingerprint_headers`](Settings::fingerprint_headers) names them, and fields of a JSON
//! body don't where [`fingerprint_without`](Settings::fingerprint_without) does. The same
//! key with anything else gets a [mismatch](#mismatch).
//!
//! # What is stored
//!
//! Final answers, for 24 hours unless [`retention`](crate::Builder::retention) or the route says
//! otherwise: 2xx, 3xx and those 4xx that a retry would get again. 400, 401, 403, 408, 409, 421,
//! 423, 424, 425, 429 and 5xx end the claim, so that a retry runs
//! ([`store_server_errors`](Settings::store_server_errors) stores 5xx too, for a time of
//! their own); so does an error of the handler, and a panic where [`OnCrash`](crate::OnCrash) lets a
//! retry run at once. Both go on to the caller. Behind a [saga](crate::Claim::saga) that was undone, such
//! an answer or error stores the saga's failure: a retry gets [`failed`](#failed). A handler decides for
//! one answer with a [`Verdict`](crate::Verdict) among the response's extensions. An answer of 400 or above
//! [writes](crate::Claim::write) nothing, unless it carries its own [`Verdict::Complete`](crate::Verdict::Complete).
//! `Cache-Control: no-store` changes none of this, unless [`respect_no_store`](Settings::respect_no_store)
//! asks for it.
//!
//! # What a replay looks like
//!
//! Status, headers and body of the original, with `Idempotent-Replayed: true`, and
//! `Idempotency-Processed-At` with the HTTP date on which it was made. Left out, of the replay and
//! of the record: hop-by-hop headers; `Date`, because a replay is a message of today; and
//! `Set-Cookie`, because a session's cookie is a credential, which must neither lie in the table
//! nor be handed out again after it was withdrawn.
//! [`unstored_headers`](Settings::unstored_headers) replaces the last two. Trailers are
//! stored and replayed as headers are. A gRPC answer is final where its `grpc-status` is 0, or can't be
//! read: in another coding than gzip, or over the limit, where a retry gets `outcome-omitted`.
//!
//! [`on_replay`](IdempotencyLayer::on_replay) is a hook that may change a replay: for a signed
//! address that has expired meanwhile.
//!
//! A retry that doesn't accept the answer's `Content-Encoding`, as the first request did, is
//! [refused](#coding-not-accepted). So a layer that compresses belongs outside of this one.
//!
//! An answer that a duplicate may not get says so: `Idempotency-Status: unprotected` where no
//! record protects it (the store is down and fails open, the key was optional and missing, the kill
//! switch is on, a key came to a method or route that isn't guarded), `unrecorded` where the outcome
//! could not be stored. A 409 or 500 of this layer that no retry changes says `final`.
//!
//! # Large and streamed answers
//!
//! An answer larger than [`inline_limit`](crate::Settings::inline_limit) is kept compressed, beside
//! its record if need be. Where the store takes nothing so large (DynamoDB: 400 KB, compressed), it
//! is sent, but not kept: a retry learns that it was [done](#outcome-omitted). So is one that
//! streams: `text/event-stream`, or more than [`response_limit`](Settings::response_limit)
//! bytes; where it is a final refusal, a retry gets its status alone. It is passed on as it comes, and
//! logged as `streamed`. Its request is recorded as done before
//! the body runs, so only effects before the handler returns are protected: a route that works in its
//! stream should be [`off`](RoutePolicy::off), with this work under
//! [`run_detached`](crate::Idempotency::run_detached). Where a retry may run, the handler says
//! `Verdict::Release`.
//!
//! # Claim and deadline
//!
//! The handler finds the [`Claim`](crate::Claim) among the request's extensions; in axum it is an
//! extractor, too. The claim lasts
//! until the invocation's deadline, which `lambda_http` puts there too (feature `lambda-http`);
//! elsewhere for the engine's [`lease`](crate::Builder::lease), and where the deadline is
//! [earlier than the engine](crate::Idempotency::deadline).
//!
//! A handler with [steps](crate::Claim::step) returns their errors as its own: an interrupted one
//! is then answered with [409](#interrupted), a lost lease with [409](#lease-lost). An answer that
//! the handler makes of such an error (in axum it must) is the answer; give it a status of 500 or
//! above, so that the claim is released.
//!
//! [draft-ietf-httpapi-idempotency-key-header]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
//!
#![doc = include_str!("http/problems.md")]

mod body;
#[cfg(feature = "lambda-http")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda-http")))]
pub mod events;
#[cfg(feature = "axum")]
mod extract;
mod fingerprint;
#[cfg(feature = "lambda-http")]
mod gateway;
mod handler_response;
mod identity;
mod layer;
mod operation;
mod place;
mod problem;
mod replay;
mod replay_hook;
mod route;
#[cfg(feature = "lambda-http")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda-http")))]
pub mod scope;
mod service;
mod settings;
mod stored_response;
mod verdict;

pub use body::{ReadError, RequestBody, ResponseBody};
pub use layer::IdempotencyLayer;
pub use operation::path;
pub use problem::ProblemDetails;
pub use service::IdempotencyService;
pub use settings::{RoutePolicy, Settings};
pub use stored_response::{response_of, stored_outcome};

/// Limits the bytes of a request body, unless [`Settings::body_limit`] is set: 6 MiB, as
/// Lambda itself limits a synchronous payload.
pub(crate) const BODY_LIMIT: usize = 6 * 1_024 * 1_024;
