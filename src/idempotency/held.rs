//! A run under a claim: the handler, and then what becomes of its result.

use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Idempotency;
use crate::claim::{Claim, Desk, Hold, Stop};
use crate::engine::Request;
use crate::error::Error;
use crate::metrics::Count;
use crate::observe;
use crate::outcome::{Outcome, Verdict};
use crate::protocol::Crashed;
use crate::record::{Failure, error_kind};
use crate::settings::Unrecorded;
use crate::store::Store;

impl<S: Store> Idempotency<S> {
    // What most runs don't come to is boxed: each of them would carry the room for it.
    pub(super) async fn run_held<T, E, F, Fut>(
        &self,
        request: &Request,
        mut hold: Hold,
        handler: F,
        verdict: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<Outcome<T>, Error<E>>
    where
        T: Serialize + DeserializeOwned,
        E: Display + 'static,
        F: FnOnce(Claim) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let until = hold.lease - self.engine.settings.rules.skew_margin;
        let claim = Claim::new(
            Arc::clone(&request.operation),
            request.id.clone(),
            Some(hold.clone()),
            Some(self.desk()),
            Some(until),
            Arc::clone(&self.engine.clock),
            self.collected(),
        );
        let handed = claim.clone();
        // The call itself is inside, too: a handler may panic before it returns its future.
        // Boxed, since nobody knows how large it is, and all that is around it would have room for it, too.
        let running =
            AssertUnwindSafe(Box::pin(async move { handler(handed).await })).catch_unwind();
        let ended = running.await;
        hold.keeps_fingerprint |= claim.has_derived() || claim.has_steps() || ended.is_err();
        let result = match ended {
            Ok(result) => result,
            Err(panic) => {
                request.meter.count(Count::Failures);
                if self.engine.settings.rules.crashed == Crashed::RunAgain {
                    Box::pin(self.engine.release(request, &hold, Some("panic"))).await;
                }
                resume_unwind(panic);
            }
        };
        // The caller's judgement may panic, after a handler that succeeded: then the default stands in for it.
        let verdict = catch_unwind(AssertUnwindSafe(|| verdict(&result)))
            .unwrap_or_else(|_| Verdict::of(&result));
        if result.is_err() || verdict == Verdict::Release {
            request.meter.count(Count::Failures);
        }
        match result {
            Ok(value) if verdict == Verdict::Release => {
                Box::pin(self.engine.release(request, &hold, None)).await;
                Ok(Outcome::Executed(value))
            }
            Ok(value) => {
                let writes = claim.collected().close();
                if !writes.is_empty() {
                    return Box::pin(self.commit(request, &hold, value, writes)).await;
                }
                let finished = self.engine.complete(request, &hold, &value).await;
                self.conclude(request, finished, value).await
            }
            Err(error) => {
                // A step's word counts for more than what the handler made of it.
                if let Some(stop) = claim.stop() {
                    return Err(Box::pin(self.stopped(request, &hold, stop)).await);
                }
                if verdict == Verdict::Fail {
                    let failure = Failure::of(&error);
                    Box::pin(self.engine.fail(request, &hold, &failure)).await;
                } else {
                    let reason = Some(error_kind::<E>());
                    Box::pin(self.engine.release(request, &hold, reason)).await;
                }
                Err(Error::Handler(error))
            }
        }
    }

    fn desk(&self) -> Desk {
        Desk {
            scribe: Arc::clone(&self.engine) as Arc<_>,
            reports_unrecorded: self.engine.settings.unrecorded == Unrecorded::Fail,
        }
    }

    /// An attempt that a step brought to its end.
    async fn stopped<E>(&self, request: &Request, hold: &Hold, stop: Stop) -> Error<E> {
        let error = match stop {
            // Somebody else's: there is nothing to release.
            Stop::LeaseLost => Error::LeaseLost,
            // Once a person has settled the step, a retry may run at once.
            Stop::Interrupted { since } => {
                let engine = &self.engine;
                engine
                    .release(request, hold, Some("interrupted step"))
                    .await;
                Error::Interrupted {
                    since: since.into(),
                }
            }
        };
        observe::refused(request, &error);
        error
    }
}
