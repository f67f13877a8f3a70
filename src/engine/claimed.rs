//! Ends a run under a claim.

use std::borrow::Cow;

use crate::engine::claim::{Claim, Hold, Stop};
use crate::engine::error::{Error, Obstacle};
use crate::engine::events;
use crate::engine::fence::Fence;
use crate::engine::metrics::Count;
use crate::engine::settings::Unrecorded;
use crate::engine::{Disposition, Ended, Engine, Request};
use crate::protocol::OnCrash;
use crate::protocol::record::{Failure, Omission};

impl Engine {
    pub(super) async fn end_claimed(
        &self,
        request: Box<Request>,
        mut hold: Hold,
        claim: &Claim,
        disposition: Disposition,
    ) -> Result<Ended, Obstacle> {
        hold.keeps_fingerprint |= claim.has_derived() || claim.has_steps();
        self.follow(claim, &mut hold);
        if claim.goes_back() {
            return Box::pin(self.end_saga(request, hold, claim, disposition)).await;
        }
        let (failure, last_error) = match disposition {
            Disposition::Complete(outcome) => {
                return self.end_done(request, hold, claim, outcome).await;
            }
            Disposition::Fail(failure) => (Some(failure), None),
            Disposition::Release(last_error) => (None, last_error),
        };
        // Boxed, since most runs end without it.
        Box::pin(self.end_undone(&request, &hold, claim, failure, last_error)).await
    }

    /// Ends the run of a saga that fails: with its failure once it is undone, whatever error the handler
    /// made of it, and never as a success before.
    async fn end_saga(
        &self,
        request: Box<Request>,
        hold: Hold,
        claim: &Claim,
        disposition: Disposition,
    ) -> Result<Ended, Obstacle> {
        let is_success = matches!(disposition, Disposition::Complete(_));
        match (claim.compensated(), disposition) {
            (Some(_), Disposition::Complete(outcome)) => {
                self.end_done(request, hold, claim, outcome).await
            }
            (Some(failure), _) => {
                request.meter.count(Count::Failures);
                self.fail_for(&request, &hold, &failure, request.retention)
                    .await;
                Ok(Ended::Done)
            }
            (None, _) => {
                let error = Some("compensating".into());
                let undone = self.end_undone(&request, &hold, claim, None, error).await;
                if is_success && undone.is_ok() {
                    let since = claim.now().into();
                    return Err(Error::Interrupted { since });
                }
                undone
            }
        }
    }

    /// Stores the outcome of work that is done.
    async fn end_done(
        &self,
        request: Box<Request>,
        hold: Hold,
        claim: &Claim,
        outcome: Result<String, Omission>,
    ) -> Result<Ended, Obstacle> {
        let writes = claim.collected().close();
        if !writes.is_empty() {
            let committed = self.commit(&request, &hold, outcome, writes);
            let fence = Box::pin(committed).await?;
            return self.conclude(request, fence).await;
        }
        match self.complete(&request, &hold, outcome).await {
            Ok(fence) => self.conclude(request, fence).await,
            Err(error) => match self.settings.unrecorded {
                Unrecorded::Return => Ok(Ended::Unrecorded(error)),
                Unrecorded::Fail => Err(Error::Unrecorded(error)),
            },
        }
    }

    /// Ends the handler's run by the state of the fence: with its own outcome, with a successor's,
    /// or with a lost lease.
    pub(super) async fn conclude(
        &self,
        request: Box<Request>,
        fence: Fence,
    ) -> Result<Ended, Obstacle> {
        match fence {
            Fence::Held => Ok(Ended::Done),
            Fence::Superseded(record) => {
                let replayed = self.replay(request, record, true);
                Box::pin(replayed).await.map(Ended::Replay)
            }
            Fence::Lost => Err(Error::LeaseLost),
        }
    }

    /// Ends work that failed, for good or for now, or whose outcome is not final.
    async fn end_undone(
        &self,
        request: &Request,
        hold: &Hold,
        claim: &Claim,
        failure: Option<Failure>,
        last_error: Option<Cow<'static, str>>,
    ) -> Result<Ended, Obstacle> {
        request.meter.count(Count::Failures);
        let has_failed = failure.is_some() || last_error.is_some();
        if let Some(stop) = claim.stop().filter(|_| has_failed) {
            // What a step found out counts, whatever error the handler made of it.
            return Err(self.stopped(request, hold, stop).await);
        }
        match failure {
            Some(failure) => self.fail(request, hold, &failure).await,
            None => self.release(request, hold, last_error.as_deref()).await,
        }
        Ok(Ended::Done)
    }

    /// Ends an attempt that a step has stopped.
    async fn stopped(&self, request: &Request, hold: &Hold, stop: Stop) -> Obstacle {
        let error = match stop {
            // Another attempt's: there is nothing to release.
            Stop::LeaseLost => Error::LeaseLost,
            // Once a person has settled the step, a retry may run at once.
            Stop::Interrupted { since } => {
                self.release(request, hold, Some("interrupted step")).await;
                Error::Interrupted {
                    since: since.into(),
                }
            }
        };
        events::refused(request, &error);
        error
    }

    /// Ends work that didn't return: released, unless crashed attempts wait for a person.
    pub(super) async fn end_crashed(&self, request: &Request, hold: &Hold, last_error: &str) {
        request.meter.count(Count::Failures);
        if self.settings.rules.on_crash == OnCrash::RunAgain {
            Box::pin(self.release(request, hold, Some(last_error))).await;
        }
    }
}

impl Engine {
    /// Takes over the end of a lease that was renewed: what ends the claim is sent until then.
    pub(super) fn follow(&self, claim: &Claim, hold: &mut Hold) {
        if let Some(until) = claim.until() {
            hold.lease = until + self.settings.rules.skew_margin;
        }
    }
}
