//! Fetches the payloads that messages point to.

use std::fmt::Display;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::batch::report::Reason;
use crate::engine::events;
use crate::envelope::S3Pointer;

/// Calls the caller's function with a pointer.
type Call = dyn Fn(S3Pointer) -> BoxFuture<'static, Result<String, events::Problem>> + Send + Sync;

/// Fetches what a pointer stands for.
#[derive(Clone)]
pub(super) struct Fetch(Arc<Call>);

impl Fetch {
    /// Holds a function. The text of its error is shown where `quotes` says so.
    pub(super) fn new<F, Fut, E>(function: F, quotes: bool) -> Self
    where
        F: Fn(S3Pointer) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, E>> + Send + 'static,
        E: Display + 'static,
    {
        Self(Arc::new(move |pointer| {
            let fetching = function(pointer);
            async move {
                fetching
                    .await
                    .map_err(|error| events::problem(&error, quotes))
            }
            .boxed()
        }))
    }

    pub(super) async fn get(
        self,
        pointer: S3Pointer,
        until: Option<Instant>,
    ) -> Result<String, Reason> {
        let fetching = async { (self.0)(pointer).await };
        let fetched = events::answer(fetching, until).await;
        fetched.map_err(|problem| Reason::NotFetched(problem.into_owned()))
    }
}
