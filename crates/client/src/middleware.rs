//! The policy as a middleware of `reqwest-middleware`.

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next};
use tokio::time::{sleep, timeout};

use crate::policy::{Attempts, Policy};

/// Gives each logical request of a `reqwest` client one key, and sends it again as its [`Policy`] says.
///
/// Attach it before any other middleware that repeats requests: such a one gets a new key for each of its
/// repetitions where it stands outside.
///
/// A request whose body is a stream can't be sent twice: it gets a key, and one attempt. The answer has a
/// [`Delivery`](crate::Delivery) in its extensions. A request whose last attempt got no answer is a
/// [`RequestError`](crate::RequestError) within `reqwest_middleware::Error::Middleware`.
///
/// ```
/// use lambda_idempotency_client::{IdempotencyKey, KeyMiddleware, Policy};
/// use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
///
/// # fn client() -> ClientWithMiddleware {
/// let client = ClientBuilder::new(reqwest::Client::new()).with(KeyMiddleware::new(Policy::default())).build();
/// # client }
///
/// async fn place(client: &ClientWithMiddleware, order: u64) -> Result<bool, Box<dyn std::error::Error>> {
///     // The same after a restart.
///     let key = IdempotencyKey::new(format!("order-{order}"))?;
///     let response = client.post("https://example.com/orders").with_extension(key).send().await?;
///     Ok(response.status().is_success())
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct KeyMiddleware {
    policy: Policy,
}

impl KeyMiddleware {
    /// Creates a middleware with this policy.
    pub fn new(policy: Policy) -> Self {
        Self { policy }
    }
}

#[async_trait::async_trait]
impl Middleware for KeyMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        let method = request.method().clone();
        let mut attempts = Attempts::of(&self.policy, &method, request.headers_mut(), extensions);
        loop {
            let copy = request.try_clone();
            let sent = next.clone().run(request, extensions);
            let sent = timeout(attempts.begin(), sent).await;
            let answer = match &sent {
                Ok(Ok(response)) => Some((response.status(), response.headers())),
                Ok(Err(_)) | Err(_) => None,
            };
            if let (Some(pause), Some(copy)) = (attempts.again(answer), copy) {
                drop(sent);
                sleep(pause).await;
                request = copy;
                continue;
            }
            return match sent {
                Ok(Ok(mut response)) => {
                    let delivery = attempts.delivery(response.headers());
                    response.extensions_mut().insert(delivery);
                    Ok(response)
                }
                Ok(Err(error)) => Err(Error::middleware(attempts.unanswered(Some(error.into())))),
                Err(_) => Err(Error::middleware(attempts.unanswered(None))),
            };
        }
    }
}
