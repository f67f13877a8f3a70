//! Finds where a request goes: its address, its route template, its operation. Pure.//! Calls the hook that changes a replayed response.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Response;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use tokio::time::Instant;

use crate::engine::{Replay, hook};

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
    async fn a_hook_may_take_all_of_its_time() {
        let slow = |replayed: ReplayedResponse| async {
            tokio::time::sleep(Duration::from_millis(49)).await;
            Ok(replayed.response.map(|_| Bytes::from_static(b"fresh")))
        };
        assert_eq!(changed(slow).await, ("fresh".into(), None));
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
