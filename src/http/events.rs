//! Wraps handlers of events as Lambda delivers them, on `lambda_runtime`, without `lambda_http`.
//!
//! [`IdempotencyLayer`] wraps a handler of [`ApiGatewayProxyRequest`], [`ApiGatewayV2httpRequest`],
//! [`AlbTargetGroupRequest`] or [`LambdaFunctionUrlRequest`] as it does a service of HTTP requests:
//! the same event of a plain address gets the same key and the same fingerprint either way.
//! They differ where `lambda_http` rewrites a path, such as `/a/../b`, and where a query of version 2.0
//! has `|`, `^`, `{` or `}`, which are encoded here alone. The handler is given an [`Incoming`] event,
//! which is a `LambdaEvent` with the [`Claim`] beside it.
//!
//! ```
//! use lambda_http::aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
//! use lambda_http::LambdaEvent;
//! use lambda_idempotency::http::{IdempotencyLayer, events::Incoming};
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
//! let function = ServiceBuilder::new().layer(IdempotencyLayer::unscoped(once)).service_fn(order);
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
//! goes out as the handler made it. A replay's body is text where it is UTF-8 without a NUL, else base64.
//!
//! [`IdempotencyLayer`]: super::IdempotencyLayer
//! [`ApiGatewayProxyRequest`]: lambda_http::aws_lambda_events::apigw::ApiGatewayProxyRequest
//! [`ApiGatewayV2httpRequest`]: lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest
//! [`AlbTargetGroupRequest`]: lambda_http::aws_lambda_events::alb::AlbTargetGroupRequest
//! [`LambdaFunctionUrlRequest`]: aws_lambda_events::lambda_function_urls::LambdaFunctionUrlRequest

use std::fmt;
use std::fmt::Display;
use std::task::{self, Poll};

use bytes::Bytes;
use futures_util::future::{BoxFuture, MapOk, TryFutureExt};
use http::header::HeaderName;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_http::Context;
use lambda_http::{LambdaEvent, RequestExt as _};
use tower::Service;

use crate::engine::claim::Claim;
use crate::engine::error::Obstacle;
use crate::http::problem::STATUS;
use crate::http::service::{ReadOwn, read_own};
use crate::http::{IdempotencyService, ReadError, RequestBody};

mod conversion;

#[cfg(test)]
mod tests;

/// Holds an event on its way to the handler. Its `Debug` shows the claim and the invocation: the
/// event is not for logs.
#[derive(Clone)]
pub struct Incoming<E> {
    /// The event as Lambda delivered it.
    pub payload: E,
    /// The invocation, as the runtime describes it.
    pub context: Context,
    /// The claim on this request; `None` where the request passes through, or in a test that calls
    /// the handler without the layer.
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

/// Reads an event of one of Lambda's HTTP sources; implemented for the four types on the
/// [module page](self).
pub trait HttpEvent: sealed::Request + sealed::Body + Send + 'static {
    /// The type of the handler's response.
    type Response: sealed::Answer;
}

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
    }

    /// Reads the body of an event.
    pub trait Body {
        /// Returns the body as it was transported, and whether it is in base64.
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
    pub trait Answer: Clone + Send + Sync + 'static {
        fn to_http(&self) -> Response<Bytes>;
        fn of_http(response: Response<Bytes>) -> Self;
        /// Adds a header to a response of the handler's.
        fn add(&mut self, name: http::header::HeaderName, value: http::header::HeaderValue);
    }
}

/// Boxed: an event of API Gateway takes kilobytes, and is moved from one future to the next.
struct EventBody<E>(Box<(E, Context)>);

impl<E: HttpEvent> RequestBody for EventBody<E> {
    async fn read(self, limit: usize) -> (Result<Bytes, ReadError>, Self) {
        let read = match self.0.0.body() {
            Some(bytes) if bytes.len() > limit => Err(ReadError::TooLarge),
            Some(bytes) => Ok(bytes),
            // It is not the base64 that the event says it is.
            None => Err(ReadError::Failed),
        };
        (read, self)
    }
}

impl<Svc, E> Service<LambdaEvent<E>> for IdempotencyService<Svc>
where
    E: HttpEvent,
    Svc: Service<Incoming<E>, Response = E::Response> + Clone + Send + 'static,
    Svc::Error: Display + Send + 'static,
    Svc::Future: Send + 'static,
{
    type Response = E::Response;
    type Error = Svc::Error;
    type Future = BoxFuture<'static, Result<E::Response, Svc::Error>>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), Svc::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, event: LambdaEvent<E>) -> Self::Future {
        let LambdaEvent { payload, context } = event;
        let request = payload.head().with_lambda_context(context.clone());
        let body = EventBody(Box::new((payload, context)));
        let mut request = request.map(|()| body);
        let own: ReadOwn<Full<Bytes>> = own_response::<E::Response>;
        request.extensions_mut().insert(own);
        let mut service = IdempotencyService {
            once: self.once.clone(),
            settings: self.settings.clone(),
            inner: Handler(self.inner.clone()),
        };
        // The handler that is ready goes; what the call leaves stays here.
        std::mem::swap(&mut self.inner, &mut service.inner.0);
        let answer = service.call(request);
        self.inner = service.inner.0;
        Box::pin(async { Ok(finish(answer.await?).await) })
    }
}

/// Holds a response that the handler has just made, which is sent as it is.
#[derive(Clone)]
struct Original<R>(R);

async fn finish<R, B>(response: Response<B>) -> R
where
    R: sealed::Answer,
    B: http_body::Body<Data = Bytes, Error = std::convert::Infallible>,
{
    let (mut parts, body) = response.into_parts();
    let Some(Original(mut answer)) = parts.extensions.remove::<Original<R>>() else {
        let bytes = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(never) => match never {},
        };
        return R::of_http(Response::from_parts(parts, bytes));
    };
    let status: HeaderName = STATUS;
    if let Some(value) = parts.headers.remove(&status) {
        answer.add(status, value);
    }
    answer
}

/// Serves the HTTP layer with the handler of events.
#[derive(Clone)]
struct Handler<Svc>(Svc);

impl<Svc, E> Service<Request<EventBody<E>>> for Handler<Svc>
where
    E: HttpEvent,
    Svc: Service<Incoming<E>, Response = E::Response>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Svc::Error;
    type Future = MapOk<Svc::Future, fn(E::Response) -> Self::Response>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), Svc::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<EventBody<E>>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let (payload, context) = *body.0;
        let event = Incoming {
            payload,
            context,
            claim: parts.extensions.get::<Claim>().cloned(),
        };
        self.0.call(event).map_ok(to_http)
    }
}

/// Takes the handler's own response to a condition that failed out of the obstacle.
fn own_response<R: sealed::Answer>(obstacle: Obstacle) -> Result<Response<Full<Bytes>>, Obstacle> {
    read_own::<R>(obstacle).map(to_http)
}

/// Converts a response for the HTTP layer, and keeps it as the handler made it.
fn to_http<R: sealed::Answer>(answer: R) -> Response<Full<Bytes>> {
    let mut response = answer.to_http().map(Full::new);
    response.extensions_mut().insert(Original(answer));
    response
}
