//! Calls the hook that changes a replayed response.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use tokio::time::Instant;

use crate::engine::Replay;
use crate::engine::hook::Hook;

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

/// Holds the hook.
pub(super) type ReplayHook = Hook<ReplayedResponse, Response<Bytes>>;

/// Changes a response. After an error, a panic, or no answer within `limit`, it is the stored one.
pub(super) async fn changed(
    hook: &ReplayHook,
    replayed: ReplayedResponse,
    limit: Option<Duration>,
) -> Response<Bytes> {
    let stored = replayed.response.clone();
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let problem = match hook.answer(replayed, until).await {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The body and the content length of a replay that this hook has changed.
    async fn replay<F, Fut>(hook: F) -> (Bytes, Option<String>)
    where
        F: Fn(ReplayedResponse) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Bytes>, String>> + Send + 'static,
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
        let hook = ReplayHook::new(hook, false);
        let (parts, body) = changed(&hook, replayed, limit).await.into_parts();
        let length = parts.headers.get(CONTENT_LENGTH);
        let length = length.map(|value| value.to_str().unwrap().to_owned());
        (body, length)
    }

    #[tokio::test]
    async fn a_changed_body_has_no_stale_length() {
        let same = replay(async |replayed: ReplayedResponse| Ok(replayed.response)).await;
        assert_eq!(same, ("stored".into(), Some("6".to_owned())));
        let other = |replayed: ReplayedResponse| async {
            Ok(replayed.response.map(|_| Bytes::from_static(b"fresh")))
        };
        assert_eq!(replay(other).await, ("fresh".into(), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_has_the_time_up_to_the_limit_and_no_longer() {
        let stored = ("stored".into(), Some("6".to_owned()));
        for (millis, expected) in [(49, ("fresh".into(), None)), (51, stored)] {
            let slow = move |replayed: ReplayedResponse| async move {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                Ok(replayed.response.map(|_| Bytes::from_static(b"fresh")))
            };
            assert_eq!(replay(slow).await, expected, "{millis} ms");
        }
    }

    #[tokio::test]
    async fn the_stored_response_is_given_where_the_hook_fails() {
        let failed = replay(async |_| Err("no key".to_owned())).await;
        assert_eq!(failed, ("stored".into(), Some("6".to_owned())));
    }
}
