//! The settings of a layer, what it does for one route, and what they say of a request.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderName;
use http::request::Parts;
use http::{Method, Response};

use crate::engine::settings::OnMissingKey;
use crate::http::operation::{label, matched_template, nest, nested_path, operation, path};
use crate::http::place::{self, IDEMPOTENCY_KEY, Place};
use crate::http::problem::{Problem, ProblemDetails, stated};
use crate::http::replay_hook::ReplayHook;
use crate::http::route::Route;
use crate::http::stored_response::NOT_STORED;
use crate::protocol::key::{IntoToken, Key};
use crate::protocol::pointer::Pointer;
use crate::protocol::selector::Selector;

pub(super) type Scope = dyn Fn(&Parts) -> Option<String> + Send + Sync;
pub(super) type Operation = dyn Fn(&Parts) -> String + Send + Sync;
pub(super) type OnError = dyn Fn(&Parts, &dyn Display) + Send + Sync;
pub(super) type Problems = dyn Fn(&ProblemDetails) -> Response<Bytes> + Send + Sync;

/// The settings of a layer that few APIs change, with their defaults: those that
/// [`IdempotencyLayer::settings`](super::IdempotencyLayer::settings) gives to its closure. The layer has
/// methods for the others.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::{Idempotency, http::IdempotencyLayer, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// let layer = IdempotencyLayer::unscoped(once).settings(|settings| {
///     settings.methods.push(http::Method::PUT);
///     settings.body_limit = 64 * 1_024;
///     settings.store_server_errors = Some(Duration::from_secs(300));
/// });
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Takes the key only as the draft defines it: a structured-field string
    /// ([RFC 9651, 3.3.3](https://www.rfc-editor.org/rfc/rfc9651#section-3.3.3)), in double quotes.
    /// Default: off, and the bare form is taken, too, because it is what most clients send.
    pub strict: bool,
    /// The methods that need a key. Default: POST and PATCH. Safe methods (GET, HEAD, OPTIONS,
    /// TRACE) are never guarded, even if they are listed: a request of theirs has no effect to be
    /// repeated.
    pub methods: Vec<Method>,
    /// The largest request body, in bytes; more gets a 413. A compressed body that opens to more, or
    /// to more than 6 MiB, is compared by its bytes. Default: 6 MiB. Where the engine only
    /// [observes](crate::Builder::observe), a longer body is passed through uncompared.
    pub body_limit: usize,
    /// The number of bytes of a response that are read before the rest is passed through as a
    /// [stream](super#large-and-streamed-answers). Default: 6 MiB.
    ///
    /// Lambda takes 6,291,556 bytes of a buffered function, a load balancer 1 MB, and they count the JSON
    /// of the whole response, with its body in base64 or escaped. Set about 4 MiB there, or 700 kB, so
    /// that no answer is kept which can't be sent.
    pub response_limit: usize,
    /// Stores server errors (5xx) too, so that a retry gets the same one, as Stripe does, and keeps
    /// them for this long, whatever the route's [`retention`](RoutePolicy::retention) says. Default:
    /// `None`: they release the claim, and a retry runs.
    ///
    /// For handlers whose failures come after the effect. Some minutes keep a client's burst of
    /// retries away, and let the retry after that run; the retention of other answers, where the
    /// effect must not be repeated. In the [claimless form](crate::Idempotency::claimless) they are
    /// kept for an hour at least. A handler decides for one answer with a
    /// [`Verdict`](crate::Verdict) among the response's extensions; a server error that it declares
    /// complete is kept for this long, too. An answer of 400 or above [writes](crate::Claim::write)
    /// nothing, unless it carries its own [`Verdict::Complete`](crate::Verdict::Complete). A server error
    /// behind a [step](crate::Claim::step), or one that writes, is kept as long as other answers, since a
    /// retry behind its record would fire the step, or write, again. One behind an
    /// [interrupted](crate::StepError::Interrupted) step releases the claim: an operator settles the step.
    /// The 500 for an answer that [broke off](super#response-broken) releases the claim, unless the
    /// handler set a verdict.
    pub store_server_errors: Option<Duration>,
    /// Keeps no answer that says `Cache-Control: no-store`. Default: off, and it is kept as any
    /// other, since the directive speaks to caches, and a record answers nothing but a retry of its
    /// own request.
    ///
    /// The effect is protected all the same: a retry doesn't run, and learns with a
    /// [409](super#outcome-omitted) that it was done. Of a final refusal (4xx, 5xx) it gets the status,
    /// without headers and body. For APIs whose answers hold credentials that must not lie in the table;
    /// many frameworks put the directive on every answer.
    pub respect_no_store: bool,
    /// The response headers that are not stored, so that a replay doesn't have them, besides
    /// hop-by-hop ones, which are never stored. Default: `Date` and `Set-Cookie`.
    pub unstored_headers: Vec<HeaderName>,
    /// The request headers that count in the fingerprint: a retry must have the same values.
    /// Default: none, because proxies and clients change headers between retries. Of a repeated
    /// header the last value alone counts where `lambda_http` or a load balancer
    /// [drops the others](super#key-repeated).
    ///
    /// Set it before the API goes live: a record that was written without it is a mismatch for a retry
    /// of the same request.
    pub fingerprint_headers: Vec<HeaderName>,
    /// The fields of a JSON body that are left out of the fingerprint, such as `/sent_at` and
    /// `/meta/trace`: they may differ between retries; a pointer to the whole body changes nothing.
    /// Default: none.
    ///
    /// A retry that differs there is answered with the outcome of the first request, so leave out
    /// nothing that changes what the request does.
    ///
    /// Set it before the API goes live: a record that was written without it is a mismatch for a retry
    /// of the same request.
    ///
    /// ```
    /// # use lambda_idempotency::{Idempotency, http::IdempotencyLayer, store::MemoryStore};
    /// # let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// let left_out = vec!["/sent_at".parse()?, "/meta/trace".parse()?];
    /// let layer = IdempotencyLayer::unscoped(once)
    ///     .settings(|settings| settings.fingerprint_without = left_out);
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    pub fingerprint_without: Vec<Pointer>,
    // The layer's methods set the others.
    pub(super) header: HeaderName,
    pub(super) routes: Vec<(Route, RoutePolicy)>,
    pub(super) other_routes: RoutePolicy,
    pub(super) scope: Option<Arc<Scope>>,
    pub(super) operation: Option<Arc<Operation>>,
    pub(super) on_replay: Option<ReplayHook>,
    pub(super) documentation: Option<String>,
    pub(super) problems: Option<Arc<Problems>>,
    pub(super) on_error: Option<Arc<OnError>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            strict: false,
            methods: vec![Method::POST, Method::PATCH],
            body_limit: super::BODY_LIMIT,
            response_limit: super::BODY_LIMIT,
            store_server_errors: None,
            respect_no_store: false,
            unstored_headers: NOT_STORED.to_vec(),
            fingerprint_headers: Vec::new(),
            fingerprint_without: Vec::new(),
            header: IDEMPOTENCY_KEY,
            routes: Vec::new(),
            other_routes: RoutePolicy::UNDECLARED,
            scope: None,
            operation: None,
            on_replay: None,
            documentation: None,
            problems: None,
            on_error: None,
        }
    }
}

debug_fields!([] Settings { header, strict, methods, routes, body_limit });

/// Holds the route of a request that the layer guards.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GuardedRoute {
    /// The place of the declared route among the layer's; `None` where none matches.
    declared: Option<usize>,
    /// The declared route's path has the key, and is known only inside of a nested router.
    is_nested: bool,
    /// The template of one operation, where the gateway, axum or a declared route has one; the path of
    /// the declared route where the path has the key, behind what a nested router has taken off.
    pub(super) template: Option<String>,
}

impl Settings {
    /// Finds the route of a request; `None` where the request passes through. Safe methods have no
    /// effect to be repeated, whatever the settings say.
    pub(super) fn guarded_route(&self, parts: &Parts) -> Option<GuardedRoute> {
        if parts.method.is_safe() {
            return None;
        }
        let template = matched_template(parts);
        let method = &parts.method;
        let is_listed = self.methods.contains(method);
        let find = |template: Option<&str>, path: &str| {
            self.routes.iter().position(|(route, _)| {
                (is_listed || route.method.is_some()) && route.matches(method, template, path)
            })
        };
        let whole = find(template, path(parts));
        let nested = nested_path(parts).filter(|_| whole.is_none());
        let nested = nested.and_then(|path| find(None, path));
        let declared = whole.or(nested);
        let route = |at: Option<usize>| self.routes.get(at?);
        // The token is made of the path's parameters, and the path itself would show it. A template of the
        // whole path has those of the nest, too.
        let in_path = route(declared).filter(|(_, policy)| {
            let place = policy.place.as_ref();
            let is_known = |place: &Place| nested.and(template).is_some_and(|all| place.fits(all));
            place.is_some_and(|place| matches!(place, Place::PathParameter(_)) && !is_known(place))
        });
        let before = nested.map(|_| nest(parts)).unwrap_or_default();
        // Two nested routers may have the same route, so that it names no operation.
        let named = || template.or_else(|| route(whole)?.0.template());
        let guarded = GuardedRoute {
            declared,
            is_nested: nested.and(in_path).is_some(),
            template: in_path
                .map(|(route, _)| format!("{before}{}", route.path))
                .or_else(|| named().map(str::to_owned)),
        };
        let is_guarded = is_listed || guarded.declared.is_some();
        (is_guarded && !self.policy(&guarded).is_off).then_some(guarded)
    }

    fn declared(&self, route: &GuardedRoute) -> Option<&(Route, RoutePolicy)> {
        self.routes.get(route.declared?)
    }

    /// Returns the policy of a route.
    pub(super) fn policy(&self, route: &GuardedRoute) -> &RoutePolicy {
        let declared = self.declared(route);
        declared.map_or(&self.other_routes, |(_, policy)| policy)
    }

    /// Makes the key that the request names; `None` where it names none. The body is empty where the
    /// route's key is not in it.
    pub(super) fn key(
        &self,
        parts: &Parts,
        route: &GuardedRoute,
        body: &[u8],
    ) -> Result<Option<Key>, Problem> {
        let template = route.template.as_deref();
        let inside = self.declared(route).filter(|_| route.is_nested);
        let inside = inside.map(|(route, _)| route.path.as_str());
        let token = match &self.policy(route).place {
            None => place::token(&parts.headers, &self.header, self.strict)?,
            Some(place) => {
                let nested = inside.map(|_| parts.uri.path());
                place.token(self.strict, parts, inside.or(template), nested, body)?
            }
        };
        let Some(token) = token else {
            return Ok(None);
        };
        let key = if let Some(closure) = &self.operation {
            Key::new(closure(parts), token)
        } else {
            let label = label(parts, template, inside);
            Key::new(operation(parts, template), token).labelled(label)
        };
        let Some(scope) = &self.scope else {
            return Ok(Some(key));
        };
        let tenant = scope(parts).ok_or(Problem::ScopeMissing)?;
        Ok(Some(key.scope(tenant)))
    }

    /// Makes the response to a request of a route that is refused. For a missing key, the detail
    /// names the place where it was looked for.
    pub(super) fn refusal(&self, problem: Problem, route: &GuardedRoute) -> Response<Bytes> {
        let mut details = self.details(problem);
        if problem == Problem::KeyMissing {
            let place = match &self.policy(route).place {
                Some(place) => place.to_string(),
                None => Place::Header(self.header.clone()).to_string(),
            };
            details.detail = format!("{} This API takes it from {place}.", details.detail).into();
        }
        self.respond(problem, &details)
    }

    /// Makes the response to a problem: the API's own, or a problem document.
    pub(super) fn problem_response(&self, problem: Problem) -> Response<Bytes> {
        self.respond(problem, &self.details(problem))
    }

    fn details(&self, problem: Problem) -> ProblemDetails {
        problem.details(self.documentation.as_deref())
    }

    fn respond(&self, problem: Problem, details: &ProblemDetails) -> Response<Bytes> {
        let response = match &self.problems {
            Some(closure) => closure(details),
            None => details.to_response(),
        };
        stated(response, problem.status())
    }
}

/// Says how the requests of one route are treated: whether they need a key, where it is, and how
/// long their outcomes are kept. [`IdempotencyLayer::route`](super::IdempotencyLayer::route) takes it.
///
/// ```
/// use std::time::Duration;
/// use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
/// use lambda_idempotency::{Idempotency, store::MemoryStore};
///
/// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
/// let month = Duration::from_secs(30 * 86_400);
/// let layer = IdempotencyLayer::unscoped(once)
///     .route("POST /payments", RoutePolicy::required().retention(month))?
///     .route("PUT /carts/{cart}", RoutePolicy::optional())?
///     .other_routes(RoutePolicy::off());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a policy does nothing until a layer is given it"]
pub struct RoutePolicy {
    pub(super) is_off: bool,
    /// The policy for a missing key, where it differs from the engine's.
    pub(super) missing_key: Option<OnMissingKey>,
    /// The place of the key, where it is not the layer's header.
    pub(super) place: Option<Place>,
    pub(super) retention: Option<Duration>,
}

impl RoutePolicy {
    /// Treats the requests of routes that have no their own policy.
    pub(super) const UNDECLARED: Self = Self::new(None);

    /// Refuses a request without a key, whatever the engine's [`OnMissingKey`] policy says.
    pub const fn required() -> Self {
        Self::new(Some(OnMissingKey::Refuse))
    }

    /// Runs a request without a key unprotected, and its answer says so; protects one with a key.
    pub const fn optional() -> Self {
        Self::new(Some(OnMissingKey::RunUnprotected))
    }

    /// Lets requests pass through, with a key or without; their answers aren't buffered. The answer
    /// to a key in the layer's header says `Idempotency-Status: unprotected`.
    pub const fn off() -> Self {
        let mut policy = Self::UNDECLARED;
        policy.is_off = true;
        policy
    }

    /// Takes the key from the JSON body, where a JSON pointer or a JMESPath expression finds it: for
    /// requests whose identity is in them already, such as the events of a webhook. This method,
    /// [`key_header`](Self::key_header), [`key_parameter`](Self::key_parameter) and [`key`](Self::key)
    /// replace the layer's [header](super::IdempotencyLayer::header) and each other: the last call counts.
    ///
    /// A body is read up to [`body_limit`](Settings::body_limit), whatever its content type, and out of
    /// its [coding](super#the-same-request). All of it is compared, whichever part of it is the key.
    /// Without a key the request gets [`key-missing`](super#key-missing), without JSON
    /// [`body-not-json`](super#body-not-json), unless the key is optional.
    ///
    /// ```
    /// use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
    /// use lambda_idempotency::{Idempotency, Selector, store::MemoryStore};
    ///
    /// let once = Idempotency::builder(MemoryStore::new()).namespace("shop").build()?;
    /// let webhook = RoutePolicy::required().key_from(Selector::pointer("/event/id")?);
    /// let order = RoutePolicy::required().key_parameter("id");
    /// let layer = IdempotencyLayer::unscoped(once)
    ///     .route("POST /webhooks/payments", webhook)?
    ///     .route("PUT /orders/{id}", order)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key_from(self, selector: Selector) -> Self {
        self.key_at(Place::Json(selector))
    }

    /// Takes the key from another header, which is read as the layer's own is: bare, or in double quotes.
    pub fn key_header(self, name: HeaderName) -> Self {
        self.key_at(Place::Header(name))
    }

    /// Takes the key from a parameter of the route's template: `id` of `PUT /orders/{id}`,
    /// percent-decoded. For a PUT that creates what its path names. Where the template has several
    /// parameters, the key is made of all of them, as [`Key::of`] makes one of a list:
    /// `["1", "7"]` of `PUT /carts/{cart}/items/{item}`.
    ///
    /// The declared route is the default [operation](super::IdempotencyLayer::operation), so that neither
    /// record nor log has the parameters' values. In a nested axum router the template of the whole path is,
    /// and the key is made of its parameters, too; where axum tells none that has the parameter, the values
    /// in the nest's part of the path are in the operation.
    ///
    /// The parameter is one of the declared route's; with
    /// [`other_routes`](super::IdempotencyLayer::other_routes), one of the template that API
    /// Gateway or axum matched, where a request whose template doesn't have it gets
    /// [`misconfigured`](super#misconfigured).
    pub fn key_parameter(self, name: impl Into<String>) -> Self {
        self.key_at(Place::PathParameter(name.into()))
    }

    /// Takes the key from what a closure makes of the request and its body, read as
    /// [`key_from`](Self::key_from) reads it: any [text](IntoToken), or an `Option` of it. An empty text
    /// counts as none.
    ///
    /// The key must be the same on each retry, and another for another request.
    ///
    /// ```
    /// use lambda_idempotency::http::RoutePolicy;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Webhook {
    ///     account: String,
    ///     id: u64,
    /// }
    ///
    /// let policy = RoutePolicy::required().key(|_, body| {
    ///     let webhook: Webhook = serde_json::from_slice(body).ok()?;
    ///     Some(format!("{}/{}", webhook.account, webhook.id))
    /// });
    /// ```
    pub fn key<V: IntoToken>(
        self,
        key: impl Fn(&Parts, &[u8]) -> V + Send + Sync + 'static,
    ) -> Self {
        let key = move |parts: &Parts, body: &[u8]| key(parts, body).into_token();
        self.key_at(Place::Closure(Arc::new(key)))
    }

    fn key_at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Sets how long this route's outcomes are kept, whatever the engine's
    /// [`retention`](crate::Builder::retention) says. One under a second is one of a second. Server
    /// errors have [their own retention](Settings::store_server_errors).
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    const fn new(missing_key: Option<OnMissingKey>) -> Self {
        Self {
            is_off: false,
            missing_key,
            place: None,
            retention: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_bodies_are_as_large_as_lambda_takes_them_and_server_errors_are_not_stored() {
        let settings = Settings::default();
        let lambdas_own = 6 * 1_024 * 1_024;
        assert_eq!(
            (settings.body_limit, settings.response_limit),
            (lambdas_own, lambdas_own)
        );
        assert!(settings.store_server_errors.is_none());
    }

    #[test]
    fn a_route_guards_the_method_that_it_names_and_else_the_methods_of_the_layer() {
        let guards = |route: &str, method: Method| {
            let settings = Settings {
                routes: vec![(route.parse().unwrap(), RoutePolicy::required())],
                ..Settings::default()
            };
            let mut request = http::Request::new(()).into_parts().0;
            request.method = method;
            request.uri = "/orders".parse().unwrap();
            settings.guarded_route(&request).is_some()
        };
        for (route, method, expected) in [
            ("PUT /orders", Method::PUT, true),
            ("PUT /orders", Method::DELETE, false),
            ("ANY /orders", Method::PUT, false),
            ("ANY /orders", Method::POST, true),
            ("ANY /orders", Method::GET, false),
            ("/carts", Method::POST, true),
            ("/carts", Method::PUT, false),
        ] {
            assert_eq!(guards(route, method.clone()), expected, "{route}: {method}");
        }
    }

    #[test]
    fn a_route_without_a_method_hides_none_that_names_another_method() {
        let request = http::Request::put("/orders/7").body(()).unwrap();
        let parts = request.into_parts().0;
        for other in [RoutePolicy::required(), RoutePolicy::off()] {
            let mut routes = vec![
                ("/orders/{id}".parse().unwrap(), other),
                ("PUT /orders/{id}".parse().unwrap(), RoutePolicy::required()),
            ];
            for _ in 0..2 {
                let settings = Settings {
                    routes: routes.clone(),
                    ..Settings::default()
                };
                assert!(settings.guarded_route(&parts).is_some(), "{routes:?}");
                routes.reverse();
            }
        }
    }

    #[test]
    fn the_first_of_two_that_match_counts() {
        let declared = [
            ("POST /orders/new", RoutePolicy::optional()),
            ("POST /orders/{id}", RoutePolicy::required()),
        ];
        let declared = declared.map(|(route, policy)| (route.parse().unwrap(), policy));
        let settings = Settings {
            routes: declared.into(),
            other_routes: RoutePolicy::off(),
            ..Settings::default()
        };
        let found = |uri: &str| {
            let request = http::Request::post(uri).body(()).unwrap();
            let route = settings.guarded_route(&request.into_parts().0);
            route.map(|route| (settings.policy(&route).missing_key, route.template.unwrap()))
        };
        let expected = |policy, template: &str| Some((Some(policy), template.to_owned()));
        assert_eq!(
            found("/orders/new"),
            expected(OnMissingKey::RunUnprotected, "/orders/new")
        );
        assert_eq!(
            found("/orders/17"),
            expected(OnMissingKey::Refuse, "/orders/{id}")
        );
        assert_eq!(found("/carts"), None);
    }

    #[test]
    fn a_nest_without_a_template_is_in_the_operation_and_not_in_its_label() {
        let declared = "PUT /orders/{id}".parse().unwrap();
        let policy = RoutePolicy::required().key_parameter("id");
        let settings = Settings {
            routes: vec![(declared, policy)],
            ..Settings::default()
        };
        for (whole, operation) in [
            ("/tenants/7/orders/9", "PUT /tenants/7/orders/{id}"),
            // A layer inside has changed the path.
            ("/tenants/7/carts/9", "PUT /tenants/7/carts/9/orders/{id}"),
        ] {
            let mut request = http::Request::put("/orders/9").body(()).unwrap();
            let original = axum::extract::OriginalUri(whole.parse().unwrap());
            request.extensions_mut().insert(original);
            let parts = request.into_parts().0;
            let route = settings.guarded_route(&parts).unwrap();
            let key = settings.key(&parts, &route, b"").unwrap().unwrap();
            let expected = Key::new(operation, "9");
            let expected = expected.labelled(Some("PUT /orders/{id}".to_owned()));
            assert!(key == expected, "{key:?}");
        }
    }

    #[test]
    fn a_scope_names_somebody() {
        let request = http::Request::post("/orders")
            .header("idempotency-key", "7")
            .body(());
        let parts = request.unwrap().into_parts().0;
        let key = |scope: Option<&'static str>| {
            let settings = Settings {
                scope: Some(Arc::new(move |_| scope.map(str::to_owned))),
                ..Settings::default()
            };
            let route = settings.guarded_route(&parts).unwrap();
            settings.key(&parts, &route, b"").map(Option::unwrap)
        };
        assert_eq!(key(None), Err(Problem::ScopeMissing));
        assert!(key(Some("tenant 7")).is_ok());
    }
}
