//! Runs an event through the HTTP layer, and converts the response back to the handler's type.

use std::fmt::{self, Display};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{BoxFuture, MapOk, TryFutureExt};
use http::header::HeaderName;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_http::{LambdaEvent, RequestExt};
use tower::{Layer, Service};

use super::body::EventBody;
use super::{HttpEvent, HttpEventResponse, Incoming};
use crate::engine::claim::Claim;
use crate::engine::error::Obstacle;
use crate::http::service::{OwnResponse, STATUS, read_own};
use crate::http::{IdempotencyLayer, IdempotencyService};

/// Wraps a service of [`Incoming`] events; what it makes is a service of `LambdaEvent`. The
/// [module page](super) shows one.
#[derive(Debug)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct EventLayer {
    layer: IdempotencyLayer,
}

clone_fields!([] EventLayer { layer });

impl EventLayer {
    /// Makes a layer with the settings of `layer`.
    pub fn new(layer: IdempotencyLayer) -> Self {
        Self { layer }
    }
}

impl<Svc> Layer<Svc> for EventLayer {
    type Service = EventService<Svc>;

    fn layer(&self, inner: Svc) -> Self::Service {
        EventService {
            inner: self.layer.layer(Handler(inner)),
        }
    }
}

/// Serves events with a service that [`EventLayer`] wraps.
pub struct EventService<Svc> {
    inner: IdempotencyService<Handler<Svc>>,
}

clone_fields!([Svc: Clone] EventService<Svc> { inner });

impl<Svc> fmt::Debug for EventService<Svc> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventService").finish_non_exhaustive()
    }
}

impl<Svc, E> Service<LambdaEvent<E>> for EventService<Svc>
where
    E: HttpEvent,
    Svc: Service<Incoming<E>, Response = E::Response> + Clone + Send + 'static,
    Svc::Error: Display + Send + 'static,
    Svc::Future: Send + 'static,
{
    type Response = E::Response;
    type Error = Svc::Error;
    type Future = BoxFuture<'static, Result<E::Response, Svc::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Svc::Error>> {
        Service::<Request<EventBody<E>>>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, event: LambdaEvent<E>) -> Self::Future {
        let LambdaEvent { payload, context } = event;
        let request = payload.head().with_lambda_context(context.clone());
        let body = EventBody::new(payload, context);
        let mut request = request.map(|()| body);
        let own = OwnResponse {
            read: own_response::<E::Response>,
        };
        request.extensions_mut().insert(own);
        let answer = self.inner.call(request);
        Box::pin(async { Ok(finish(answer.await?).await) })
    }
}

/// Holds a response that the handler has just made, which is sent as it is.
#[derive(Clone)]
struct Original<R>(R);

async fn finish<R, B>(response: Response<B>) -> R
where
    R: HttpEventResponse,
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
pub(super) struct Handler<Svc>(Svc);

impl<Svc, E> Service<Request<EventBody<E>>> for Handler<Svc>
where
    E: HttpEvent,
    Svc: Service<Incoming<E>, Response = E::Response>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Svc::Error;
    type Future = MapOk<Svc::Future, fn(E::Response) -> Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Svc::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<EventBody<E>>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let (payload, context) = body.into_parts();
        let event = Incoming {
            payload,
            context,
            claim: parts.extensions.get::<Claim>().cloned(),
        };
        self.0.call(event).map_ok(to_http)
    }
}

/// Takes the handler's own response to a condition that failed out of the obstacle.
fn own_response<R: HttpEventResponse>(
    obstacle: Obstacle,
) -> Result<Response<Full<Bytes>>, Obstacle> {
    read_own::<R>(obstacle).map(to_http)
}

/// Converts a response for the HTTP layer, and keeps it as the handler made it.
fn to_http<R: HttpEventResponse>(answer: R) -> Response<Full<Bytes>> {
    let mut response = answer.to_http().map(Full::new);
    response.extensions_mut().insert(Original(answer));
    response
}

#[cfg(test)]
mod tests;
