//! The layer, and how it is configured.

use std::fmt;
use std::sync::Arc;

use http::Method;
use http::header::HeaderName;
use http::request::Parts;
use tower::Layer;

use super::header::Form;
use super::service::IdempotencyService;
use super::settings::Settings;
use crate::idempotency::Idempotency;
use crate::settings::HTTP_RETENTION;

/// Wraps a service so that a request which comes twice takes effect once. The [module page](super) says how.
///
/// ```
/// use http::Method;
/// use lambda_idempotency::{Idempotency, http::IdempotencyLayer, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// let layer = IdempotencyLayer::new(once)
///     .scope(|parts| Some(parts.headers.get("x-tenant-id")?.to_str().ok()?.to_owned()))
///     .methods([Method::POST, Method::PATCH, Method::PUT])
///     .body_limit(64 * 1_024);
/// # Ok::<(), lambda_idempotency::KeyError>(())
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct IdempotencyLayer<S> {
    once: Idempotency<S>,
    settings: Settings,
}

impl<S> fmt::Debug for IdempotencyLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("header", &self.settings.header)
            .field("methods", &self.settings.methods)
            .field("body_limit", &self.settings.body_limit)
            .finish_non_exhaustive()
    }
}

impl<S: crate::store::Store> IdempotencyLayer<S> {
    /// A layer over an engine. Outcomes are kept for 24 hours ([`HTTP_RETENTION`]) unless the engine was told otherwise.
    pub fn new(once: Idempotency<S>) -> Self {
        Self {
            once: once.default_retention(HTTP_RETENTION),
            settings: Settings::default(),
        }
    }

    /// The header that carries the key. Default: `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.header = name;
        self
    }

    /// Takes the key only as the draft defines it: a structured-field string
    /// ([RFC 9651, 3.3.3](https://www.rfc-editor.org/rfc/rfc9651#section-3.3.3)), in double quotes. Default: the bare form too,
    /// because it is what most clients send.
    pub fn strict(mut self) -> Self {
        self.settings.form = Form::Quoted;
        self
    }

    /// The methods that need a key. Default: POST and PATCH. Safe methods (GET, HEAD, OPTIONS, TRACE) are never guarded, even if
    /// they are listed: a request of theirs has no effect to be repeated.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.settings.methods = methods.into_iter().collect();
        self
    }

    /// Who sends the request: keys of different tenants never meet. Default: nobody in particular.
    ///
    /// **Without a scope, any two clients that choose the same key share one record, and one that sends the other's
    /// request gets the other's answer.** Take the scope from something that the client can't choose freely: a claim of a verified
    /// token, an IAM identity, an API key. Where the closure gives `None`, the request shares its keys with all others
    /// that have no scope, so refuse such requests before this layer.
    pub fn scope<F>(mut self, scope: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.settings.scope = Some(Arc::new(scope));
        self
    }

    /// Which operation a request asks for. Default: method and route template where API Gateway tells it
    /// (`POST /orders/{id}`), else method and path.
    ///
    /// The fingerprint holds method, concrete path and query in any case, so one key on two paths of one operation is a mismatch,
    /// never a replay of the other's answer. An empty name is answered with a 500.
    pub fn operation<F>(mut self, operation: F) -> Self
    where
        F: Fn(&Parts) -> String + Send + Sync + 'static,
    {
        self.settings.operation = Arc::new(operation);
        self
    }

    /// How many bytes a request body may have; more gets a 413. Default: [`BODY_LIMIT`](super::BODY_LIMIT).
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body_limit = bytes;
        self
    }
}

impl<S, Svc> Layer<Svc> for IdempotencyLayer<S> {
    type Service = IdempotencyService<S, Svc>;

    fn layer(&self, inner: Svc) -> Self::Service {
        IdempotencyService::new(self.once.clone(), Arc::new(self.settings.clone()), inner)
    }
}
