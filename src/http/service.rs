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
use http_body_util::{Either, Full};
use tower::Service;

use super::body::{ReadError, RequestBody};
use super::fingerprint;
use super::problem::Problem;
use super::response::Captured;
use super::settings::Settings;
use super::verdict::verdict;
use crate::error::BoxError;
use crate::fingerprint::Fingerprint;
use crate::idempotency::Idempotency;
use crate::key::Key;
use crate::outcome::{Outcome, Replay, Verdict};
use crate::store::Store;

/// `true` on a replay.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// On a replay: when the request was first processed, as an HTTP date.
const PROCESSED_AT: HeaderName = HeaderName::from_static("idempotency-processed-at");

/// The body of an answer: whole, where the layer had a part in it; the inner service's own, where it passed through.
pub type ResponseBody<B> = Either<Full<Bytes>, B>;

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
        if !self.settings.guards(request.method()) {
            let answer = self.inner.call(request);
            return Box::pin(async { Ok(answer.await?.map(Either::Right)) });
        }
        // The clone is not ready, the original is: that one goes.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let protected = protect(
            self.once.clone(),
            Arc::clone(&self.settings),
            inner,
            request,
        );
        Box::pin(async { Ok(protected.await?.map(Either::Left)) })
    }
}

async fn protect<S, Svc, B, RB>(
    once: Idempotency<S>,
    settings: Arc<Settings>,
    mut inner: Svc,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Svc::Error>
where
    S: Store,
    Svc: Service<Request<B>, Response = Response<RB>>,
    Svc::Error: Display,
    B: RequestBody,
    RB: Body<Data = Bytes>,
    RB::Error: Into<BoxError>,
{
    let (mut parts, body) = request.into_parts();
    let (key, fingerprint, body) = match identify(&settings, &parts, body).await {
        Ok(identity) => identity,
        Err(problem) => return Ok(refuse(problem)),
    };
    let once = match deadline(&parts) {
        Some(deadline) => once.deadline(deadline),
        None => once,
    };
    let handler = async move |claim| {
        parts.extensions.insert(claim);
        let response = inner.call(Request::from_parts(parts, body)).await?;
        Ok(capture(response).await)
    };
    let judge = |result: &Result<Captured, Svc::Error>| match result {
        Ok(response) => verdict(response.status),
        Err(_) => Verdict::Release,
    };
    match once.run_with(key, fingerprint, handler, judge).await {
        Ok(outcome) => Ok(answer(outcome)),
        Err(error) => Problem::of(error).map(refuse),
    }
}

/// Who the request is. Without a key there is nothing to compare, so the body stays unread.
async fn identify<B: RequestBody>(
    settings: &Settings,
    parts: &Parts,
    body: B,
) -> Result<(Option<Key>, Option<Fingerprint>, B), Problem> {
    let Some(key) = settings.key(parts)? else {
        return Ok((None, None, body));
    };
    let read = body.read(settings.body_limit).await;
    let (bytes, body) = read.map_err(|error| match error {
        ReadError::TooLarge => Problem::BodyTooLarge,
        ReadError::Failed(_) => Problem::BodyUnreadable,
    })?;
    Ok((Some(key), Some(fingerprint::of(parts, &bytes)), body))
}

/// The end of the invocation, where Lambda told it; zero says nothing.
fn deadline(parts: &Parts) -> Option<SystemTime> {
    let context = parts.extensions.get::<lambda_http::Context>()?;
    (context.deadline > 0).then(|| context.deadline())
}

/// An answer that breaks off can't be sent and must not be stored: it becomes a server error, which releases the claim.
async fn capture<B>(response: Response<B>) -> Captured
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if let Ok(captured) = Captured::read(response).await {
        return captured;
    }
    let problem = Problem::ResponseBroken;
    tracing::error!(event = problem.code(), "idempotency");
    Captured::whole(problem.into_response())
}

fn answer(outcome: Outcome<Captured>) -> Response<Full<Bytes>> {
    match outcome {
        Outcome::Replayed(captured, replay) => mark(captured.into_response(), replay),
        ran => ran.into_inner().into_response(),
    }
}

fn mark(mut response: Response<Full<Bytes>>, replay: Replay) -> Response<Full<Bytes>> {
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

fn refuse(problem: Problem) -> Response<Full<Bytes>> {
    tracing::info!(event = "refused", code = problem.code(), "idempotency");
    problem.into_response().map(Full::new)
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
