//! Sends an earlier response again, and marks it as a replay.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body::Body;

use crate::engine::{REPLY_TIME, Replay, Replayed};
use crate::http::body::ResponseBody;
use crate::http::fingerprint::AcceptedCodings;
use crate::http::problem::Problem;
use crate::http::replay_hook::changed;
use crate::http::settings::Settings;
use crate::http::stored_response::StoredResponse;
use crate::idempotency::Idempotency;

/// `true` on a replay.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// On a replay: when the request was first processed, as an HTTP date.
const PROCESSED_AT: HeaderName = HeaderName::from_static("idempotency-processed-at");

/// Makes the replay of an outcome for a client that accepts these codings. `request` is the retry's
/// head, for the hook that may change the response.
pub(super) async fn replay<B: Body<Data = Bytes>>(
    once: &Idempotency,
    settings: &Settings,
    replayed: &Replayed,
    accepted: &AcceptedCodings,
    request: Option<Box<Parts>>,
) -> Result<Response<ResponseBody<B>>, Problem> {
    let (response, mut trailers) = stored(replayed, accepted)?;
    let replay = replayed.replay;
    let response = match (&settings.on_replay, request) {
        (Some(hook), Some(request)) => {
            // After the deadline nobody takes the answer, whatever becomes of a handler.
            let left = once.remaining();
            let limit = left.map(|left| left.saturating_sub(REPLY_TIME));
            let replayed = (*request, response, replay);
            Box::pin(changed(hook, replayed, &mut trailers, limit)).await
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
        let (any_coding, trailers) = (stored.any_coding, stored.take_trailers()?);
        Ok::<_, &str>((any_coding, stored.into_response()?, trailers))
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
