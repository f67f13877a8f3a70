//! Runs a request: finds its key, asks the engine, calls the handler, ends the run.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower::{Service, ServiceExt};
use tracing::Instrument;

use super::handler_response::HandlerResponse;
use super::identity::{Identity, identify};
use super::problem::{Problem, STATUS, stated};
use super::replay::replay;
use crate::engine::claim::Claim;
use crate::engine::error::{Error, Obstacle};
use crate::engine::time::ending;
use crate::engine::{Begun, Disposition, Ended};
use crate::http::body::{RequestBody, ResponseBody};
use crate::http::fingerprint::AcceptedCodings;
use crate::http::settings::{GuardedRoute, RoutePolicy, Settings};
use crate::idempotency::Idempotency;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;

#[cfg(feature = "lambda-http")]
use crate::http::gateway;

/// Marks the response to a request that a layer guards, for a layer outside that lets it pass.
#[derive(Clone, Copy)]
struct Guarded;

/// Serves HTTP requests, or Lambda's events of them, with a service that
/// [`IdempotencyLayer`](super::IdempotencyLayer) wraps.
pub struct IdempotencyService<Svc> {
    pub(super) once: Idempotency,
    pub(super) settings: Arc<Settings>,
    pub(super) inner: Svc,
}

clone_fields!([Svc: Clone] IdempotencyService<Svc> { once, settings, inner });

debug_fields!([Svc: std::fmt::Debug] IdempotencyService<Svc> { inner });

impl<Svc, B, RB> Service<Request<B>> for IdempotencyService<Svc>
where
    Svc: Service<Request<B>, Response = Response<RB>> + Clone + Send + 'static,
    Svc::Error: Display + Send + 'static,
    Svc::Future: Send + 'static,
    B: RequestBody,
    RB: Body<Data = Bytes, Error: Send> + Send + 'static,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = Svc::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let Some(route) = self.settings.guarded_route(&parts) else {
            let has_key =
                !parts.method.is_safe() && parts.headers.contains_key(&self.settings.header);
            // A layer outside that guards the request states its protection.
            let is_guarded = parts.extensions.get::<Claim>().is_some();
            let is_bare = has_key && !is_guarded && !self.once.is_observing();
            let response = self.inner.call(Request::from_parts(parts, body));
            return Box::pin(async move {
                let response = response.await?.map(ResponseBody::passing);
                let is_stated = response.headers().contains_key(STATUS)
                    || response.extensions().get::<Guarded>().is_some();
                let status = (is_bare && !is_stated).then_some("unprotected");
                Ok(stated(response, status))
            });
        };
        // The clone is not ready, the original is: that one goes, unless the request may wait for another
        // attempt. A ready service may keep others from being so.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let inner = if self.once.waits() {
            self.inner.clone()
        } else {
            ready
        };
        let settings = Arc::clone(&self.settings);
        let once = self.once.clone();
        Box::pin(async move {
            let mut response = protect(once, settings, inner, route, parts, body).await?;
            response.extensions_mut().insert(Guarded);
            Ok(response)
        })
    }
}

async fn protect<Svc, B, RB>(
    once: Idempotency,
    settings: Arc<Settings>,
    inner: Svc,
    route: GuardedRoute,
    parts: Parts,
    body: B,
) -> Result<Response<ResponseBody<RB>>, Svc::Error>
where
    Svc: Service<Request<B>, Response = Response<RB>> + Send + 'static,
    Svc::Error: Display + Send + 'static,
    Svc::Future: Send + 'static,
    B: RequestBody,
    RB: Body<Data = Bytes, Error: Send> + Send + 'static,
{
    let once = bind(&once, &parts, settings.policy(&route));
    let identity = match identify(&once, &settings, &parts, &route, body).await {
        Ok(identity) => identity,
        Err(problem) => {
            problem.log();
            return Ok(settings.refusal(problem, &route).map(ResponseBody::whole));
        }
    };
    let span = tracing::info_span!(
        "http_request",
        otel.kind = "server",
        faas.trigger = "http",
        http.request.method = parts.method.as_str(),
        http.route = route.template,
    );
    let Identity {
        key,
        fingerprint,
        absence,
        body,
    } = identity;
    let request = Request::from_parts(parts, body);
    // Where nothing is protected, a client that hangs up leaves no claim behind.
    let is_detached = key.is_some() && !once.ends_with_invocation() && !once.is_passive();
    let layer = Arc::clone(&settings);
    // Boxed: it is moved into a task, or stays here, and both would have room for it.
    let run = |once| Box::pin(run(once, layer, inner, key, fingerprint, request).instrument(span));
    let answered = if is_detached {
        once.detach(run)
            .await
            .unwrap_or_else(|error| Err(error.into()))
    } else {
        run(once).await
    };
    let (problem, status) = match answered {
        Ok(response) => return Ok(response),
        Err(Unanswered::Handler(error)) => return Err(error),
        Err(Unanswered::Problem(Problem::KeyMissing, _)) => (absence, None),
        Err(Unanswered::Problem(problem, status)) => (problem, status),
    };
    if !problem.is_unusable_key() {
        problem.log();
    }
    let refusal = settings.refusal(problem, &route);
    Ok(stated(refusal.map(ResponseBody::whole), status))
}

/// Takes the handler's own answer of this type to a condition that failed out of the obstacle.
pub(super) fn read_own<A: 'static>(obstacle: Obstacle) -> Result<A, Obstacle> {
    match obstacle {
        Error::Refused(refusal) => refusal.into_answer().map_err(Error::Refused),
        other => Err(other),
    }
}

/// Takes the handler's own response to a condition that failed out of the obstacle, where the
/// handler's type of responses is not the layer's. It comes with the request.
pub(super) type ReadOwn<B> = fn(Obstacle) -> Result<Response<B>, Obstacle>;

/// Says why there is no response of the handler's.
enum Unanswered<E> {
    Handler(E),
    /// With the protection that its run lacked.
    Problem(Problem, Option<&'static str>),
}

impl<E> From<Obstacle> for Unanswered<E> {
    fn from(obstacle: Obstacle) -> Self {
        Self::Problem(Problem::of(&obstacle), None)
    }
}

impl<E> From<Problem> for Unanswered<E> {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem, None)
    }
}

/// Claims the key, calls the handler, and ends the run.
async fn run<Svc, B, RB>(
    once: Idempotency,
    settings: Arc<Settings>,
    mut inner: Svc,
    key: Option<Key>,
    fingerprint: Option<Fingerprint>,
    request: Request<B>,
) -> Result<Response<ResponseBody<RB>>, Unanswered<Svc::Error>>
where
    Svc: Service<Request<B>, Response = Response<RB>>,
    Svc::Error: Display + 'static,
    RB: Body<Data = Bytes> + 'static,
{
    let (mut parts, body) = request.into_parts();
    let accepted = AcceptedCodings::of(&parts.headers);
    let times = once.times(None);
    let end = times.map(|times| times.end);
    let begun = match once.begin(key, fingerprint).await? {
        // It is ready already, unless the request may have waited for another attempt.
        Begun::Run(run) => {
            let note = |claim: &Claim, error: &_| {
                note_error(&once, &settings, claim, Some(&parts), error);
            };
            let begun = Box::pin(run.made_ready(times, inner.ready(), note)).await?;
            begun.map_err(Unanswered::Handler)?
        }
        done @ Begun::Replay(_) => done,
    };
    let mut run = match begun {
        Begun::Run(run) => run,
        Begun::Replay(replayed) => {
            let head = Some(Box::new(parts));
            return Ok(replay(&once, &settings, &replayed, &accepted, head).await?);
        }
    };
    let is_protected = run.claim().is_protected();
    let unprotected = (!is_protected && !once.is_observing()).then_some("unprotected");
    let obstructed =
        |obstacle| Unanswered::Problem(Problem::of_run(&obstacle, is_protected), unprotected);
    parts.extensions.insert(run.claim().clone());
    let own_response = parts.extensions.remove::<ReadOwn<RB>>();
    // For the hooks: a successor may finish first, whose response is replayed to this request then.
    let needs_head = settings.on_error.is_some() || settings.on_replay.is_some();
    let head = needs_head.then(|| Box::new(parts.clone()));
    let request = Request::from_parts(parts, body);
    // The call itself is inside, too: a handler may panic before it returns its future.
    let handling = async {
        let response = inner.call(request).await?;
        // Without protection nothing is stored, but the answer's end may say that nothing is to be written.
        Ok(if is_protected || run.claim().has_writes() {
            HandlerResponse::read(response, &settings, is_protected).await
        } else {
            HandlerResponse::passing(response, &settings)
        })
    };
    let handling = AssertUnwindSafe(Box::pin(handling)).catch_unwind();
    let response = match run.within(end, handling).await {
        Some(Ok(response)) => response,
        Some(Err(panic)) => {
            ending(times, run.panicked()).await;
            resume_unwind(panic);
        }
        None => return Err(obstructed(run.timed_out(times).await)),
    };
    if let Err(error) = &response {
        note_error(&once, &settings, run.claim(), head.as_deref(), error);
    }
    if let Ok(response) = &response {
        if response.writes_nothing() {
            drop(run.claim().collected().close());
        }
        if let Some(retention) = response.retention(&settings) {
            run.keep_for(retention);
        }
    }
    let disposition = match &response {
        Ok(response) if response.is_open(run.claim().stop()) => Disposition::Release(None),
        Ok(response) => run.completion(|| response.outcome(&settings, &accepted)),
        Err(error) => Disposition::of_error(error, false),
    };
    let status = match run.ended(disposition).await {
        Ok(Ended::Replay(replayed)) => {
            return Ok(replay(&once, &settings, &replayed, &accepted, head).await?);
        }
        Ok(Ended::Unrecorded(_)) => Some("unrecorded"),
        Ok(Ended::Done | Ended::Unprotected) => unprotected,
        // The handler's own answer to its condition. The claim is released, so nothing is stored.
        Err(refused @ Error::Refused(_)) => {
            let read = own_response.unwrap_or(read_own);
            return match read(refused) {
                Ok(response) => Ok(stated(response.map(ResponseBody::passing), unprotected)),
                Err(refused) => Err(read_own(refused).map_or_else(obstructed, Unanswered::Handler)),
            };
        }
        Err(obstacle) => return Err(obstructed(obstacle)),
    };
    let response = response.map_err(Unanswered::Handler)?.response;
    Ok(stated(response, status))
}

/// Logs an error of the handler's where the setting asks for it, and shows it to the hook. A panic of
/// the hook doesn't change how the run ends.
fn note_error<E: Display + 'static>(
    once: &Idempotency,
    settings: &Settings,
    claim: &Claim,
    head: Option<&Parts>,
    error: &E,
) {
    once.log_error(claim, error);
    if let (Some(hook), Some(parts)) = (&settings.on_error, head)
        && catch_unwind(AssertUnwindSafe(|| hook(parts, error))).is_err()
    {
        let (event, error) = ("hook_failed", "it panicked");
        tracing::error!(event, reason = "on_error", error, "idempotency");
    }
}

/// Binds the engine to the invocation and the route.
fn bind(once: &Idempotency, parts: &Parts, policy: &RoutePolicy) -> Idempotency {
    let once = once.with_overrides(policy.retention, policy.missing_key);
    #[cfg(feature = "lambda-http")]
    if let Some(deadline) = gateway::deadline(parts) {
        return once.deadline(deadline);
    }
    let _ = parts;
    once
}
