//! Renews the lease of a run while its work goes on.

use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::engine::begin::Protection;
use crate::engine::claim::{Claim, Hold};
use crate::engine::end::{is_mine, persist};
use crate::engine::pace::Turns;
use crate::engine::request::{LONGEST, Moment};
use crate::engine::settings::AtDeadline;
use crate::engine::{Engine, Options, Request, Run, events};
use crate::protocol::clock::EpochMillis;
use crate::protocol::record::{Found, Owner, RecordWrite, Renewal};
use crate::store::{Answer, StoreError};

/// The renewals in the time of one lease: two may fail before it is over.
const RENEWALS: u32 = 3;

/// The longest lease after the deadline of an invocation: a process that dies then blocks its key for
/// this long.
const LONGEST_BEYOND: Duration = Duration::from_mins(1);

/// The least pause between two renewals.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// The least pause before a renewal that failed is sent again.
const LEAST_RETRY: Duration = Duration::from_millis(100);

/// A renewal that begins so much later than its turn is warned of: something blocks the thread.
const LATE: Duration = Duration::from_millis(500);

impl Run {
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
        let lease = self.engine.renewed_lease(options);
        let lease = lease.or_else(|| self.engine.lease_beyond(options));
        if lease.is_none() && options.deadline.is_none() {
            return Some(work.await);
        }
        let begun = self.engine.moment();
        let renew = |lease| Box::pin(self.engine.renew(request, hold, &self.claim, lease, begun));
        let mut renewals = None;
        poll_fn(|context| {
            let Some(lease) = lease else {
                return if self.claim.is_over() {
                    Poll::Ready(None)
                } else {
                    Pin::new(&mut work).poll(context).map(Some)
                };
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
}

impl Engine {
    /// Returns the length of a lease that is renewed; `None` where it lasts for the whole attempt:
    /// up to an invocation's deadline, for a batch, and without a claim.
    pub(super) fn renewed_lease(&self, options: &Options) -> Option<Duration> {
        let lease = self.settings.renewed_lease?;
        let lasts = options.is_batch() || options.deadline.is_some() || options.claimless;
        (!lasts).then_some(lease.min(self.settings.max_duration))
    }

    /// Tells whether work goes on after the deadline of its invocation.
    pub(crate) fn goes_on(&self, options: &Options) -> bool {
        options.deadline.is_some() && self.settings.at_deadline == AtDeadline::GoOn
    }

    /// Returns the length of the leases that a claim gets one after the other from its invocation's
    /// deadline on; `None` where it ends with the deadline, and without a claim.
    pub(super) fn lease_beyond(&self, options: &Options) -> Option<Duration> {
        let lease = self.settings.renewed_lease.unwrap_or(LONGEST_BEYOND);
        let lease = lease.min(LONGEST_BEYOND).min(self.settings.max_duration);
        (self.goes_on(options) && !options.claimless).then_some(lease)
    }
}

impl Engine {
    /// Renews the claim's lease again and again from a moment on, and returns when the lease is
    /// over: its limit is reached, it could not be renewed, or the fence was lost.
    async fn renew(
        &self,
        request: &Request,
        hold: &Hold,
        claim: &Claim,
        lease: Duration,
        mut now: Moment,
    ) {
        let pause = (lease / RENEWALS).clamp(LEAST_PAUSE, LONGEST);
        // A third of the lease after the claim, which may have been answered late.
        let left = claim.time().map_or(Duration::ZERO, |(until, _)| {
            until.saturating_since(now.time)
        });
        let early = lease.saturating_sub(pause);
        let mut turn = if request.options.deadline.is_some() {
            // Most work ends long before its deadline, and is never renewed.
            now.instant + left.saturating_sub(early.min(left / RENEWALS))
        } else {
            // A clock that was put back shows more than the lease.
            now.instant + left.min(lease).saturating_sub(early)
        };
        while let Some((until, limit)) = claim.time() {
            let end = now.instant + until.saturating_since(now.time).min(LONGEST);
            let wake = if until < limit { turn.min(end) } else { end };
            tokio::time::sleep_until(wake).await;
            now = self.moment();
            let late = now.instant.saturating_duration_since(wake);
            if late >= LATE {
                events::renewal_late(request, hold, late);
            }
            let left = until.saturating_since(now.time);
            if claim.is_lost() || now.time >= limit {
                return;
            }
            if !left.is_zero() && now.instant < turn {
                continue;
            }
            let next = (now.time + lease).min(limit);
            if next <= until {
                turn = now.instant + pause;
                continue;
            }
            match self
                .renew_until(request, hold, now, (until, next), pause)
                .await
            {
                Ok(true) => {
                    claim.set_time(next);
                    turn = now.instant + pause;
                }
                Ok(false) => {
                    events::renewal_refused(request, hold);
                    return claim.lose();
                }
                Err(error) => {
                    events::renewal_failed(request, hold, &error);
                    // The work waited for this renewal, which was the last one.
                    if left.is_zero() {
                        return;
                    }
                    turn = now.instant + pause.min((left / 2).max(LEAST_RETRY));
                    now = self.moment();
                    turn = turn.max(now.instant);
                }
            }
        }
    }

    /// Sends a renewal of a lease from its one end to another; `false` where the fence was lost.
    async fn renew_until(
        &self,
        request: &Request,
        hold: &Hold,
        now: Moment,
        (until, next): (EpochMillis, EpochMillis),
        limit: Duration,
    ) -> Result<bool, StoreError> {
        let stored = next + self.settings.rules.skew_margin;
        let expiration = self.expiration(request, stored);
        let (id, owner) = (request.id.clone(), hold.owner.clone());
        let renewal = RecordWrite::from(Renewal::new(id, owner, stored, expiration));
        let deadline = request.store_deadline(now, until, limit);
        let send = || self.store.write(&renewal, deadline);
        let turns = Turns::End(&self.pace, &request.id);
        Ok(
            match persist(turns, deadline, StoreError::is_transient, send).await? {
                Answer::Applied(_) => true,
                // An earlier send of the same renewal applied.
                Answer::Refused(met) => has_lease(met.as_ref(), &hold.owner, stored),
            },
        )
    }
}

/// Tells whether the record that was met has the owner of this renewal, and its lease or a longer
/// one.
fn has_lease(met: Option<&Found>, owner: &Owner, lease: EpochMillis) -> bool {
    let record = met.and_then(|met| met.content.as_ref().ok());
    is_mine(met, owner) && record.is_some_and(|record| record.lease.is_some_and(|met| met >= lease))
}

/// The runs of an engine that have their own tasks.
#[derive(Debug)]
pub(crate) struct DetachedRuns {
    limit: u32,
    permits: Arc<Semaphore>,
    is_draining: AtomicBool,
}

/// A run that was admitted. Dropping this gives its place back, whatever else still holds it.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Place>);

impl Admitted {
    pub(crate) fn place(&self) -> Arc<Place> {
        Arc::clone(&self.0)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl DetachedRuns {
    pub(crate) fn up_to(limit: NonZeroU32) -> Self {
        let limit = limit.get();
        Self {
            limit,
            permits: Arc::new(Semaphore::new(limit as usize)),
            is_draining: AtomicBool::new(false),
        }
    }

    /// Admits a run, which has its place until it ends, but not while it waits for another attempt;
    /// `None` where the limit is reached, or the engine drains.
    pub(crate) fn admit(&self) -> Option<Admitted> {
        if self.is_draining() {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        // A run that gave the place back has it again at once, or not at all.
        let place = Place::new(&self.permits, permit, Some(Instant::now()), false);
        Some(Admitted(place))
    }

    /// Tells whether a run that has no place gets none any more.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Admits no further run, waits until each has ended, and returns the number of those that have
    /// not.
    pub(crate) async fn drain(&self, timeout: Duration) -> u32 {
        self.is_draining.store(true, Ordering::Relaxed);
        let all = self.permits.acquire_many(self.limit);
        if let Ok(all) = tokio::time::timeout(timeout, all).await {
            // Closed before they are given back: a run that was about to be admitted gets none.
            self.permits.close();
            drop(all);
            return 0;
        }
        // Each run that has its place holds the semaphore. Its free permits don't tell: another drain
        // may hold them.
        let runs = Arc::strong_count(&self.permits).saturating_sub(1);
        u32::try_from(runs).unwrap_or(self.limit)
    }
}

/// One of so many places: those of a batch's messages, or of an engine's detached runs. A run has it
/// from its claim to the end of its handler, but not while it waits for another attempt, unless it
/// stays.
#[derive(Debug)]
pub(crate) struct Place {
    places: Weak<Semaphore>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// The time until which it waits to have its place again.
    stop: Option<Instant>,
    /// A run that waits keeps it, for what it holds in memory.
    stays: bool,
}

impl Place {
    pub(crate) fn new(
        places: &Arc<Semaphore>,
        permit: OwnedSemaphorePermit,
        stop: Option<Instant>,
        stays: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::downgrade(places),
            permit: Mutex::new(Some(permit)),
            stop,
            stays,
        })
    }

    /// Returns until when it waits to have its place again.
    pub(crate) fn stop(&self) -> Option<Instant> {
        self.stop
    }

    /// Gives the place back for the time of a wait.
    pub(crate) fn leave_to_wait(&self) {
        if !self.stays {
            self.leave();
        }
    }

    /// Gives the place back.
    pub(crate) fn leave(&self) {
        self.permit().take();
    }

    /// Tells whether it was not given back.
    pub(crate) fn is_held(&self) -> bool {
        self.permit().is_some()
    }

    /// Takes a place again after it was given back; `false` where none was free in time.
    pub(crate) async fn take(&self) -> bool {
        let Some(places) = self.places.upgrade() else {
            return false;
        };
        let free = places.acquire_owned();
        let permit = match self.stop {
            Some(stop) => timeout_at(stop, free).await.ok(),
            None => Some(free.await),
        };
        let Some(Ok(permit)) = permit else {
            return false;
        };
        *self.permit() = Some(permit);
        true
    }

    fn permit(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::clock::EpochSeconds;
    use crate::protocol::key::RecordId;
    use crate::protocol::record::{NewClaim, Record};

    #[test]
    fn a_lease_that_is_its_own_and_as_long_or_longer_is_renewed() {
        let met = |owner: &str, lease| {
            let (id, owner) = (RecordId::unkeyed("1"), Owner::from_stored(owner));
            let (start, end) = (EpochMillis(0), EpochSeconds(9));
            let claim = NewClaim::new(id, owner, start, EpochMillis(lease), end);
            Found::readable(Record::claimed(&claim))
        };
        let own = Owner::from_stored("own");
        let has = |met: Option<Found>| has_lease(met.as_ref(), &own, EpochMillis(2_000));
        assert!(has(Some(met("own", 2_000))));
        assert!(has(Some(met("own", 2_001))), "a later renewal came first");
        assert!(!has(Some(met("own", 1_999))));
        assert!(!has(Some(met("another", 2_000))));
        assert!(!has(None));
    }

    const LONG: Duration = Duration::from_mins(1);

    fn two() -> DetachedRuns {
        DetachedRuns::up_to(NonZeroU32::new(2).unwrap())
    }

    #[test]
    fn a_run_beyond_the_limit_is_admitted_when_another_has_ended() {
        let runs = two();
        let first = runs.admit();
        let second = runs.admit();
        assert!(first.is_some() && second.is_some() && runs.admit().is_none());
        drop(first);
        assert!(runs.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn draining_ends_with_the_last_run_and_admits_no_other() {
        let runs = two();
        let last = runs.admit();
        let ended = async {
            tokio::time::sleep(LONG / 2).await;
            assert!(runs.admit().is_none());
            drop(last);
        };
        let (left, ()) = tokio::join!(runs.drain(LONG), ended);
        assert_eq!(left, 0);
        assert!(runs.admit().is_none());
        // Nor one that had looked before the draining began.
        assert!(Arc::clone(&runs.permits).try_acquire_owned().is_err());
        assert_eq!(runs.drain(LONG).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn draining_gives_up_after_its_time_and_counts_what_is_left() {
        let runs = two();
        let last = runs.admit();
        assert_eq!(runs.drain(LONG).await, 1);
        assert!(runs.admit().is_none());
        drop(last);
        assert_eq!(runs.drain(LONG).await, 0);
        // A second caller hears the same.
        assert_eq!(runs.drain(LONG).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn two_that_drain_side_by_side_count_the_same_runs() {
        let runs = two();
        let last = runs.admit();
        let ended = async {
            tokio::time::sleep(2 * LONG).await;
            drop(last);
        };
        let (hasty, patient, ()) = tokio::join!(runs.drain(LONG), runs.drain(3 * LONG), ended);
        assert_eq!((hasty, patient), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_taken_again_is_held_and_free_for_nobody_else() {
        let places = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&places).try_acquire_owned().unwrap();
        let place = Place::new(&places, permit, Some(Instant::now()), false);
        place.leave_to_wait();
        assert!(!place.is_held() && places.available_permits() == 1);
        assert!(place.take().await);
        assert!(place.is_held() && places.available_permits() == 0);
        place.leave();
        let another = Arc::clone(&places).try_acquire_owned().unwrap();
        assert!(!place.take().await && !place.is_held(), "none is free");
        drop(another);
        drop(places);
        assert!(!place.take().await, "there are no places any more");
    }
}
