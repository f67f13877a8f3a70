//! Begins a request: gives it a run, or the outcome of an earlier one. A run has a claim, or none: in
//! the claimless form, in shadow mode, under the kill switch, without a key, or where the store did
//! not answer.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument;

use crate::engine::abandoned::OnDrop;
use crate::engine::claim::{Claim, ClaimTime};
use crate::engine::commit::Unclaimed;
use crate::engine::end::Shadow;
use crate::engine::error::{Error, Obstacle};
use crate::engine::fence::{Hold, is_mine};
use crate::engine::metrics::Count;
use crate::engine::pace::Turns;
use crate::engine::permission::ClaimRight;
use crate::engine::persist::{is_rejected_for_now, persist};
use crate::engine::request::{LEAST_RETENTION, MAX_ROUNDS, Subject};
use crate::engine::run::Protection;
use crate::engine::settings::{OnMissingKey, OnStoreUnavailable};
use crate::engine::time::Moment;
use crate::engine::{Begun, Engine, LEAST_STORE_TIME, Options, Request, Run, events};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, KeyError, RecordId};
use crate::protocol::record::{
    Found, NOT_STARTED, NewClaim, Owner, Record, RecordWrite, Takeover, Version, WITHOUT_REPLY,
};
use crate::protocol::{Asking, Decision, decide};
use crate::store::transaction::{Collected, Unwritten, WriteError};
use crate::store::{Answer, StoreError};

/// The reason why nothing protects the runs of an engine that was built with the kill switch.
const SWITCHED_OFF: &str = "protection is switched off";

/// The reason why no claim is made while completions are refused.
const NO_COMPLETION: &str = "a completion was refused (a permission to update records, an index of the table, or the store's certificate), \
     so that each delivery would repeat its effect; until one succeeds, one claim a minute is made";

/// The answer to a request that wants to run.
#[derive(Debug)]
enum Acquired {
    /// The claim is this attempt's, and the handler runs.
    Claimed(Hold),
    /// An earlier outcome, or failure, is final and is replayed.
    Replay(Box<Record>),
}

impl Engine {
    /// Begins a request.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        key: Option<Key>,
        fingerprint: Option<Fingerprint>,
        options: Options,
    ) -> Result<Begun, Obstacle> {
        if self.is_observing() {
            return Box::pin(self.begin_shadow(key, fingerprint, options)).await;
        }
        let Some(key) = key else {
            return self.begin_without_key(&options);
        };
        if self.disabled {
            return self.begin_disabled(&key, &options);
        }
        let is_renewed = self.settings.lease_to_renew(&options).is_some();
        if options.deadline.is_none() && !is_renewed {
            self.deadlines.missing(self.settings.lease);
        }
        let request = self.request(&key, fingerprint, options);
        let unusable = |error: &KeyError| events::unusable(key.operation(), error);
        let request = Box::new(request.inspect_err(unusable)?);
        self.send_unsent(&request).await;
        if request.options.claimless {
            return Box::pin(self.begin_claimless(request)).await;
        }
        match self.acquire(&request).await {
            Ok(Acquired::Claimed(hold)) => Ok(Begun::Run(self.claimed(request, hold))),
            Ok(Acquired::Replay(record)) => Box::pin(self.replay(request, record, false))
                .await
                .map(Begun::Replay),
            Err(Error::Store(error))
                if error.is_unreachable()
                    && !request.is_answered()
                    && !self.holds_key(&request.id)
                    && self.settings.on_store_unavailable == OnStoreUnavailable::FailOpen =>
            {
                request.meter.count(Count::StoreErrors);
                let id = request.id.clone();
                Ok(self.begin_unprotected(Some(&key), id, &request.options, &error))
            }
            Err(error) => {
                events::refused(&request, &error);
                Err(error)
            }
        }
    }

    fn begin_without_key(self: &Arc<Self>, options: &Options) -> Result<Begun, Obstacle> {
        let policy = options.missing_key.unwrap_or(self.settings.on_missing_key);
        if !self.disabled && policy == OnMissingKey::Refuse {
            events::unusable("", &KeyError::Missing);
            return Err(KeyError::Missing.into());
        }
        Ok(self.begin_unprotected(None, unkeyed()?, options, &KeyError::Missing))
    }

    /// Begins a run while the engine is switched off: a key that can't be used is no obstacle. The
    /// values derived from a key stay the same, whether or not the engine was observing before.
    fn begin_disabled(self: &Arc<Self>, key: &Key, options: &Options) -> Result<Begun, Obstacle> {
        let id = match self.derived_id(key) {
            Some(id) => id,
            None => unkeyed()?,
        };
        Ok(self.begin_unprotected(Some(key), id, options, &SWITCHED_OFF))
    }

    /// Returns the id that a key will have once protection is on, so that what is derived from it
    /// stays the same. `None` for a key that can't be used.
    fn derived_id(&self, key: &Key) -> Option<RecordId> {
        let namespace = self.observed.as_ref().unwrap_or(&self.namespace);
        key.resolve(namespace, self.settings.max_token_chars).ok()
    }

    async fn begin_claimless(self: &Arc<Self>, request: Box<Request>) -> Result<Begun, Obstacle> {
        // A failure is a record, too, which a late copy of a commit must not outlive.
        let retention = request.retention.min(self.settings.failure_retention);
        let refused = |error: &Obstacle| events::refused(&request, error);
        let owner = if self.store.admission().is_none() {
            Err(Error::Write(WriteError::NotSupported))
        } else if retention < LEAST_RETENTION {
            Err(Error::Write(WriteError::RetentionTooShort { retention }))
        } else {
            self.new_owner(&request)
        };
        let owner = owner.inspect_err(refused)?;
        let started_at = self.clock.now();
        let mut found = None;
        if request.options.read_first || self.reads_first.load(Ordering::Relaxed) {
            // A read of a redelivery's record costs less than a transaction that fails. Without its
            // answer, the transaction itself finds out.
            found = self.look_first(&request).await.unwrap_or_default();
        }
        let mut attempt = Unclaimed {
            owner,
            until: self.run_until(&request, started_at),
            started_at,
            found,
        };
        let (mut wait, place) = (self.wait(&request), request.options.place.as_deref());
        let earlier = loop {
            let obstacle = match self.record_in_the_way(&request, &attempt, self.clock.now()) {
                Err(obstacle) => obstacle,
                earlier => break earlier,
            };
            let seen = self.look_again(&request, &obstacle, &mut wait, place);
            match seen.await {
                Some(seen) => attempt.found = seen,
                None => break Err(obstacle),
            }
            attempt.until = self.run_until(&request, self.clock.now());
        };
        if let Some(record) = earlier.inspect_err(refused)? {
            return self.replay(request, record, false).await.map(Begun::Replay);
        }
        if !request.options.has_place() {
            self.take_place(&request).await.inspect_err(refused)?;
        }
        let (hold, until) = (self.hold_of(&attempt), attempt.until);
        // There is no record to keep a journal in.
        let unwritten = self.unwritten(&request, &attempt);
        let claim = self.claim_of(
            request.subject(),
            Some(hold),
            None,
            Some(until),
            Some(unwritten),
        );
        let end = request.options.store_end();
        Ok(Begun::Run(self.run(
            claim,
            Protection::Claimless(request, Box::new(attempt)),
            end,
        )))
    }

    fn claimed(self: &Arc<Self>, request: Box<Request>, hold: Hold) -> Run {
        self.hold_key(&request.id, &hold.owner, hold.lease);
        let until = hold.lease - self.settings.skew_margin;
        let journal = Some(Arc::clone(self));
        let longest = self.settings.max_duration;
        let time = if self
            .settings
            .lease_beyond_deadline(&request.options)
            .is_some()
        {
            ClaimTime::beyond(until, until + longest)
        } else {
            let renewed = self.settings.lease_to_renew(&request.options);
            let limit = renewed.map_or(until, |lease| until - lease + longest);
            ClaimTime::renewed(until, limit)
        };
        let hold_of = Some(hold.clone());
        let claim = self.claim_of(request.subject(), hold_of, journal, Some(time), None);
        let end = request.options.store_end();
        self.run(claim, Protection::Claimed(request, hold), end)
    }

    fn run(
        self: &Arc<Self>,
        claim: Claim,
        protection: Protection,
        store_end: Option<Instant>,
    ) -> Run {
        Run {
            engine: Arc::clone(self),
            claim,
            protection,
            store_end,
        }
    }

    /// Makes a claim, as [`Claim::new`] does.
    fn claim_of(
        &self,
        subject: Subject,
        hold: Option<Hold>,
        journal: Option<Arc<Self>>,
        time: Option<impl Into<ClaimTime>>,
        unwritten: Option<Unwritten>,
    ) -> Claim {
        let clock = Arc::clone(&self.clock);
        let collected = Collected::new(self.store.admission(), unwritten);
        let time = time.map(Into::into);
        Claim::new(subject, hold, journal, time, clock, collected)
    }

    /// Acquires the claim, or returns the obstacle.
    async fn acquire(&self, request: &Request) -> Result<Acquired, Obstacle> {
        let began = self.moment();
        let acquired = self.try_acquire(request, began).await;
        request.meter.claimed_in(began.instant.elapsed());
        acquired
    }

    async fn try_acquire(&self, request: &Request, mut now: Moment) -> Result<Acquired, Obstacle> {
        let owner = self.new_owner(request)?;
        let (mut found, mut right, mut wait) = (None, None, self.wait(request));
        // A record that was met before has a fingerprint that counts.
        let (mut rounds, mut keeps, mut sent) = (0, false, None);
        if request.options.read_first || self.permission.is_refused() {
            // It saves a write that would fail. Without it, the claim itself finds out.
            found = Box::pin(self.look_first(request)).await.unwrap_or_default();
            now = self.moment();
        }
        // A claim of this run may have applied, and no reply said so.
        let is_silent = AtomicBool::new(false);
        loop {
            // One's own claim tells nothing of the attempt before.
            if !is_mine(found.as_ref(), &owner) {
                request.meet(found.as_ref(), now.time);
            }
            let asking = Asking::new(&owner, request.fingerprint.as_ref(), now.time);
            let (over, attempt, keeps_fingerprint) =
                match decide(found.as_ref(), asking, &self.settings.rules()) {
                    Decision::Create => (None, 1, false),
                    Decision::TakeOver {
                        seen,
                        mode,
                        attempt,
                    } => {
                        let keeps = mode != Takeover::Fresh && has_fingerprint(found.as_ref());
                        (Some((seen.clone(), mode)), attempt, keeps)
                    }
                    Decision::Mine(record) => {
                        let hold = Hold::of_record(&owner, record, keeps, sent.unwrap_or(now));
                        return self.start(request, hold, right).await;
                    }
                    Decision::Replay(record) | Decision::ReplayFailure(record) => {
                        return Ok(Acquired::Replay(Box::new(record.clone())));
                    }
                    other => {
                        let obstacle = self.obstacle(request, &other, now.time);
                        let place = request.options.place.as_deref();
                        let seen = self.look_again(request, &obstacle, &mut wait, place);
                        found = seen.await.ok_or(obstacle)?;
                        now = self.moment();
                        rounds = 0;
                        continue;
                    }
                };
            if rounds == MAX_ROUNDS {
                return Err(self.in_flight(request, Duration::ZERO));
            }
            if !request.options.has_place() {
                self.take_place(request).await?;
                now = self.moment();
            }
            rounds += 1;
            right = right.or_else(|| self.permission.claim(now.time));
            if right.is_none() {
                return Err(StoreError::Denied(NO_COMPLETION.into()).into());
            }
            let claim = self.new_claim(request, &owner, attempt, now.time);
            keeps |= keeps_fingerprint;
            let began = *sent.get_or_insert(now);
            let mut hold = Hold::of_claim(&claim, keeps_fingerprint, began);
            // It may have applied although its reply was not waited for.
            let left = || {
                if is_silent.load(Ordering::Relaxed) {
                    self.leave_claimed(request, &hold);
                }
            };
            let unless_dropped = OnDrop::new(left);
            let answer = self.send_claim(request, claim, over, now, &is_silent).await;
            unless_dropped.disarm();
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    if is_silent.load(Ordering::Relaxed) {
                        // Under `FailOpen` the work runs without this claim, and with this payload.
                        hold.keeps_fingerprint = true;
                        Box::pin(self.give_up(request, &hold)).await;
                    }
                    return Err(error.into());
                }
            };
            match answer {
                Answer::Applied(left) => {
                    return self.take_over(request, hold, left, right).await;
                }
                Answer::Refused(other) => {
                    // What refused it may be its own record.
                    if other.is_none() {
                        is_silent.store(true, Ordering::Relaxed);
                        if rounds == MAX_ROUNDS {
                            self.leave_claimed(request, &hold);
                        }
                    }
                    found = other;
                }
            }
            now = self.moment();
        }
    }

    /// Sends the claim, and retries what the SDK does not retry. A store that can't be reached is
    /// not asked again: the caller gets the error. Notes whether a send began and had no answer, so
    /// that it may have applied.
    async fn send_claim(
        &self,
        request: &Request,
        claim: NewClaim,
        over: Option<(Version, Takeover)>,
        now: Moment,
        is_silent: &AtomicBool,
    ) -> Result<Answer, StoreError> {
        let deadline = self.deadline_to_begin(request, now, 1);
        let write = RecordWrite::claim(claim, over);
        let send = async || {
            let was_silent = is_silent.swap(true, Ordering::Relaxed);
            let answer = self.write(request, &write, deadline).await;
            // A claim that was not sent may be in a group which is sent later.
            let is_answered = !answer.as_ref().is_err_and(|error| {
                error.may_have_applied() || matches!(error, StoreError::NotSent)
            });
            is_silent.store(was_silent || !is_answered, Ordering::Relaxed);
            answer
        };
        let turns = Turns::Begin(&self.pace, &request.id);
        persist(turns, deadline, is_rejected_for_now, send).await
    }

    /// Takes the request's place again after a wait; an obstacle where none was free in time.
    async fn take_place(&self, request: &Request) -> Result<(), Obstacle> {
        // A drain that gave up holds no places any more.
        let is_closed = !request.options.is_batch() && self.detached.is_draining();
        if is_closed || !request.options.takes_place().await {
            return Err(self.in_flight(request, Duration::ZERO));
        }
        Ok(())
    }

    /// Tries once, for a short time, to end a claim that may have applied although no reply came, and
    /// leaves the rest to later calls. Left alone, it holds the key until its lease is over.
    async fn give_up(&self, request: &Request, hold: &Hold) {
        let Some(sent) = Self::new_release(request, hold, Some(WITHOUT_REPLY)) else {
            return;
        };
        let release = self.send_release(request, hold, &sent, is_rejected_for_now);
        // Where it has no answer by then, the next call sends it again.
        let Ok(answer) = tokio::time::timeout(LEAST_STORE_TIME, release).await else {
            return;
        };
        // Refused by its own tombstone, it has applied.
        if let Ok(Answer::Refused(Some(found))) = &answer
            && !is_mine(Some(found), &sent.tombstone)
        {
            request.note_record();
        }
        if answer.is_ok() && self.may_arrive(request, &sent, &answer) {
            self.leave_for_later(request, hold, sent, 0);
        }
    }

    /// Starts with the journal that the predecessor left: the reply has what it wrote up to the takeover,
    /// and what was read before may not.
    async fn take_over(
        &self,
        request: &Request,
        mut hold: Hold,
        left: Option<Found>,
        right: Option<ClaimRight<'_>>,
    ) -> Result<Acquired, Obstacle> {
        match left.map(|found| found.content).transpose() {
            Ok(record) => {
                hold.journal = record.map(|record| record.journal).unwrap_or_default();
                self.start(request, hold, right).await
            }
            Err(reason) => {
                Box::pin(self.release(request, &hold, None)).await;
                Err(Error::Unreadable(reason))
            }
        }
    }

    /// Hands out a claim, or releases one whose reply came when its time was over. The margin is
    /// not the attempt's to use: another machine's clock may have reached the lease already.
    async fn start(
        &self,
        request: &Request,
        hold: Hold,
        right: Option<ClaimRight<'_>>,
    ) -> Result<Acquired, Obstacle> {
        if hold.began.later(self.clock.now()) >= hold.lease - self.settings.skew_margin {
            Box::pin(self.release(request, &hold, Some(NOT_STARTED))).await;
            return Err(Error::TooLate);
        }
        if let Some(right) = right {
            right.spend();
        }
        events::claimed(request, &hold);
        Ok(Acquired::Claimed(hold))
    }

    fn begin_unprotected(
        self: &Arc<Self>,
        key: Option<&Key>,
        id: RecordId,
        options: &Options,
        reason: &dyn Display,
    ) -> Begun {
        events::unprotected(key.map_or("", Key::operation), key.map(|_| &id), reason);
        self.meter(key).count(Count::Unprotected);
        let claim = self.bare_claim(key, id, options);
        let end = options.store_end();
        Begun::Run(self.run(claim, Protection::None, end))
    }

    /// Makes a claim that nothing protects.
    fn bare_claim(&self, key: Option<&Key>, id: RecordId, options: &Options) -> Claim {
        let operation = key.map(Key::shared_operation).unwrap_or_default();
        let subject = Subject {
            operation,
            id,
            meter: self.meter(key),
        };
        self.claim_of(subject, None, None, options.deadline, None)
    }

    async fn begin_shadow(
        self: &Arc<Self>,
        key: Option<Key>,
        fingerprint: Option<Fingerprint>,
        options: Options,
    ) -> Result<Begun, Obstacle> {
        let span = tracing::info_span!("observed_only");
        let claimed = self.claim_shadow(key.as_ref(), fingerprint, options.clone());
        let claimed = claimed.instrument(span.clone()).await;
        let id = match key.as_ref().and_then(|key| self.derived_id(key)) {
            Some(id) => id,
            None => unkeyed()?,
        };
        let claim = self.bare_claim(key.as_ref(), id, &options);
        let end = options.store_end();
        let shadow = claimed.map(|(request, hold)| {
            Box::new(Shadow {
                request,
                hold,
                span,
            })
        });
        Ok(Begun::Run(self.run(claim, Protection::Shadow(shadow), end)))
    }

    /// Makes the shadow claim, where the handler would have run.
    async fn claim_shadow(
        &self,
        key: Option<&Key>,
        fingerprint: Option<Fingerprint>,
        options: Options,
    ) -> Option<(Request, Hold)> {
        let resolve = |key| self.request(key, fingerprint, options);
        let request = match key.ok_or(KeyError::Missing).and_then(resolve) {
            Ok(request) => request,
            Err(error) => {
                events::unprotected(key.map_or("", Key::operation), None, &error);
                self.meter(key).count(Count::Unprotected);
                return None;
            }
        };
        match self.acquire(&request).await {
            Ok(Acquired::Claimed(hold)) => return Some((request, hold)),
            Ok(Acquired::Replay(record)) => events::replayed(&request, &record),
            Err(error) => events::refused(&request, &error),
        }
        None
    }
}

/// Makes a random id for a request without a usable key.
fn unkeyed() -> Result<RecordId, Obstacle> {
    let owner = Owner::random().map_err(Error::Entropy)?;
    Ok(RecordId::unkeyed(owner.as_str()))
}

/// Returns whether the record has a fingerprint: a crashed attempt, or one that was released with its
/// fingerprint, may have had an effect with this payload.
fn has_fingerprint(found: Option<&Found>) -> bool {
    let record = found.and_then(Found::record);
    record.is_some_and(|record| record.fingerprint.is_some())
}
