//! The service: request to key, engine to answer.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower::Service;
use tracing::Instrument;

use super::answer_body::ResponseBody;
use super::body::{ReadError, RequestBody};
use super::capture::Capture;
use super::operation::template;
use super::problem::Problem;
use super::response::Captured;
use super::settings::{Plan, Settings};
use crate::error::{BoxError, Error};
use crate::fingerprint::Fingerprint;
use crate::idempotency::Idempotency;
use crate::key::Key;
use crate::outcome::{Outcome, Replay, Verdict};
use crate::store::Store;

/// `true` on a replay.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// On a replay: when the request was first processed, as an HTTP date.
const PROCESSED_AT: HeaderName = HeaderName::from_static("idempotency-processed-at");

/// On an answer that a duplicate may not get: `unprotected` where no record stands behind the run, `unrecorded` where its outcome
/// could not be stored.
pub(super) const STATUS: HeaderName = HeaderName::from_static("idempotency-status");

/// A service that [`IdempotencyLayer`](super::IdempotencyLayer) wraps.
pub struct IdempotencyService<S, Svc> {
    once: Idempotency<S>,
    settings: Arc<Settings>,
    inner: Svc,
}

impl<S, Svc> IdempotencyService<S, Svc> {
    pub(super) fn new(once: Idempotency<S>, settings: Arc<Settings>, inner: Svc) -> Self {
        Self {
            once,
            settings,
            inner,
        }
    }
}

impl<S, Svc: Clone> Clone for IdempotencyService<S, Svc> {
    fn clone(&self) -> Self {
        Self::new(
            self.once.clone(),
            Arc::clone(&self.settings),
            self.inner.clone(),
        )
    }
}

impl<S, Svc: fmt::Debug> fmt::Debug for IdempotencyService<S, Svc> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, Svc, B, RB> Service<Request<B>> for IdempotencyService<S, Svc>
where
    S: Store,
    Svc: Service<Request<B>, Response = Response<RB>> + Clone + Send + 'static,
    Svc::Error: Display + Send + 'static,
    Svc::Future: Send + 'static,
    B: RequestBody,
    RB: Body<Data = Bytes> + Send + 'static,
    RB::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = Svc::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        if self.settings.plan(&parts).is_none() {
            let answer = self.inner.call(Request::from_parts(parts, body));
            return Box::pin(async { Ok(answer.await?.map(ResponseBody::passing)) });
        }
        // The clone is not ready, the original is: that one goes.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let settings = Arc::clone(&self.settings);
        Box::pin(protect(self.once.clone(), settings, inner, parts, body))
    }
}

async fn protect<S, Svc, B, RB>(
    once: Idempotency<S>,
    settings: Arc<Settings>,
    mut inner: Svc,
    mut parts: Parts,
    body: B,
) -> Result<Response<ResponseBody<RB>>, Svc::Error>
where
    S: Store,
    Svc: Service<Request<B>, Response = Response<RB>>,
    Svc::Error: Display + 'static,
    B: RequestBody,
    RB: Body<Data = Bytes> + 'static,
    RB::Error: Into<BoxError>,
{
    let Some(plan) = settings.plan(&parts) else {
        let answer = inner.call(Request::from_parts(parts, body)).await?;
        return Ok(answer.map(ResponseBody::passing));
    };
    let once = bind(once, &parts, &plan);
    let identity = identify(&once, &settings, &parts, &plan, body).await;
    let (key, fingerprint, body) = match identity {
        Ok(identity) => identity,
        Err(problem) => return Ok(refuse(&settings, problem)),
    };
    let span = tracing::info_span!(
        "http_request",
        otel.kind = "server",
        faas.trigger = "http",
        http.request.method = parts.method.as_str(),
        http.route = template(&parts),
    );
    let capture = Capture::new(&settings);
    let is_observing = once.is_observing();
    let handler = async |claim| {
        parts.extensions.insert(claim);
        let response = inner.call(Request::from_parts(parts, body)).await?;
        Ok(capture.take(response).await)
    };
    let judge = |result: &Result<Captured, Svc::Error>| match result {
        Ok(response) => settings.verdict(response),
        Err(_) => Verdict::Release,
    };
    let run = once.run_with(key, fingerprint, handler, judge);
    match run.instrument(span).await {
        Ok(outcome) => {
            let mut answer = answer(outcome);
            if is_observing {
                answer.headers_mut().remove(STATUS);
            }
            Ok(capture.give(answer))
        }
        Err(Error::Refused(refusal)) => Ok(match refusal.into_answer::<Response<RB>>() {
            // The handler's own answer to its condition. The claim is released, so nothing is stored.
            Ok(response) => response.map(ResponseBody::passing),
            Err(_) => refuse(&settings, Problem::ConditionFailed),
        }),
        Err(error) => Ok(refuse(&settings, Problem::of(error)?)),
    }
}

/// The engine, with what the invocation and the route say.
fn bind<S: Store>(once: Idempotency<S>, parts: &Parts, plan: &Plan<'_>) -> Idempotency<S> {
    let once = match deadline(parts) {
        Some(deadline) => once.deadline(deadline),
        None => once,
    };
    let once = match plan.route.missing_key() {
        Some(policy) => once.missing_key(policy),
        None => once,
    };
    match plan.route.kept_for() {
        Some(retention) => once.retention(retention),
        None => once,
    }
}

/// Who the request is. Without a key there is nothing to compare, so the body stays unread.
async fn identify<S: Store, B: RequestBody>(
    once: &Idempotency<S>,
    settings: &Settings,
    parts: &Parts,
    plan: &Plan<'_>,
    body: B,
) -> Result<(Option<Key>, Option<Fingerprint>, B), Problem> {
    let key = settings.key(parts, plan);
    // Switched off, or only observing, means as if nothing were there: what can't be used stops nobody.
    let key = match key {
        Err(_) if once.is_passive() => None,
        key => key?,
    };
    // Without a key there is nothing to compare; switched off, nothing is compared.
    if key.is_none() || once.is_disabled() {
        return Ok((key, None, body));
    }
    let limit = if once.is_passive() {
        usize::MAX
    } else {
        settings.body_limit
    };
    let read = body.read(limit).await;
    let (bytes, body) = read.map_err(|error| match error {
        ReadError::TooLarge => Problem::BodyTooLarge,
        ReadError::Failed(_) => Problem::BodyUnreadable,
    })?;
    Ok((key, Some(settings.sight.of(parts, &bytes)), body))
}

/// The end of the invocation, in a Lambda function.
fn deadline(parts: &Parts) -> Option<SystemTime> {
    let context = parts.extensions.get::<lambda_http::Context>();
    context.map(lambda_http::Context::deadline)
}

fn answer(outcome: Outcome<Captured>) -> Response<Option<Bytes>> {
    let status = match &outcome {
        Outcome::Unprotected(_) => Some("unprotected"),
        Outcome::Unrecorded(_) => Some("unrecorded"),
        _ => None,
    };
    let mut response = match outcome {
        Outcome::Replayed(captured, replay) => mark(captured.into_response(), replay),
        ran => ran.into_inner().into_response(),
    };
    if let Some(status) = status {
        let headers = response.headers_mut();
        headers.insert(STATUS, HeaderValue::from_static(status));
    }
    response
}

fn mark(mut response: Response<Option<Bytes>>, replay: Replay) -> Response<Option<Bytes>> {
    let headers = response.headers_mut();
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    if let Some(date) = replay.processed_at.and_then(http_date) {
        headers.insert(PROCESSED_AT, date);
    }
    response
}

/// `None` beyond the year 9999, which an HTTP date can't hold and a damaged record might.
fn http_date(time: SystemTime) -> Option<HeaderValue> {
    const YEAR_10000: Duration = Duration::from_hours(70_389_528);
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    (since_epoch < YEAR_10000)
        .then(|| HeaderValue::from_str(&httpdate::fmt_http_date(time)).ok())
        .flatten()
}

fn refuse<B>(settings: &Settings, problem: Problem) -> Response<ResponseBody<B>> {
    tracing::info!(event = "refused", code = problem.code(), "idempotency");
    settings.refusals.answer(problem).map(ResponseBody::whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_beyond_what_http_can_say_is_left_out() {
        let time = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let date = http_date(time(784_111_777)).unwrap();
        assert_eq!(date, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(http_date(time(253_402_300_799)).is_some());
        assert_eq!(http_date(time(253_402_300_800)), None);
    }
}
