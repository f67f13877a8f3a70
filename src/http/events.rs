//! Wraps handlers of events as Lambda delivers them, on `lambda_runtime`, without `lambda_http`.
//!
//! [`EventLayer`] does for a handler of [`ApiGatewayProxyRequest`], [`ApiGatewayV2httpRequest`],
//! [`AlbTargetGroupRequest`] or [`LambdaFunctionUrlRequest`] what
//! [`IdempotencyLayer`](super::IdempotencyLayer) does for a service of HTTP requests, with its
//! settings: the same event gets the same key and the same fingerprint either way. The handler is
//! given an [`Incoming`] event, which is a `LambdaEvent` with the [`Claim`] beside it.
//!
//! ```
//! use lambda_http::aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
//! use lambda_http::LambdaEvent;
//! use lambda_idempotency::http::IdempotencyLayer;
//! use lambda_idempotency::http::events::{EventLayer, Incoming};
//! use lambda_idempotency::{Idempotency, store::MemoryStore};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! type Error = Box<dyn std::error::Error + Send + Sync>;
//!
//! async fn order(event: Incoming<ApiGatewayV2httpRequest>) -> Result<ApiGatewayV2httpResponse, Error> {
//!     let mut response = ApiGatewayV2httpResponse::default();
//!     response.status_code = 201;
//!     response.body = event.payload.body.map(Into::into);
//!     Ok(response)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! let once = Idempotency::builder(MemoryStore::new()).namespace("orders").build()?;
//! let function = ServiceBuilder::new().layer(EventLayer::new(IdempotencyLayer::unscoped(once))).service_fn(order);
//! // In a function: lambda_runtime::run(function).await
//!
//! # let event = r#"{"version": "2.0", "routeKey": "POST /orders", "rawPath": "/orders", "rawQueryString": "",
//! #   "headers": {"idempotency-key": "cart-17"}, "body": "tea", "isBase64Encoded": false,
//! #   "requestContext": {"stage": "$default", "routeKey": "POST /orders", "http": {"method": "POST", "path": "/orders"}}}"#;
//! let event: ApiGatewayV2httpRequest = serde_json::from_str(event)?;
//! for is_replayed in [false, true] {
//!     let answer = function.clone().oneshot(LambdaEvent::new(event.clone(), Default::default())).await?;
//!     assert_eq!(answer.status_code, 201);
//!     assert_eq!(answer.headers.contains_key("idempotent-replayed"), is_replayed);
//! }
//! # Ok(()) }
//! ```
//!
//! Headers that a client repeated are all seen here, those of REST APIs among them. A first answer
//! goes out as the handler made it. A replay's body is text where it is UTF-8, base64 where it
//! isn't.
//!
//! [`ApiGatewayProxyRequest`]: lambda_http::aws_lambda_events::apigw::ApiGatewayProxyRequest
//! [`ApiGatewayV2httpRequest`]: lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest
//! [`AlbTargetGroupRequest`]: lambda_http::aws_lambda_events::alb::AlbTargetGroupRequest
//! [`LambdaFunctionUrlRequest`]: aws_lambda_events::lambda_function_urls::LambdaFunctionUrlRequest

use std::fmt;

use http::{HeaderMap, Response};
use lambda_http::Context;

use crate::engine::claim::Claim;

mod body;
mod request;
mod response;
mod service;

pub use service::{EventLayer, EventService};

/// Holds an event on its way to the handler. Its `Debug` shows the claim and the invocation: the
/// event is not for logs.
#[derive(Clone)]
#[non_exhaustive]
pub struct Incoming<E> {
    /// The event as Lambda delivered it.
    pub payload: E,
    /// The invocation, as the runtime describes it.
    pub context: Context,
    /// The claim on this request; `None` where the request passes through.
    pub claim: Option<Claim>,
}

impl<E> Incoming<E> {
    /// Makes an event without a claim, as a handler gets one that passes through: for tests of a
    /// handler.
    pub fn new(payload: E, context: Context) -> Self {
        Self {
            payload,
            context,
            claim: None,
        }
    }
}

impl<E> fmt::Debug for Incoming<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("request_id", &self.context.request_id)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

/// Reads an event of one of Lambda's HTTP sources; implemented for the four types on the
/// [module page](self).
pub trait HttpEvent: sealed::Request + Send + 'static {
    /// The type of the handler's response.
    type Response: HttpEventResponse;
}

/// Writes the response to an [`HttpEvent`].
pub trait HttpEventResponse: sealed::Answer + Clone + Send + Sync + 'static {}

/// Merges all values of each header. Where both maps name one, the map with many values counts: the
/// other has the last value alone.
fn merged(multi: &HeaderMap, single: &HeaderMap) -> HeaderMap {
    let mut headers = multi.clone();
    for (name, value) in single {
        if !multi.contains_key(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

mod sealed {
    use super::Response;
    use bytes::Bytes;

    /// Reads an event in terms of HTTP.
    pub trait Request {
        /// Makes the request without its body.
        fn head(&self) -> http::Request<()>;

        /// Gives the body as it was transported, and whether it is in base64.
        fn transported(&self) -> (Option<&String>, bool);

        /// Decodes the body as it was sent; `None` where its base64 is damaged.
        fn body(&self) -> Option<Bytes> {
            let (text, is_base64) = self.transported();
            let bytes = text.map(String::as_bytes).unwrap_or_default();
            if !is_base64 {
                return Some(Bytes::copy_from_slice(bytes));
            }
            data_encoding::BASE64.decode(bytes).ok().map(Into::into)
        }
    }

    /// Converts a response to HTTP, and back.
    pub trait Answer {
        fn to_http(&self) -> Response<Bytes>;
        fn of_http(response: Response<Bytes>) -> Self;
        /// Adds a header to a response of the handler's.
        fn add(&mut self, name: http::header::HeaderName, value: http::header::HeaderValue);
    }
}
