//! Event in, answer out, and the HTTP layer between.

use std::fmt::{self, Display};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::HeaderName;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_http::LambdaEvent;
use tower::{Layer, Service};

use super::body::EventBody;
use super::sealed::Answer;
use super::{HttpEvent, Incoming};
use crate::claim::Claim;
use crate::http::service::STATUS;
use crate::http::{IdempotencyLayer, IdempotencyService};
use crate::store::Store;

/// Wraps a service of [`Incoming`] events; what it makes is a service of `LambdaEvent`. The [module page](super) shows one.
#[derive(Debug)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct EventLayer<S> {
    layer: IdempotencyLayer<S>,
}

impl<S> Clone for EventLayer<S> {
    fn clone(&self) -> Self {
        Self::new(self.layer.clone())
    }
}

impl<S> EventLayer<S> {
    /// With the settings of this layer.
    pub fn new(layer: IdempotencyLayer<S>) -> Self {
        Self { layer }
    }
}

impl<S, Svc> Layer<Svc> for EventLayer<S> {
    type Service = EventService<S, Svc>;

    fn layer(&self, inner: Svc) -> Self::Service {
        EventService {
            inner: self.layer.layer(Handler(inner)),
        }
    }
}

/// A service that [`EventLayer`] wraps.
pub struct EventService<S, Svc> {
    inner: IdempotencyService<S, Handler<Svc>>,
}

impl<S, Svc: Clone> Clone for EventService<S, Svc> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<S, Svc> fmt::Debug for EventService<S, Svc> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventService").finish_non_exhaustive()
    }
}

impl<S, Svc, E> Service<LambdaEvent<E>> for EventService<S, Svc>
where
    S: Store,
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
        let request = payload.head_with(context.clone());
        let body = EventBody {
            event: payload,
            context,
        };
        let answer = self.inner.call(request.map(|()| body));
        Box::pin(async { Ok(finish(answer.await?).await) })
    }
}

/// An answer that the handler has just made, to go out as it is.
#[derive(Clone)]
struct Original<R>(R);

async fn finish<R, B>(response: Response<B>) -> R
where
    R: super::HttpAnswer,
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

/// The handler, as the HTTP layer sees it.
#[derive(Clone)]
pub(super) struct Handler<Svc>(Svc);

impl<Svc, E> Service<Request<EventBody<E>>> for Handler<Svc>
where
    E: HttpEvent,
    Svc: Service<Incoming<E>, Response = E::Response>,
    Svc::Future: Send + 'static,
{
    type Response = Response<Full<Bytes>>;
    type Error = Svc::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Svc::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Svc::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<EventBody<E>>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let answer = self.0.call(Incoming {
            payload: body.event,
            context: body.context,
            claim: parts.extensions.get::<Claim>().cloned(),
        });
        Box::pin(async {
            let answer = answer.await?;
            let mut response = answer.to_http().map(Full::new);
            response.extensions_mut().insert(Original(answer));
            Ok(response)
        })
    }
}
