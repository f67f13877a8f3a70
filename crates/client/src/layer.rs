//! The policy as a layer of tower.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::time::{sleep, timeout};
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::policy::{Attempts, Policy, RequestError};

/// Gives each logical request one key, and sends it again as its [`Policy`] says.
///
/// Put it outside any other layer that repeats requests, which else gets a new key for each repetition.
///
/// It wraps a client: any tower service of `http::Request` whose body can be cloned. The answer is the
/// last attempt's, whatever its status, with a [`Delivery`](crate::Delivery) in its extensions.
///
/// ```
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use lambda_idempotency_client::{Delivery, KeyLayer, Policy};
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In a program: `hyper_util::client::legacy::Client`, say.
/// let server = service_fn(async |request: Request<String>| {
///     assert!(request.headers().contains_key("idempotency-key"));
///     Ok::<_, Infallible>(Response::new("paid"))
/// });
/// let client = KeyLayer::new(Policy::default()).layer(server);
/// let response = client.oneshot(Request::post("/payments").body("{}".to_owned())?).await?;
/// let delivery = response.extensions().get::<Delivery>().ok_or("no delivery")?;
/// assert_eq!((delivery.attempts, delivery.is_replayed), (1, false));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct KeyLayer {
    policy: Policy,
}

impl KeyLayer {
    /// Creates a layer with this policy.
    pub fn new(policy: Policy) -> Self {
        Self { policy }
    }
}

impl<S> Layer<S> for KeyLayer {
    type Service = KeyService<S>;

    fn layer(&self, inner: S) -> KeyService<S> {
        KeyService {
            policy: self.policy.clone(),
            inner,
        }
    }
}

/// A client whose requests have keys. [`KeyLayer`] makes it.
///
/// # Cancellation
///
/// A call that is dropped sends nothing more. A request that was sent may have had its effect.
#[derive(Clone, Debug)]
pub struct KeyService<S> {
    policy: Policy,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for KeyService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    B: Clone + Send + 'static,
    R: Send,
{
    type Response = Response<R>;
    type Error = RequestError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    /// Is always ready: each attempt waits for its own clone of the client.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        let extensions = &head.extensions;
        let mut attempts = Attempts::of(&self.policy, &head.method, &mut head.headers, extensions);
        let inner = self.inner.clone();
        Box::pin(async move {
            loop {
                let request = Request::from_parts(head.clone(), body.clone());
                let sent = timeout(attempts.begin(), inner.clone().oneshot(request)).await;
                let answer = match &sent {
                    Ok(Ok(response)) => Some((response.status(), response.headers())),
                    Ok(Err(_)) | Err(_) => None,
                };
                if let Some(pause) = attempts.again(answer) {
                    drop(sent);
                    sleep(pause).await;
                    continue;
                }
                return match sent {
                    Ok(Ok(mut response)) => {
                        let delivery = attempts.delivery(response.headers());
                        response.extensions_mut().insert(delivery);
                        Ok(response)
                    }
                    Ok(Err(error)) => Err(attempts.unanswered(Some(error.into()))),
                    Err(_) => Err(attempts.unanswered(None)),
                };
            }
        })
    }
}
