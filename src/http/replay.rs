//! Sends an earlier response again, and marks it as a replay.

use std::fmt;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use crate::engine::{REPLY_TIME, Replay, Replayed, hook};
use crate::http::body::ResponseBody;
use crate::http::fingerprint::AcceptedCodings;
use crate::http::layer::Settings;
use crate::http::problem::Problem;
use crate::http::stored_response::{Malformed, StoredResponse};
use crate::idempotency::Idempotency;

/// `true` on a replay.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// On a replay: when the request was first processed, as an HTTP date.
const PROCESSED_AT: HeaderName = HeaderName::from_static("idempotency-processed-at");

/// Makes the replay of an outcome for a client that accepts these codings. `request` is the retry's
/// head, for the hook that may change the response.
pub(super) async fn replay<B>(
    once: &Idempotency,
    settings: &Settings,
    replayed: &Replayed,
    accepted: &AcceptedCodings,
    request: Option<Box<Parts>>,
) -> Result<Response<ResponseBody<B>>, Problem> {
    let (response, trailers) = stored(replayed, accepted)?;
    let replay = replayed.replay();
    let response = match (&settings.on_replay, request) {
        (Some(hook), Some(request)) => {
            let replayed = ReplayedResponse {
                request: *request,
                response,
                replay,
            };
            // After the deadline nobody takes the answer, whatever becomes of a handler.
            let left = once.remaining();
            let limit = left.map(|left| left.saturating_sub(REPLY_TIME));
            Box::pin(hook.change(replayed, limit)).await
        }
        _ => response,
    };
    Ok(marked(response, replay).map(|body| ResponseBody::with_trailers(body, trailers)))
}

/// Decodes the stored response. One whose coding a handler chose for another client isn't sent to a
/// client that can't read it.
fn stored(
    replayed: &Replayed,
    accepted: &AcceptedCodings,
) -> Result<(Response<Bytes>, HeaderMap), Problem> {
    let decoded = replayed.decode_with(|mut stored: StoredResponse| {
        let (any_coding, trailers) = (stored.is_in_any_coding(), stored.take_trailers()?);
        Ok::<_, Malformed>((any_coding, stored.into_response()?, trailers))
    });
    let (any_coding, response, trailers) = decoded.map_err(|obstacle| Problem::of(&obstacle))?;
    if !any_coding && !accepted.accept(response.headers()) {
        return Err(Problem::CodingNotAccepted);
    }
    Ok((response, trailers))
}

/// Marks a response as a replay.
fn marked(mut response: Response<Bytes>, replay: Replay) -> Response<Bytes> {
    let headers = response.headers_mut();
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    if let Some(date) = replay.processed_at.and_then(http_date) {
        headers.insert(PROCESSED_AT, date);
    }
    response
}

/// Writes an HTTP date; `None` beyond the year 9999, which an HTTP date can't hold and a damaged
/// record might.
fn http_date(time: SystemTime) -> Option<HeaderValue> {
    const YEAR_10000: Duration = Duration::from_hours(70_389_528);
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    (since_epoch < YEAR_10000)
        .then(|| HeaderValue::from_str(&httpdate::fmt_http_date(time)).ok())
        .flatten()
}

/// Holds a stored response on its way to the client of a retry, for the hook of
/// [`IdempotencyLayer::on_replay`](super::IdempotencyLayer::on_replay). Its `Debug` shows the
/// status and the attempt: the rest is not for logs.
#[non_exhaustive]
pub struct ReplayedResponse {
    /// The retry's head, with the extensions that the layers outside have set.
    pub request: Parts,
    /// The response as it is stored.
    pub response: Response<Bytes>,
    /// The attempt that the response comes from.
    pub replay: Replay,
}

impl fmt::Debug for ReplayedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayedResponse")
            .field("status", &self.response.status())
            .field("replay", &self.replay)
            .finish_non_exhaustive()
    }
}

type Changed = Result<Response<Bytes>, hook::Problem>;

/// Holds the hook.
pub(super) struct ReplayHook {
    call: Box<dyn Fn(ReplayedResponse) -> BoxFuture<'static, Changed> + Send + Sync>,
}

impl ReplayHook {
    /// Holds a function. The text of its error, which may quote the response, is logged where
    /// `quotes` says so.
    pub(super) fn new<F, Fut, E>(function: F, quotes: bool) -> Arc<Self>
    where
        F: Fn(ReplayedResponse) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Bytes>, E>> + Send + 'static,
        E: Display + 'static,
    {
        let call = Box::new(move |replayed| {
            let changing = function(replayed);
            async move {
                changing
                    .await
                    .map_err(|error| hook::problem(&error, quotes))
            }
            .boxed()
        });
        Arc::new(Self { call })
    }

    /// Changes a response. After an error, a panic, or no answer within `limit`, it is the stored
    /// one.
    pub(super) async fn change(
        &self,
        replayed: ReplayedResponse,
        limit: Option<Duration>,
    ) -> Response<Bytes> {
        let stored = replayed.response.clone();
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let problem = match hook::answer(async { (self.call)(replayed).await }, until).await {
            Ok(mut changed) => {
                // The stored length is that of the stored body.
                if changed.body() != stored.body() {
                    changed.headers_mut().remove(CONTENT_LENGTH);
                }
                return changed;
            }
            Err(problem) => problem,
        };
        tracing::error!(event = "hook_failed", error = &*problem, "idempotency");
        stored
    }
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

    type Answer = Result<Response<Bytes>, String>;

    /// The body and the content length of a replay that this hook has changed.
    async fn changed<F, Fut>(hook: F) -> (Bytes, Option<String>)
    where
        F: Fn(ReplayedResponse) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        let replayed = ReplayedResponse {
            request: http::Request::new(()).into_parts().0,
            response: Response::builder()
                .header(CONTENT_LENGTH, 6)
                .body(Bytes::from_static(b"stored"))
                .unwrap(),
            replay: Replay {
                processed_at: None,
                attempt: 1,
            },
        };
        let limit = Some(Duration::from_millis(50));
        let (parts, body) = ReplayHook::new(hook, false)
            .change(replayed, limit)
            .await
            .into_parts();
        let length = parts.headers.get(CONTENT_LENGTH);
        let length = length.map(|value| value.to_str().unwrap().to_owned());
        (body, length)
    }

    #[tokio::test]
    async fn a_changed_body_has_no_stale_length() {
        let same = changed(async |replayed: ReplayedResponse| Ok(replayed.response)).await;
        assert_eq!(same, ("stored".into(), Some("6".to_owned())));
        let other = |replayed: ReplayedResponse| async {
            Ok(replayed.response.map(|_| Bytes::from_static(b"fresh")))
        };
        assert_eq!(changed(other).await, ("fresh".into(), None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_stored_response_is_given_where_the_hook_fails_panics_or_hangs() {
        let stored = || ("stored".into(), Some("6".to_owned()));
        assert_eq!(changed(async |_| Err("no key".to_owned())).await, stored());
        assert_eq!(changed(async |_| panic!("later")).await, stored());
        let at_once = |_| -> std::future::Ready<Answer> { panic!("at once") };
        assert_eq!(changed(at_once).await, stored());
        assert_eq!(
            changed(async |_| std::future::pending().await).await,
            stored()
        );
    }
}
