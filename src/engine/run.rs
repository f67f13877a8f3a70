//! A run: the right to do the work of a request, and its end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::engine::abandoned::OnDrop;
use crate::engine::claim::Claim;
use crate::engine::commit::Unclaimed;
use crate::engine::end::Shadow;
use crate::engine::error::{Error, Obstacle};
use crate::engine::fence::Hold;
use crate::engine::finish::{Disposition, Ended};
use crate::engine::metrics::{Count, Meter};
use crate::engine::time::{Times, ending, within};
use crate::engine::{Engine, Replayed, Request, events};
use crate::protocol::record::{DROPPED, NOT_STARTED, Omission, PANIC, TIMED_OUT};

#[cfg(feature = "http")]
use crate::engine::request::{LEAST_RETENTION, SHORTEST_RETENTION};
#[cfg(feature = "http")]
use std::time::Duration;

/// A begun request has its own run, or the outcome of an earlier one.
#[derive(Debug)]
pub enum Begun {
    /// The request is to be done: do the work, then [`end`](Run::end) the run.
    Run(Run),
    /// The work was done before, with this outcome.
    Replay(Replayed),
}

/// The right to do a request's work once. [`Idempotency::begin`](crate::Idempotency::begin) gives
/// it.
///
/// # Cancellation
///
/// A run that is dropped without its [`end`](Self::end) counts as one whose work was ended before it
/// returned. The engine's next call releases its key, and a retry runs again; under
/// [`OnCrash::Interrupt`](crate::OnCrash::Interrupt) nothing is sent, and the lease runs out.
#[must_use = "a run that is dropped holds its key until the engine's next call"]
pub struct Run {
    pub(super) engine: Arc<Engine>,
    pub(super) claim: Claim,
    pub(super) protection: Protection,
    /// The instant that ends each store call of the run; `None` where none is set.
    pub(super) store_end: Option<Instant>,
}

/// The record that protects a run, if there is one.
#[derive(Debug)]
pub(super) enum Protection {
    /// A claim in the store.
    Claimed(Box<Request>, Hold),
    /// The record that the run's own transaction will write.
    Claimless(Box<Request>, Box<Unclaimed>),
    /// A shadow claim, which only observes; `None` where it was not to be had.
    Shadow(Option<Box<Shadow>>),
    /// Nothing.
    None,
}

impl Run {
    /// Returns the claim: keys for effects outside, steps, writes, and the time that is left.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Makes the disposition of work that is done. The outcome of a run that nothing protects stays
    /// unmade: no record keeps it.
    pub(crate) fn completion(
        &self,
        outcome: impl FnOnce() -> Result<String, Omission>,
    ) -> Disposition {
        Disposition::Complete(if self.claim.is_protected() {
            outcome()
        } else {
            Ok(String::new())
        })
    }

    /// Sets how long the outcome of this run is kept; behind writes, never shorter than another outcome.
    /// Without a claim, never so short that a late copy of the commit could outlive it; the record that the
    /// commit meets decides whether it is kept longer.
    #[cfg(feature = "http")]
    pub(crate) fn keep_for(&mut self, retention: Duration) {
        let retention = retention.max(SHORTEST_RETENTION);
        // Without the record, a retry would commit the writes again, fire the steps again, or derive the
        // first keys.
        let is_to_be_kept = self.claim.has_writes() || self.claim.is_to_be_kept();
        match &mut self.protection {
            Protection::Claimed(request, _) | Protection::Claimless(request, _)
                if is_to_be_kept =>
            {
                request.retention = request.retention.max(retention);
            }
            Protection::Claimed(request, _) => request.retention = retention,
            Protection::Claimless(request, _) => {
                request.retention = retention.max(LEAST_RETENTION);
            }
            Protection::Shadow(_) | Protection::None => {}
        }
    }

    /// Ends the run.
    ///
    /// # Errors
    ///
    /// The reason why the disposition was not carried out: the lease was lost to another attempt, a
    /// step was interrupted, a saga still compensates, a transaction did not commit, or the outcome
    /// could not be recorded where the [policy](crate::Unrecorded) makes that an error.
    ///
    /// # Cancellation
    ///
    /// The disposition stands once the future was polled. Where it is dropped before the store has
    /// answered, the engine's next call sends the completion, the failure or the release. A
    /// transaction isn't sent again: its outcome is unknown, and the next call sends a release,
    /// which is refused if the transaction committed.
    pub async fn end(self, disposition: Disposition) -> Result<Ended, Error<Infallible>> {
        let disposition = match disposition {
            Disposition::Complete(Ok(text))
                if serde_json::from_str::<IgnoredAny>(&text).is_err() =>
            {
                Disposition::Complete(Err(Omission::NotSerializable))
            }
            disposition => disposition,
        };
        self.ended(disposition).await
    }

    /// Ends the run with an outcome that is known to be JSON.
    pub(crate) async fn ended(mut self, disposition: Disposition) -> Result<Ended, Obstacle> {
        self.note_late();
        let protection = self.take_protection();
        let Self {
            engine,
            claim,
            store_end,
            ..
        } = &self;
        // Boxed, but for the way that most runs go.
        match protection {
            Protection::Claimed(request, hold) => {
                engine.end_claimed(request, hold, claim, disposition).await
            }
            Protection::Claimless(request, attempt) => {
                let meter = Arc::clone(&request.meter);
                let has_failed = matches!(disposition, Disposition::Release(_));
                let end = engine.end_claimless(request, *attempt, claim, disposition);
                Box::pin(counted(&meter, has_failed, end)).await
            }
            Protection::Shadow(shadow) => {
                Box::pin(engine.end_shadow(shadow, claim, disposition, *store_end)).await
            }
            Protection::None => {
                Box::pin(engine.end_unprotected(claim, &disposition, *store_end)).await
            }
        }
    }

    /// Reports work that went on after the deadline of its invocation.
    fn note_late(&self) {
        let (Protection::Claimed(request, _) | Protection::Claimless(request, _)) =
            &self.protection
        else {
            return;
        };
        let deadline = request.options.deadline;
        let late = deadline.and_then(|deadline| self.claim.now().0.checked_sub(deadline.0));
        if let Some(late_ms) = late.filter(|late| *late >= 0) {
            events::deadline_outlived(request, self.claim.attempt(), late_ms);
        }
    }

    /// Awaits the work of this run, and renews its lease meanwhile, where the engine has a
    /// [renewed lease](crate::Builder::renewed_lease), or where work [goes
    /// on](crate::AtDeadline::GoOn) after the deadline of its invocation. `None` where the lease is
    /// over before the work is done: another attempt may have the key then, so the work is polled no
    /// more.
    ///
    /// Work whose lease is neither renewed nor bound to a deadline is only awaited.
    ///
    /// [`run`](crate::Idempotency::run) and the layers do it by themselves.
    ///
    /// ```
    /// use lambda_idempotency::{Begun, Disposition, Idempotency, Key, store::MemoryStore};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let once = Idempotency::builder(MemoryStore::new())
    ///     .namespace("reports")
    ///     .renewed_lease(Duration::from_secs(30))
    ///     .build()?;
    /// if let Begun::Run(run) = once.begin(Key::new("monthly", "2026-11"), None).await? {
    ///     match run.while_renewed(Box::pin(async { "a long report" })).await {
    ///         Some(report) => drop(run.end(Disposition::Complete(Ok(format!("{report:?}")))).await?),
    ///         None => run.panicked().await,
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancellation
    ///
    /// A future that is dropped ends the work and the renewals. The run is still to be ended, or
    /// dropped.
    pub async fn while_renewed<W: Future + Unpin>(&self, mut work: W) -> Option<W::Output> {
        let Protection::Claimed(request, hold) = &self.protection else {
            return Some(work.await);
        };
        let options = &request.options;
        let lease = self.engine.settings.lease_to_renew(options);
        let lease = lease.or_else(|| self.engine.settings.lease_beyond_deadline(options));
        if lease.is_none() && options.deadline.is_none() {
            return Some(work.await);
        }
        let begun = self.claim.moment();
        let renew = |lease| Box::pin(self.engine.renew(request, hold, &self.claim, lease, begun));
        let (mut renewals, mut over) = (None, None);
        poll_fn(|context| {
            let Some(lease) = lease else {
                if self.claim.is_over() {
                    return Poll::Ready(None);
                }
                if let Poll::Ready(done) = Pin::new(&mut work).poll(context) {
                    return Poll::Ready(Some(done));
                }
                let over = over.get_or_insert_with(|| Box::pin(self.claim.over()));
                return over.as_mut().poll(context).map(|()| None);
            };
            // Work that is done at its first poll needs no timer.
            let polled_first = renewals.is_none() && !self.claim.is_over();
            if polled_first && let Poll::Ready(done) = Pin::new(&mut work).poll(context) {
                return Poll::Ready(Some(done));
            }
            // Else looked at before the work: after a thread was blocked, the work has no effect
            // beyond its lease.
            let renewals = renewals.get_or_insert_with(|| renew(lease));
            if renewals.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            // Over: the last renewal is under way, and decides.
            if polled_first || self.claim.is_over() {
                return Poll::Pending;
            }
            Pin::new(&mut work).poll(context).map(Some)
        })
        .await
    }

    /// Awaits the work [while the lease is renewed](Self::while_renewed), and until `end` at the longest.
    pub(crate) async fn within<W: Future + Unpin>(
        &self,
        end: Option<Instant>,
        work: W,
    ) -> Option<W::Output> {
        within(end, self.while_renewed(work)).await.flatten()
    }

    /// Ends a run whose work panicked: the claim is released, unless crashed attempts wait for a
    /// person.
    pub async fn panicked(self) {
        self.crashed(PANIC).await;
    }

    /// Ends a run whose work was ended before it returned, as one whose work panicked; one whose key
    /// another attempt has is left to that one. Returns the reason.
    pub(crate) async fn timed_out(mut self, times: Option<Times>) -> Obstacle {
        let is_lost = self.claim.is_lost();
        let error = if is_lost {
            Error::LeaseLost
        } else {
            Error::TimedOut
        };
        let (claim, is_protected) = (&self.claim, self.is_protected());
        events::ended(claim.subject(), claim.attempt(), is_protected, &error);
        if is_lost {
            drop(self.take_protection());
        }
        ending(times, self.crashed(TIMED_OUT)).await;
        error
    }

    fn is_protected(&self) -> bool {
        matches!(
            self.protection,
            Protection::Claimed(..) | Protection::Claimless(..)
        )
    }

    /// Ends a run whose work didn't return: what it did is not known.
    async fn crashed(mut self, last_error: &'static str) {
        match self.abandon() {
            Protection::Claimed(request, hold) => {
                let end = self
                    .engine
                    .end_crashed(&request, hold, &self.claim, last_error);
                end.await;
            }
            Protection::Shadow(Some(shadow)) => {
                self.engine
                    .note_crash(*shadow, &self.claim, last_error)
                    .await;
            }
            Protection::Claimless(request, attempt) => {
                count(&request.meter, true);
                let engine = &self.engine;
                let end = engine.end_claimless_crashed(&request, *attempt, &self.claim);
                Box::pin(end).await;
            }
            Protection::Shadow(None) | Protection::None => {}
        }
    }

    /// Returns the run, unless the time of its handler or its lease is over before the work begins: a
    /// handler that is begun then would be ended at its first await, or run beside a successor's.
    pub(crate) async fn in_time(self, times: Option<Times>) -> Result<Begun, Obstacle> {
        // Without a claim, it may commit late.
        let has_lost = matches!(self.protection, Protection::Claimed(..)) && self.claim.is_over();
        if times.is_none_or(|times| Instant::now() < times.end) && !has_lost {
            return Ok(Begun::Run(self));
        }
        let (claim, is_protected) = (self.claim.clone(), self.is_protected());
        if let Some(replayed) = self.not_started(times).await? {
            return Ok(Begun::Replay(replayed));
        }
        let error = Error::TooLate;
        events::ended(claim.subject(), claim.attempt(), is_protected, &error);
        Err(error)
    }

    /// Awaits until the handler is ready, and returns the run [in time](Self::in_time). Where the handler
    /// isn't, the run has ended: returns the outcome of work that was done already, or the handler's error.
    #[cfg(any(feature = "http", feature = "invoke"))]
    pub(crate) async fn made_ready<R, E>(
        self,
        times: Option<Times>,
        ready: impl Future<Output = Result<R, E>> + Unpin,
        on_error: impl FnOnce(&Claim, &E),
    ) -> Result<Result<Begun, E>, Obstacle> {
        let Some(Err(error)) = self.within(times.map(|times| times.end), ready).await else {
            return self.in_time(times).await.map(Ok);
        };
        on_error(&self.claim, &error);
        let done = self.not_started(times).await?;
        Ok(done.map(Begun::Replay).ok_or(error))
    }

    /// Ends a run whose work didn't begin: the attempt doesn't count. Returns the outcome where the work was
    /// done already: without a claim, only the end finds out.
    pub(crate) async fn not_started(
        self,
        times: Option<Times>,
    ) -> Result<Option<Replayed>, Obstacle> {
        let end = self.end(Disposition::Release(Some(NOT_STARTED.into())));
        match ending(times, end).await {
            Some(Ok(Ended::Replay(replayed))) => Ok(Some(replayed)),
            Some(Err(obstacle)) => Err(obstacle),
            _ => Ok(None),
        }
    }

    /// Takes the protection away from work that didn't return. Tasks that it has spawned go on, and ask
    /// whether they may.
    fn abandon(&mut self) -> Protection {
        // An open transaction among its writes holds the record's place, and a connection that the end
        // may wait for.
        drop(self.claim.collected().close());
        let is_protected = self.is_protected();
        let protection = self.take_protection();
        if is_protected {
            self.claim.lose();
        }
        protection
    }

    /// Takes the protection away, whose end then is the caller's task.
    fn take_protection(&mut self) -> Protection {
        mem::replace(&mut self.protection, Protection::None)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        match self.abandon() {
            // As one whose work panicked: what the work did is not known.
            Protection::Claimed(request, mut hold) => {
                if self.engine.crash(&request, &mut hold, &self.claim) {
                    self.engine.leave_release(&request, &hold, DROPPED);
                }
            }
            Protection::Claimless(request, _) => count(&request.meter, true),
            Protection::Shadow(_) | Protection::None => {}
        }
    }
}

/// Counts a run without a claim, whose end alone tells whether it was a duplicate.
fn count(meter: &Meter, has_failed: bool) {
    meter.count(Count::Executions);
    if has_failed {
        meter.count(Count::Failures);
    }
}

/// Awaits the end of a run without a claim, and counts the run unless it was a duplicate.
async fn counted(
    meter: &Meter,
    has_failed: bool,
    end: impl Future<Output = Result<Ended, Obstacle>>,
) -> Result<Ended, Obstacle> {
    // A caller may drop the end.
    let unless_duplicate = OnDrop::new(|| count(meter, has_failed));
    let ended = end.await;
    let is_duplicate = match &ended {
        Ok(ended) => matches!(ended, Ended::Replay(_)),
        // A refusal has a counter of its own.
        Err(error) => events::refusal(error).is_some(),
    };
    if is_duplicate {
        unless_duplicate.disarm();
    }
    ended
}

debug_fields!([] Run { claim });
