//! The layer, and how it is configured.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderName;
use http::request::Parts;
use http::{Method, Response};
use tower::Layer;

use super::config::ConfigError;
use super::details::ProblemDetails;
use super::header::Form;
use super::route::Route;
use super::service::IdempotencyService;
use super::settings::Settings;
use crate::fingerprint::JsonPointer;
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
#[must_use = "a layer does nothing until it wraps a service"]
pub struct IdempotencyLayer<S> {
    once: Idempotency<S>,
    settings: Settings,
}

impl<S> Clone for IdempotencyLayer<S> {
    fn clone(&self) -> Self {
        Self {
            once: self.once.clone(),
            settings: self.settings.clone(),
        }
    }
}

impl<S> fmt::Debug for IdempotencyLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("header", &self.settings.header)
            .field("methods", &self.settings.methods)
            .field("routes", &self.settings.routes)
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

    /// How the requests of one route are treated: `POST /orders/{id}`, `ANY /orders`, or without a method. `{name}` stands for one
    /// segment, `{name+}` or `{*name}` at the end for one or more. Of several routes that match, the first counts.
    ///
    /// A route that names its method is guarded for it, whatever [`methods`](Self::methods) says. Its template names the
    /// [operation](Self::operation), where nothing else knows one.
    ///
    /// # Errors
    ///
    /// When the route can't be read, or its method is safe.
    pub fn route(mut self, route: &str, treatment: Route) -> Result<Self, ConfigError> {
        self.settings.routes.declare(route, treatment)?;
        Ok(self)
    }

    /// How the requests of all other routes are treated. Default: a key is needed, unless the engine's
    /// [`MissingKey`](crate::MissingKey) policy lets them run unprotected.
    ///
    /// [`Route::off`] leaves them to the service behind: a request to a path that doesn't exist then gets its 404, and not a 400
    /// for want of a key.
    pub fn other_routes(mut self, treatment: Route) -> Self {
        self.settings.routes.other = treatment;
        self
    }

    /// Who sends the request: keys of different tenants never meet. Default: nobody in particular.
    ///
    /// **Without a scope, any two clients that choose the same key share one record, and one that sends the other's
    /// request gets the other's answer.** Take the scope from something that the client can't choose freely: a claim of a verified
    /// token, an IAM identity, an API key; [`scope`](super::scope) has the usual ones ready made. Where the closure gives `None`,
    /// the request shares its keys with all others that have no scope, unless [`require_scope`](Self::require_scope) refuses it.
    pub fn scope<F>(mut self, scope: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.settings.scope = Some(Arc::new(scope));
        self
    }

    /// Refuses a request with a key whose scope is `None`, with a 403.
    pub fn require_scope(mut self) -> Self {
        self.settings.needs_scope = true;
        self
    }

    /// Which operation a request asks for. Default: method and route template (`POST /orders/{id}`) where API Gateway, axum (feature
    /// `axum`) or a declared [`route`](Self::route) tells it, else method and path.
    ///
    /// The fingerprint holds method, concrete path and query in any case, so one key on two paths of one operation is a mismatch,
    /// never a replay of the other's answer. An empty name is answered with a 500.
    pub fn operation<F>(mut self, operation: F) -> Self
    where
        F: Fn(&Parts) -> String + Send + Sync + 'static,
    {
        self.settings.operation = Some(Arc::new(operation));
        self
    }

    /// Request headers that belong to the fingerprint: a retry must bring the same values. Default: none, because proxies and
    /// clients change headers between retries.
    pub fn fingerprint_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        let names = names.into_iter();
        self.settings.sight.headers = names.collect();
        self.settings
            .sight
            .headers
            .sort_by(|a, b| a.as_str().cmp(b.as_str()));
        self.settings.sight.headers.dedup();
        self
    }

    /// Fields of a JSON body that may differ between retries, as JSON pointers
    /// ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)): `/sent_at`, `/meta/trace`. They don't count in the fingerprint.
    /// Default: none.
    ///
    /// A retry that differs there is answered with the outcome of the first request, so leave out nothing that changes what
    /// the request does.
    ///
    /// # Errors
    ///
    /// When one can't be read, or stands for the whole body.
    pub fn fingerprint_without<'a>(
        mut self,
        pointers: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ConfigError> {
        let parse = |text: &str| {
            JsonPointer::parse(text).ok_or_else(|| ConfigError::Pointer {
                pointer: text.to_owned(),
            })
        };
        self.settings.sight.left_out = pointers.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// How many bytes a request body may have; more gets a 413. Default: [`BODY_LIMIT`](super::BODY_LIMIT).
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.settings.body_limit = bytes;
        self
    }

    /// How many bytes of an answer are read before the rest is passed through as a [stream](super#large-and-streamed-answers).
    /// Default: [`BODY_LIMIT`](super::BODY_LIMIT).
    pub fn answer_limit(mut self, bytes: usize) -> Self {
        self.settings.answer_limit = bytes;
        self
    }

    /// Stores server errors (5xx) too, so that a retry gets the same one, as Stripe does. Default: they release the claim, and a
    /// retry runs.
    ///
    /// For handlers whose failures come after the effect. A handler decides for one answer with a
    /// [`Verdict`](crate::Verdict) among the response's extensions.
    pub fn keep_server_errors(mut self) -> Self {
        self.settings.keep_server_errors = true;
        self
    }

    /// Response headers that a replay doesn't have, besides hop-by-hop ones, which it never has. The list replaces the default:
    /// `Date` and `Set-Cookie`.
    pub fn headers_left_out(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.left_out = names.into_iter().collect();
        self
    }

    /// Where this API documents its keys: refusals link to it (`Link`, relation `describedby`), and their `type` is a fragment of it,
    /// `#key-missing` for example. Default: the sections of [this crate's page](super#problems), and no link.
    ///
    /// # Errors
    ///
    /// When the address is not absolute, or has a fragment.
    pub fn documentation(mut self, url: &str) -> Result<Self, ConfigError> {
        self.settings.refusals.documented_at(url)?;
        Ok(self)
    }

    /// Writes the refusals. Default: [`ProblemDetails::to_response`].
    pub fn problems<F>(mut self, closure: F) -> Self
    where
        F: Fn(&ProblemDetails) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.settings.refusals.written_by(Arc::new(closure));
        self
    }
}

impl<S, Svc> Layer<Svc> for IdempotencyLayer<S> {
    type Service = IdempotencyService<S, Svc>;

    fn layer(&self, inner: Svc) -> Self::Service {
        IdempotencyService::new(self.once.clone(), Arc::new(self.settings.clone()), inner)
    }
}
