//! Configures the layer.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::header::HeaderName;
use http::request::Parts;
use tower::Layer;

use crate::engine::Replay;
use crate::engine::settings::HTTP_RETENTION;
use crate::http::problem::{self, ProblemDetails};
use crate::http::replay_hook::ReplayHook;
use crate::http::route::Route;
use crate::http::service::IdempotencyService;
use crate::http::settings::{RoutePolicy, Settings};
use crate::idempotency::Idempotency;
use crate::protocol::causes::HandlerError;
use crate::setup::BuildError;

/// Wraps a service so that a request which comes twice takes effect once. The [module page](super)
/// says how.
///
/// ```
/// use http::Method;
/// use lambda_idempotency::{Idempotency, http::IdempotencyLayer, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// /// The client: an authentication layer outside puts it into the request's extensions.
/// #[derive(Clone)]
/// struct Tenant(String);
/// let tenant = |parts: &http::request::Parts| Some(parts.extensions.get::<Tenant>()?.0.clone());
/// let layer = IdempotencyLayer::scoped(once, tenant)
///     .settings(|settings| settings.methods.push(Method::PUT));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a layer does nothing until it wraps a service"]
pub struct IdempotencyLayer {
    once: Idempotency,
    settings: Settings,
}

clone_fields!([] IdempotencyLayer { once, settings });

debug_fields!([] IdempotencyLayer { settings });

impl IdempotencyLayer {
    /// Makes a layer over an engine, for an API with several clients: keys of different scopes
    /// never meet. Outcomes are kept for 24 hours unless the engine has a
    /// retention of its own.
    ///
    /// The scope names the client. Take it from what was verified
    /// [outside of the layer](super#whose-key), never from a header that a client chooses: a claim
    /// of a verified token, an IAM identity, an extension that an authentication layer has set; the
    /// feature `lambda-http` has the usual ones ready made, in `http::scope`. A request with a key for which
    /// the closure gives `None`, or a blank text, is refused with a 403. Where some clients may share their
    /// keys, give the same text for all of them.
    pub fn scoped<F>(once: Idempotency, scope: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        let mut layer = Self::unscoped(once);
        layer.settings.scope = Some(Arc::new(scope));
        layer
    }

    /// Makes a layer over an engine, for an API with a single client.
    ///
    /// **Any two clients that choose the same key share one record, and one that sends the other's
    /// request gets the other's answer.** For several clients use [`scoped`](Self::scoped).
    pub fn unscoped(once: Idempotency) -> Self {
        Self {
            once: once.default_retention(HTTP_RETENTION),
            settings: Settings::default(),
        }
    }

    /// Sets the header that carries the key. Default: `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.header = name;
        self
    }

    /// Changes the [settings](Settings) that few APIs change.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        // A set: their order is that of the fingerprint.
        let headers = &mut self.settings.fingerprint_headers;
        headers.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        headers.dedup();
        self
    }

    /// Sets how the requests of one route are treated: `POST /orders/{id}`, or for each of the
    /// [`methods`](Settings::methods) `ANY /orders` or the path alone. Of several routes that match, the
    /// first counts.
    ///
    /// `{name}` stands for one segment, `{name+}` or `{*name}` at the end for one or more. A method that a
    /// route names needs no place among the `methods`. The route's template names the
    /// [operation](Self::operation), where nothing else knows one. In a nested axum router, a route that
    /// matches none of the whole path may match what is left of it, and names no operation then. A route
    /// whose [path has the key](RoutePolicy::key_parameter) always names the operation.
    ///
    /// Declare it before the API goes live: records under another template aren't found, and their retries
    /// run again.
    ///
    /// ```
    /// # use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
    /// # use lambda_idempotency::{Idempotency, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// let layer = IdempotencyLayer::unscoped(once).route("POST /orders/{id}", RoutePolicy::required())?;
    /// let error = layer.route("POST orders", RoutePolicy::off()).unwrap_err();
    /// assert!(error.to_string().contains("write it as `POST /orders/{id}`"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The text is no route, its method is safe, or it has no [parameter](RoutePolicy::key_parameter) of the
    /// name that is to be the key.
    pub fn route(mut self, route: &str, policy: RoutePolicy) -> Result<Self, BuildError> {
        let declared: Route = route.parse()?;
        let place = policy.place.as_ref();
        if place.is_some_and(|place| !place.fits(&declared.path)) {
            return Err(BuildError::Route {
                route: route.to_owned(),
                reason: "it has no parameter of the name that `key_parameter` was given",
            });
        }
        self.settings.routes.push((declared, policy));
        Ok(self)
    }

    /// Sets how the requests of all other routes are treated. Default: a key is needed, unless the
    /// engine's [`OnMissingKey`](crate::OnMissingKey) policy lets them run unprotected.
    ///
    /// [`RoutePolicy::off`] leaves them to the service behind: a request to a path that doesn't
    /// exist then gets its 404, and not a 400 for want of a key.
    pub fn other_routes(mut self, policy: RoutePolicy) -> Self {
        self.settings.other_routes = policy;
        self
    }

    /// Names the operation that a request asks for. Default: method and route template
    /// (`POST /orders/{id}`) where API Gateway, axum (feature `axum`) or a declared
    /// [`route`](Self::route) tells it, else method and path.
    ///
    /// The fingerprint holds method, concrete path and query in any case, so one key on two paths
    /// of one operation is a mismatch, never a replay of the other's answer. An empty name, or one
    /// with a control character, is answered with a 500; the default operation percent-encodes control characters.
    ///
    /// Set it before the API goes live: records under another operation aren't found, and their retries
    /// run again.
    pub fn operation<F>(mut self, operation: F) -> Self
    where
        F: Fn(&Parts) -> String + Send + Sync + 'static,
    {
        self.settings.operation = Some(Arc::new(operation));
        self
    }

    /// Sets the hook that changes a replayed response before the client gets it, for example to renew a
    /// signed address that has expired, or to add a header or a field that marks a replay. Default: a
    /// replay is the stored response.
    ///
    /// The hook gets the retry's head, with the extensions that the layers outside have set, the
    /// response as it is stored, and the attempt that the response comes from.
    /// It runs for replays only, never for a first answer, and the record stays as it is: the
    /// next replay begins with the same stored response. After an error or a panic of the hook, or
    /// where it doesn't answer 250 ms before the invocation ends, the client gets the stored
    /// response, and the event `hook_failed` is logged. Outside Lambda nothing but the hook's own
    /// timeouts limits its time. The hook must have no effect that may not be repeated. The body is as
    /// the handler made it, in its `Content-Encoding`.
    /// `Idempotent-Replayed` is set after it. Where it changes the body, a `Content-Length` goes, and so do
    /// all trailers but those of gRPC, which tell of the call.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use lambda_idempotency::http::IdempotencyLayer;
    /// # use lambda_idempotency::{Idempotency, store::MemoryStore};
    /// # async fn sign(url: &str) -> Result<String, std::io::Error> { Ok(url.to_owned()) }
    ///
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// let layer = IdempotencyLayer::unscoped(once).on_replay(|_, response, _| async {
    ///     let (parts, body) = response.into_parts();
    ///     let mut upload: serde_json::Value = serde_json::from_slice(&body)?;
    ///     upload["url"] = sign(upload["object"].as_str().unwrap_or_default()).await?.into();
    ///     let body = Bytes::from(upload.to_string());
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(http::Response::from_parts(parts, body))
    /// });
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn on_replay<F, Fut, E, M>(mut self, hook: F) -> Self
    where
        F: Fn(Parts, Response<Bytes>, Replay) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Bytes>, E>> + Send + 'static,
        E: HandlerError<M>,
    {
        let hook = move |(request, response, replay)| hook(request, response, replay);
        self.settings.on_replay = Some(ReplayHook::new(hook, self.once.logs_errors()));
        self
    }

    /// Sets the page where this API documents its keys: problem documents link to it (`Link`,
    /// relation `describedby`), and their `type` is a fragment of it, `#key-missing` for example.
    /// Default: the sections of [this crate's page](super#problems), and no link. An axum handler that
    /// extracts a missing [`Claim`](crate::Claim) answers with the default.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, http::IdempotencyLayer, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// let layer = IdempotencyLayer::unscoped(once).documentation("https://docs.shop.example/retries")?;
    /// assert!(layer.documentation("/retries").is_err());
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The text is no absolute address, or has a fragment.
    pub fn documentation(mut self, url: &str) -> Result<Self, BuildError> {
        self.settings.documentation = Some(problem::documentation(url)?);
        Ok(self)
    }

    /// Makes the responses to problems. Default: [`ProblemDetails::to_response`]. An axum handler that
    /// extracts a missing [`Claim`](crate::Claim) answers with the default.
    pub fn problems<F>(mut self, closure: F) -> Self
    where
        F: Fn(&ProblemDetails) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.settings.problems = Some(Arc::new(closure));
        self
    }

    /// Shows each error of the handler of a guarded request to this function, with the request's
    /// parts: to log it, to count it. Default: none.
    ///
    /// The function changes nothing: the claim is released, and the error goes on to the caller. In
    /// a server it may reach no other place, where the client has hung up. It is not called for a panic,
    /// for an answer with a status of 500, or for the error that a write's
    /// [condition](crate::store::transaction::Write::or_else) answers with. With it, the parts of each
    /// guarded request are cloned.
    ///
    /// An error's text may quote the request. [`log_errors`](crate::Settings::log_errors) logs it as
    /// it is.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, http::IdempotencyLayer, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("orders").build()?;
    /// let layer = IdempotencyLayer::unscoped(once)
    ///     .on_error(|parts, error| eprintln!("{} {}: {error}", parts.method, parts.uri.path()));
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fn on_error<F>(mut self, hook: F) -> Self
    where
        F: Fn(&Parts, &dyn fmt::Display) + Send + Sync + 'static,
    {
        self.settings.on_error = Some(Arc::new(hook));
        self
    }
}

impl<Svc> Layer<Svc> for IdempotencyLayer {
    type Service = IdempotencyService<Svc>;

    fn layer(&self, inner: Svc) -> Self::Service {
        IdempotencyService {
            once: self.once.clone(),
            settings: Arc::new(self.settings.clone()),
            inner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn the_headers_of_a_fingerprint_are_a_set() {
        let name = HeaderName::from_static;
        let layer = |names: &[&'static str]| {
            let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
            let names = names.iter().map(|one| name(one)).collect();
            IdempotencyLayer::unscoped(once.build().unwrap())
                .settings(|settings| settings.fingerprint_headers = names)
        };
        let twice = layer(&["x-region", "x-currency", "x-region"]);
        let expected = [name("x-currency"), name("x-region")];
        assert_eq!(twice.settings.fingerprint_headers, expected);
    }
}
