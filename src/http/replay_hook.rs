//! Calls the hook that changes a replayed response.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRAILER};
use http::request::Parts;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use crate::engine::Replay;
use crate::engine::hook::Hook;

/// Holds the hook: it gets the retry's head, the stored response and its attempt.
pub(super) type ReplayHook = Hook<Input, Response<Bytes>>;

type Input = (Parts, Response<Bytes>, Replay);

/// Changes a response. After an error, a panic, or no answer within `limit`, it is the stored one. Of the
/// stored trailers, a changed body has those of gRPC: they tell of the call.
pub(super) async fn changed(
    hook: &ReplayHook,
    replayed: Input,
    trailers: &mut HeaderMap,
    limit: Option<Duration>,
) -> Response<Bytes> {
    let stored = replayed.1.clone();
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let problem = match hook.answer(replayed, until).await {
        Ok(mut changed) => {
            // The stored length is that of the stored body, and so is a checksum in its trailers.
            if changed.body() != stored.body() {
                changed.headers_mut().remove(CONTENT_LENGTH);
                changed.headers_mut().remove(TRAILER);
                let all = std::mem::take(trailers);
                let of_grpc = all
                    .iter()
                    .filter(|(name, _)| name.as_str().starts_with("grpc-"));
                trailers.extend(of_grpc.map(|(name, value)| (name.clone(), value.clone())));
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
        F: Fn((Parts, Response<Bytes>, Replay)) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response<Bytes>, String>> + Send + 'static,
    {
        let request = http::Request::new(()).into_parts().0;
        let response = Response::builder()
            .header(CONTENT_LENGTH, 6)
            .body(Bytes::from_static(b"stored"))
            .unwrap();
        let replay = Replay {
            processed_at: None,
            attempt: 1,
        };
        let limit = Some(Duration::from_millis(50));
        let hook = ReplayHook::new(hook, false);
        let replayed = (request, response, replay);
        let changed = changed(&hook, replayed, &mut HeaderMap::new(), limit).await;
        let (parts, body) = changed.into_parts();
        let length = parts.headers.get(CONTENT_LENGTH);
        let length = length.map(|value| value.to_str().unwrap().to_owned());
        (body, length)
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_body_has_no_stale_length() {
        let same = replay(async |(_, response, _)| Ok(response)).await;
        assert_eq!(same, ("stored".into(), Some("6".to_owned())));
        let other =
            replay(|(_, response, _)| async { Ok(response.map(|_| Bytes::from_static(b"fresh"))) });
        assert_eq!(other.await, ("fresh".into(), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_has_the_time_up_to_the_limit_and_no_longer() {
        let stored = ("stored".into(), Some("6".to_owned()));
        for (millis, expected) in [(49, ("fresh".into(), None)), (51, stored)] {
            let slow = replay(move |(_, response, _)| async move {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                Ok(response.map(|_| Bytes::from_static(b"fresh")))
            });
            assert_eq!(slow.await, expected, "{millis} ms");
        }
    }
}
