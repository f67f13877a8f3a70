//! Handlers of events as they are, on `lambda_runtime`, without `lambda_http`.
//!
//! [`EventLayer`] does for a handler of [`ApiGatewayProxyRequest`], [`ApiGatewayV2httpRequest`], [`AlbTargetGroupRequest`] or
//! [`LambdaFunctionUrlRequest`] what [`IdempotencyLayer`](super::IdempotencyLayer) does for a service of HTTP requests, with its
//! settings: the same event gets the same key and the same fingerprint either way. The handler is given an
//! [`Incoming`] event, which is a `LambdaEvent` with the [`Claim`] beside it.
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
//! let function = ServiceBuilder::new().layer(EventLayer::new(IdempotencyLayer::new(once))).service_fn(order);
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
//! Headers that a client repeated are all seen here, those of REST APIs among them. A first answer goes out as the handler
//! made it. A replay's body is text where it is UTF-8, base64 where it isn't.
//!
//! [`ApiGatewayProxyRequest`]: lambda_http::aws_lambda_events::apigw::ApiGatewayProxyRequest
//! [`ApiGatewayV2httpRequest`]: lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest
//! [`AlbTargetGroupRequest`]: lambda_http::aws_lambda_events::alb::AlbTargetGroupRequest
//! [`LambdaFunctionUrlRequest`]: aws_lambda_events::lambda_function_urls::LambdaFunctionUrlRequest

use std::fmt;

use http::Response;
use lambda_http::Context;

use crate::claim::Claim;

mod body;
mod request;
mod response;
mod service;

pub use service::{EventLayer, EventService};

/// An event on its way to the handler. Its `Debug` shows the claim and the invocation: the event is not for logs.
#[derive(Clone)]
#[non_exhaustive]
pub struct Incoming<E> {
    /// The event as Lambda delivered it.
    pub payload: E,
    /// What the runtime says of the invocation.
    pub context: Context,
    /// What the engine holds for this request; `None` where the request passes through.
    pub claim: Option<Claim>,
}

impl<E> fmt::Debug for Incoming<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("request_id", &self.context.request_id)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

/// An event of one of Lambda's HTTP doors; implemented for the four types on the [module page](self).
pub trait HttpEvent: sealed::Request + Send + 'static {
    /// What a handler answers it with.
    type Response: HttpAnswer;
}

/// An answer to an [`HttpEvent`].
pub trait HttpAnswer: sealed::Answer + Clone + Send + Sync + 'static {}

mod sealed {
    use super::Response;
    use bytes::Bytes;
    use lambda_http::RequestExt;

    /// What there is of an event in terms of HTTP.
    pub trait Request {
        /// The request without its body.
        fn head(&self) -> http::Request<()>;

        /// The body as it was transported, and whether in base64.
        fn transported(&self) -> (&str, bool);

        /// The body as it was sent; `None` where its base64 is damaged.
        fn body(&self) -> Option<Bytes> {
            match self.transported() {
                (text, false) => Some(Bytes::copy_from_slice(text.as_bytes())),
                (text, true) => data_encoding::BASE64
                    .decode(text.as_bytes())
                    .ok()
                    .map(Into::into),
            }
        }

        /// The head with what the runtime says of the invocation.
        fn head_with(&self, context: lambda_http::Context) -> http::Request<()> {
            self.head().with_lambda_context(context)
        }
    }

    /// An answer in terms of HTTP, and back.
    pub trait Answer {
        fn to_http(&self) -> Response<Bytes>;
        fn of_http(response: Response<Bytes>) -> Self;
        /// Adds a header to an answer of the handler's.
        fn add(&mut self, name: http::header::HeaderName, value: http::header::HeaderValue);
    }
}
