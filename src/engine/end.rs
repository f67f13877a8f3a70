//! Ends a run by its disposition: one with a claim, a shadow, or one that nothing protects. One of the
//! claimless form ends with its commit.

use std::borrow::Cow;

use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::engine::claim::{Claim, Stop};
use crate::engine::commit::{NOT_COMMITTED, Sent};
use crate::engine::error::{Error, Obstacle, unanswered};
use crate::engine::fence::Hold;
use crate::engine::finish::{Disposition, Ended};
use crate::engine::metrics::Count;
use crate::engine::settings::{AtDeadline, Unrecorded};
use crate::engine::{Engine, Request, events};
use crate::protocol::Settled;
use crate::protocol::record::{Failure, INTERRUPTED_STEP, Omission, Owner};
use crate::store::StoreError;
use crate::store::transaction::{Committed, Write};

/// A claim on a shadow record.
#[derive(Debug)]
pub(super) struct Shadow {
    pub(super) request: Request,
    pub(super) hold: Hold,
    pub(super) span: Span,
}

impl Engine {
    pub(super) async fn end_claimed(
        &self,
        request: Box<Request>,
        mut hold: Hold,
        claim: &Claim,
        disposition: Disposition,
    ) -> Result<Ended, Obstacle> {
        self.follow(claim, &mut hold);
        // A step beside a saga that is undone waits for an operator as any other does.
        let waits_beside =
            claim.compensated().is_some() && matches!(claim.stop(), Some(Stop::Interrupted { .. }));
        // Nor is a run a success whose saga waits for an operator.
        if (claim.goes_back() && !waits_beside) || claim.has_stuck_saga() {
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
        Box::pin(self.end_undone(request, &hold, claim, failure, last_error)).await
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
        match (claim.compensated(), disposition) {
            (Some(_), Disposition::Complete(outcome)) => {
                self.end_done(request, hold, claim, outcome).await
            }
            (Some(failure), _) => {
                // Nothing that a task of the handler writes now is lost in silence.
                drop(claim.collected().close());
                request.meter.count(Count::Failures);
                let stored = self.fail(&request, &hold, claim, &failure).await;
                self.conclude_failure(request, claim, stored).await
            }
            // An attempt that didn't start has undone nothing, and doesn't count.
            (None, Disposition::Release(last_error)) if !claim.has_saga() => {
                self.end_undone(request, &hold, claim, None, last_error)
                    .await
            }
            (None, disposition) => {
                let error = Some("compensating".into());
                let undone = self.end_undone(request, &hold, claim, None, error);
                undone.await?;
                match disposition {
                    Disposition::Release(_) => Ok(Ended::Done),
                    // Nothing final became of it: the next delivery goes on undoing. A caller that took its own
                    // answer or permanent error for the end would leave the saga half undone.
                    _ => Err(Error::Compensating),
                }
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
            let committed = self.commit(&request, &hold, claim, outcome, writes);
            let settled = Box::pin(committed).await?;
            return self.conclude(request, claim, settled).await;
        }
        match self.complete(&request, &hold, outcome).await {
            Ok(settled) => self.conclude(request, claim, settled).await,
            Err(error) => match self.settings.unrecorded {
                Unrecorded::Return => Ok(Ended::Unrecorded(error)),
                Unrecorded::Fail => Err(Error::Unrecorded(error)),
            },
        }
    }

    /// Ends work that failed, permanently or for now, or whose outcome is not final.
    async fn end_undone(
        &self,
        request: Box<Request>,
        hold: &Hold,
        claim: &Claim,
        failure: Option<Failure>,
        last_error: Option<Cow<'static, str>>,
    ) -> Result<Ended, Obstacle> {
        // Nothing that a task of the handler writes now is lost in silence.
        drop(claim.collected().close());
        request.meter.count(Count::Failures);
        let stop = claim.stop();
        if failure.is_none() || stop.is_some() {
            // A retry may run at once. Tasks that the handler has spawned go on, and ask whether they may.
            claim.lose();
        }
        if let Some(stop) = stop {
            let error = self.stopped(&request, hold, stop).await;
            // The finding of a step counts, whatever error the handler made of it. An answer stands.
            let has_failed = failure.is_some() || last_error.is_some();
            return if has_failed {
                Err(error)
            } else {
                Ok(Ended::Done)
            };
        }
        let Some(failure) = failure else {
            self.release(&request, hold, last_error.as_deref()).await;
            return Ok(Ended::Done);
        };
        let stored = self.fail(&request, hold, claim, &failure).await;
        self.conclude_failure(request, claim, stored).await
    }

    /// Ends a run whose failure was to be stored. The caller has the failure already, where the store
    /// didn't take it; an event reports what became of the record.
    async fn conclude_failure(
        &self,
        request: Box<Request>,
        claim: &Claim,
        stored: Result<Settled, StoreError>,
    ) -> Result<Ended, Obstacle> {
        match stored {
            Ok(settled) => self.conclude(request, claim, settled).await,
            Err(_) => Ok(Ended::Done),
        }
    }

    /// Ends an attempt that a step has stopped.
    async fn stopped(&self, request: &Request, hold: &Hold, stop: Stop) -> Obstacle {
        let error = match stop {
            // Another attempt's: there is nothing to release.
            Stop::LeaseLost => Error::LeaseLost,
            // Once an operator has settled the step, a retry may run at once.
            Stop::Interrupted { since } => {
                self.release(request, hold, Some(INTERRUPTED_STEP)).await;
                Error::Interrupted {
                    since: since.into(),
                }
            }
        };
        events::refused(request, &error);
        error
    }

    /// Ends work that didn't return: released, unless crashed attempts wait for an operator.
    pub(super) async fn end_crashed(
        &self,
        request: &Request,
        mut hold: Hold,
        claim: &Claim,
        last_error: &str,
    ) {
        if self.crash(request, &mut hold, claim) {
            Box::pin(self.release(request, &hold, Some(last_error))).await;
        }
    }

    /// Carries out the writes that were handed to the claim: a kill switch that kept the effects
    /// from happening would be an outage.
    pub(super) async fn end_unprotected(
        &self,
        claim: &Claim,
        disposition: &Disposition,
        end: Option<Instant>,
    ) -> Result<Ended, Obstacle> {
        let writes = claim.collected().close();
        if matches!(disposition, Disposition::Release(_)) {
            return Ok(Ended::Unprotected);
        }
        // A caller would take its own answer or permanent error for the end, and leave the saga half undone.
        // Observing changes no answer.
        if !self.is_observing() && claim.goes_back() && claim.compensated().is_none() {
            return Err(Error::Compensating);
        }
        if matches!(disposition, Disposition::Complete(_)) && !writes.is_empty() {
            let committed = self.commit_without_record(claim, writes, end).await;
            committed.inspect_err(|error| {
                events::uncommitted(claim.subject(), claim.attempt(), error);
            })?;
        }
        Ok(Ended::Unprotected)
    }

    async fn commit_without_record(
        &self,
        claim: &Claim,
        writes: Vec<Write>,
        end: Option<Instant>,
    ) -> Result<(), Obstacle> {
        let owner = Owner::random()
            .map_err(|error| Error::NotCommitted(StoreError::Unavailable(error.into())))?;
        let until = claim.until();
        let now = self.clock.now();
        let until = until.unwrap_or(now + self.settings.lease);
        let (until, end) = match self.settings.at_deadline {
            // A handler that outlived its deadline needs time to commit, too.
            AtDeadline::GoOn => (until.max(now + self.settings.store_timeout), end),
            AtDeadline::End => {
                let before = || claim.moment().end_before(claim.until()?);
                (until, end.or_else(before))
            }
        };
        let sent = self.send_commit(None, owner.as_str(), &writes, until, end);
        let Sent { answer, is_silent } = sent.await;
        Err(match answer {
            Ok(Committed::Applied) => return Ok(()),
            // Without a record, no write keeps a send without an answer from applying later.
            Ok(_) if is_silent => Error::OutcomeUnknown(unanswered()),
            Err(error) if is_silent => Error::OutcomeUnknown(error),
            Ok(Committed::Refused(refusal)) => Error::Refused(refusal.asked(writes)),
            Ok(Committed::Fenced(_)) => Error::NotCommitted(StoreError::Rejected(
                "the store compared a record that the commit didn't have".into(),
            )),
            Err(error) => Error::NotCommitted(error),
        })
    }

    pub(super) async fn end_shadow(
        &self,
        shadow: Option<Box<Shadow>>,
        claim: &Claim,
        disposition: Disposition,
        end: Option<Instant>,
    ) -> Result<Ended, Obstacle> {
        let ended = self.end_unprotected(claim, &disposition, end).await;
        if let Some(shadow) = shadow {
            let noted = match (&ended, claim.compensated()) {
                // As a saga ends that fails.
                (_, None) if claim.goes_back() => Disposition::Release(Some("compensating".into())),
                (Err(_), _) => Disposition::Release(Some(NOT_COMMITTED.into())),
                (Ok(_), Some(failure)) if !matches!(disposition, Disposition::Complete(_)) => {
                    Disposition::Fail(failure)
                }
                (Ok(_), _) => disposition,
            };
            self.note(*shadow, claim, &noted).await;
        }
        ended
    }

    /// Ends the shadow claim as the real one would end, but without the outcome's content.
    async fn note(&self, shadow: Shadow, claim: &Claim, disposition: &Disposition) {
        let Shadow {
            request,
            mut hold,
            span,
        } = shadow;
        self.follow(claim, &mut hold);
        let noted = async {
            match disposition {
                Disposition::Complete(_) => {
                    let nothing = Ok("null".to_owned());
                    let completion = self.completion_of(&request, &hold, nothing).await;
                    // An event reports what became of it.
                    let _ = self.finish(&request, &hold, completion).await;
                }
                Disposition::Fail(_) => {
                    request.meter.count(Count::Failures);
                    let failure = Failure::unknown();
                    // Nothing depends on what is only observed.
                    let _ = self.fail(&request, &hold, claim, &failure).await;
                }
                Disposition::Release(last_error) => {
                    request.meter.count(Count::Failures);
                    self.release(&request, &hold, last_error.as_deref()).await;
                }
            }
        };
        noted.instrument(span).await;
    }

    /// Ends the shadow claim of work that didn't return, as the real one would end.
    pub(super) async fn note_crash(&self, shadow: Shadow, claim: &Claim, last_error: &str) {
        let Shadow {
            request,
            hold,
            span,
        } = shadow;
        let ended = self.end_crashed(&request, hold, claim, last_error);
        ended.instrument(span).await;
    }
}
