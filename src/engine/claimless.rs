//! Carries out the claimless form, which has no claim before the handler and one commit after it: a
//! transaction, or a record without business writes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::engine::acquire::MAX_ROUNDS;
use crate::engine::claim::{Claim, Hold};
use crate::engine::commit::Sent;
use crate::engine::error::{Error, Obstacle};
use crate::engine::fence::{Fence, Uncommitted, is_mine, unanswered};
use crate::engine::fence_off::FencedOff;
use crate::engine::metrics::Count;
use crate::engine::protection::{Protection, Unclaimed};
use crate::engine::request::LEAST_RETENTION;
use crate::engine::settings::InFlight;
use crate::engine::{Begun, Disposition, Ended, Engine, Request, events};
use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::Journal;
use crate::protocol::record::{Basis, Completion, Final, Record};
use crate::protocol::{Asking, Decision, decide};
use crate::store::transaction::{Committed, Unwritten, Write, WriteError};

/// The result of an attempt without a claim.
#[derive(Debug)]
enum Applied {
    /// The commit was sent, with this result.
    Sent(Result<Fence, Uncommitted>),
    /// An earlier outcome, or failure, is final and is replayed.
    Replay(Box<Record>),
}

impl Engine {
    pub(super) async fn begin_claimless(
        self: &Arc<Self>,
        request: Box<Request>,
    ) -> Result<Begun, Obstacle> {
        // A failure is a record, too, which a late copy of a commit must not outlive.
        let retention = request.retention.min(self.settings.failure_retention);
        let looked = if self.store.admission().is_none() {
            Err(Error::Write(WriteError::NotSupported))
        } else if retention < LEAST_RETENTION {
            Err(Error::Write(WriteError::RetentionTooShort { retention }))
        } else {
            let read_first = request.options.read_first || self.reads_first.load(Ordering::Relaxed);
            self.look_unclaimed(&request, read_first).await
        };
        let attempt = match looked.inspect_err(|error| events::refused(&request, error))? {
            Ok(attempt) => attempt,
            Err(record) => return self.replay(request, record, false).await.map(Begun::Replay),
        };
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
        request.meter.count(Count::Executions);
        let end = request.options.store_end();
        Ok(Begun::Run(self.run(
            claim,
            Protection::Claimless(request, Box::new(attempt)),
            end,
        )))
    }

    fn hold_of(&self, attempt: &Unclaimed) -> Hold {
        Hold {
            owner: attempt.owner.clone(),
            attempt: 1,
            lease: attempt.until + self.settings.rules.skew_margin,
            keeps_fingerprint: false,
            journal: Journal::default(),
        }
    }

    fn unwritten(&self, request: &Request, attempt: &Unclaimed) -> Unwritten {
        let wait = match self.settings.in_flight {
            InFlight::FailFast => Duration::ZERO,
            InFlight::WaitUpTo(limit) => self.longest_wait(request, limit),
        };
        let generation = self.keys_of(request, attempt, attempt.started_at);
        Unwritten {
            id: request.id.clone(),
            owner: attempt.owner.clone(),
            expiration: (attempt.started_at + request.retention).ceil_seconds(),
            fingerprint: request.fingerprint.clone(),
            rules: self.settings.rules.clone(),
            wait,
            clock: Arc::clone(&self.clock),
            met: Mutex::default(),
            generation: generation.into(),
        }
    }

    /// Returns the generation of the keys that the record, as it was found, lets an attempt derive.
    fn keys_of(&self, request: &Request, attempt: &Unclaimed, now: EpochMillis) -> u32 {
        let asking = Asking::new(&attempt.owner, request.fingerprint.as_ref(), now);
        let found = attempt.found.as_ref();
        decide(found, asking, &self.settings.rules).key_generation(found)
    }

    /// Has each later attempt read its record first, where this one, which committed nothing, derived
    /// keys that its record no longer gives: without a commit it would not learn of them.
    fn compare_keys(&self, request: &Request, claim: &Claim, now: &Unclaimed) {
        let asked = self.keys_of(request, now, now.started_at);
        if claim.derived_generation().is_some_and(|keys| keys != asked) {
            self.reads_first.store(true, Ordering::Relaxed);
        }
    }

    /// Ends a run without a claim whose work didn't return: nothing is written.
    pub(super) async fn end_claimless_crashed(&self, request: &Request, claim: &Claim) {
        // An open transaction among them holds the record's place, and a connection that the read may
        // wait for.
        drop(claim.collected().close());
        if claim.derived_generation().is_some()
            && let Ok(Ok(now)) = self.look_unclaimed(request, true).await
        {
            self.compare_keys(request, claim, &now);
        }
    }

    pub(super) async fn end_claimless(
        &self,
        request: Box<Request>,
        mut attempt: Unclaimed,
        claim: &Claim,
        disposition: Disposition,
    ) -> Result<Ended, Obstacle> {
        let mut writes = claim.collected().close();
        if !matches!(disposition, Disposition::Complete(_)) {
            // An open transaction among them holds the record's place.
            writes.clear();
        }
        let met = claim.unwritten().and_then(Unwritten::take_met);
        if met.is_some() {
            attempt.found = met;
            // What the transaction met counts, whatever error the handler made of it.
            if !matches!(disposition, Disposition::Complete(_)) {
                let record = self.record_in_the_way(&request, &attempt);
                if let Some(record) =
                    record.inspect_err(|error| events::refused(&request, error))?
                {
                    return self.replay(request, record, false).await.map(Ended::Replay);
                }
            }
        }
        let earlier = match disposition {
            Disposition::Complete(outcome) => {
                let hold = self.hold_of(&attempt);
                let completion = self.completion_of(&request, &hold, outcome).await;
                let keys = claim.derived_generation();
                let applied = self.apply(&request, attempt, keys, completion, writes);
                let applied = applied.await;
                match applied.inspect_err(|error| events::refused(&request, error))? {
                    Applied::Sent(sent) => return self.conclude(request, sent?).await,
                    Applied::Replay(record) => Some(record),
                }
            }
            Disposition::Fail(failure) => {
                let failure = self.failure_of(&request, &attempt.owner, &failure);
                let keys = claim.derived_generation();
                let applied = self.apply(&request, attempt, keys, failure, Vec::new());
                match applied.await {
                    Ok(Applied::Replay(record)) => Some(record),
                    // Not stored, it fails again, which changes nothing.
                    Ok(Applied::Sent(_)) | Err(_) => None,
                }
            }
            // A duplicate may fail because the original has succeeded: it gets the original's
            // outcome.
            Disposition::Release(_) => match self.look_unclaimed(&request, true).await {
                Ok(Err(record)) => Some(record),
                Err(error @ Error::Mismatch) => {
                    events::refused(&request, &error);
                    return Err(error);
                }
                Ok(Ok(now)) => {
                    self.compare_keys(&request, claim, &now);
                    None
                }
                Err(_) => None,
            },
        };
        match earlier {
            Some(record) => self.replay(request, record, false).await.map(Ended::Replay),
            None => Ok(Ended::Done),
        }
    }

    /// Begins an attempt without a claim. A hinted redelivery reads the record first, since a
    /// transaction that fails costs more than a read.
    async fn look_unclaimed(
        &self,
        request: &Request,
        read_first: bool,
    ) -> Result<Result<Unclaimed, Box<Record>>, Obstacle> {
        let owner = self.new_owner(request)?;
        let started_at = self.clock.now();
        let mut found = None;
        if read_first {
            // The read only saves a transaction that would fail. Without it, the transaction itself
            // finds out.
            found = self.look(request).await.unwrap_or_default();
        }
        let attempt = Unclaimed {
            owner,
            until: self.run_until(request, started_at),
            started_at,
            found,
        };
        let earlier = self.record_in_the_way(request, &attempt)?;
        Ok(earlier.map_or(Ok(attempt), Err))
    }

    /// Returns the final record that was found; `None` where the attempt may write its own.
    fn record_in_the_way(
        &self,
        request: &Request,
        attempt: &Unclaimed,
    ) -> Result<Option<Box<Record>>, Obstacle> {
        let now = self.clock.now();
        let asking = Asking::new(&attempt.owner, request.fingerprint.as_ref(), now);
        match decide(attempt.found.as_ref(), asking, &self.settings.rules) {
            Decision::Create | Decision::TakeOver { .. } => Ok(None),
            Decision::Replay(record) | Decision::ReplayFailure(record) => {
                Ok(Some(Box::new(record.clone())))
            }
            other => Err(self.obstacle(request, &other, now)),
        }
    }

    /// Writes the outcome and the business writes, if the record has no other outcome. Where a send
    /// of any round was silent, the key is fenced off before it is said that nothing was written.
    ///
    /// `keys` is the generation of the keys that the handler derived. Where the record asks for
    /// another one, nothing is written: the next attempt reads the record first.
    async fn apply(
        &self,
        request: &Request,
        attempt: Unclaimed,
        keys: Option<u32>,
        mut completion: Completion,
        writes: Vec<Write>,
    ) -> Result<Applied, Obstacle> {
        let Unclaimed {
            owner,
            until,
            started_at,
            mut found,
        } = attempt;
        let mut has_silent = false;
        for round in 0..MAX_ROUNDS {
            let now = self.clock.now();
            let asking = Asking::new(&owner, request.fingerprint.as_ref(), now);
            let decision = decide(found.as_ref(), asking, &self.settings.rules);
            let asked = decision.key_generation(found.as_ref());
            let (basis, number) = match decision {
                Decision::Create | Decision::TakeOver { .. }
                    if keys.is_some_and(|keys| keys != asked) =>
                {
                    self.reads_first.store(true, Ordering::Relaxed);
                    return Err(self.in_flight(request, Duration::ZERO));
                }
                Decision::Create => {
                    let claim = self.new_claim(request, &owner, 1, started_at);
                    (Basis::Absent(claim), 1)
                }
                Decision::TakeOver {
                    seen,
                    mode,
                    attempt,
                } => {
                    let claim = self.new_claim(request, &owner, attempt, started_at);
                    let seen = seen.clone();
                    (Basis::Version { seen, mode, claim }, attempt)
                }
                Decision::Replay(record) | Decision::ReplayFailure(record) => {
                    return Ok(Applied::Replay(Box::new(record.clone())));
                }
                other => return Err(self.obstacle(request, &other, now)),
            };
            let mut record = Final { completion, basis };
            let token = format!("{}-{round}", owner.as_str());
            let end = request.options.store_end();
            let sent = self.send_final(&mut record, token, &writes, until, end);
            let Sent { answer, is_silent } = sent.await;
            has_silent |= is_silent;
            let state = match &answer {
                Ok(Committed::Applied) => FencedOff::Committed,
                // An earlier send committed, and its reply was lost: nothing but a commit of this
                // attempt writes its owner.
                Ok(Committed::Fenced(other)) if is_mine(other.as_ref(), &owner) => {
                    FencedOff::Committed
                }
                Ok(Committed::Fenced(other)) => FencedOff::Met(other.clone()),
                _ if has_silent => {
                    let fenced = self.fence_off(request, &record.basis, found.as_ref(), until);
                    Box::pin(fenced).await
                }
                _ => FencedOff::Never,
            };
            let sent = match (state, answer) {
                (FencedOff::Committed, _) => Ok(Fence::Held),
                (FencedOff::Met(other), _) => {
                    found = other;
                    completion = record.completion;
                    continue;
                }
                (FencedOff::Never, Ok(Committed::Refused(refusal))) => {
                    Err(Uncommitted::Refused(refusal.asked(writes)))
                }
                (FencedOff::Never, answer) => Err(Uncommitted::NotCommitted(
                    answer.err().unwrap_or_else(unanswered),
                )),
                (FencedOff::Unknown, answer) => Err(Uncommitted::Unknown(
                    answer.err().unwrap_or_else(unanswered),
                )),
            };
            events::committed(request, number, &record.completion, &sent);
            return Ok(Applied::Sent(sent));
        }
        if has_silent {
            let sent = Err(Uncommitted::Unknown(unanswered()));
            events::committed(request, 1, &completion, &sent);
            return Ok(Applied::Sent(sent));
        }
        Err(self.in_flight(request, Duration::ZERO))
    }
}
