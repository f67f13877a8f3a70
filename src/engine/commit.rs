//! Ends a claim together with business writes, in one transaction under the fence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::claim::Hold;
use crate::engine::fence::{Fence, Uncommitted, fence, is_mine, unanswered};
use crate::engine::pace::Turns;
use crate::engine::persist::{is_rejected_for_now, persist};
use crate::engine::unsent::OnDrop;
use crate::engine::{Engine, LEAST_STORE_TIME, Request, events};
use crate::protocol::clock::EpochMillis;
use crate::protocol::record::{Basis, Final, Omission, Owner, StoredOutcome};
use crate::store::transaction::{Commit, Committed, Write};
use crate::store::{Answer, StoreError};

/// The longest time for the sends of a commit without a record: only the request's token tells them
/// apart, and DynamoDB
/// [remembers it for 10 minutes](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html).
const LONGEST_BY_TOKEN: Duration = Duration::from_mins(5);

/// The last error of a claim whose commit has not applied.
const NOT_COMMITTED: &str = "not committed";

/// The answer to a commit, and whether it speaks for all sends of it.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) answer: Result<Committed, StoreError>,
    /// A send got no answer: it may have applied, or may still arrive and apply, whatever answer a
    /// later one got.
    pub(super) is_silent: bool,
}

/// The proof that a record gives about a transaction that wasn't confirmed.
enum Proof {
    /// It committed, or a successor took its place.
    Fence(Fence),
    NotCommitted,
    Nothing,
}

impl Engine {
    /// Commits a success and the business writes. Where they are not written, the claim is
    /// released.
    ///
    /// Dropped before the commit was answered, it leaves a release: where the commit has applied,
    /// the record is final and refuses it; where the commit arrives later, it meets a tombstone and
    /// is refused. The writes themselves are not left: nobody would learn whether their conditions
    /// held.
    pub(super) async fn commit(
        &self,
        request: &Request,
        hold: &Hold,
        outcome: Result<String, Omission>,
        writes: Vec<Write>,
    ) -> Result<Fence, Uncommitted> {
        let left = || self.leave_release(request, hold, NOT_COMMITTED);
        let unless_dropped = OnDrop::new(left);
        let mut record = Final {
            completion: self.completion_of(request, hold, outcome).await,
            basis: Basis::Claimed,
        };
        let until = hold.lease - self.settings.rules.skew_margin;
        let token = hold.owner.as_str().to_owned();
        let began = Instant::now();
        let end = request.options.store_end();
        let sent = self.send_final(&mut record, token, &writes, until, end);
        let Sent { answer, is_silent } = sent.await;
        unless_dropped.disarm();
        if answer.is_ok() {
            self.permission.granted();
        }
        let committed = match answer {
            Ok(Committed::Applied) => Ok(Fence::Held),
            Ok(Committed::Fenced(found)) => Ok(fence(request, &record.completion, found.as_ref())),
            Ok(Committed::Refused(refusal)) => {
                let reason = "a condition failed";
                match self.prove(request, hold, &record, reason, is_silent).await {
                    // An earlier send came later, and its conditions held.
                    Proof::Fence(Fence::Held) => Ok(Fence::Held),
                    Proof::Nothing if is_silent => Err(Uncommitted::Unknown(unanswered())),
                    _ => Err(Uncommitted::Refused(refusal.asked(writes))),
                }
            }
            Err(error) => {
                match self
                    .prove(request, hold, &record, NOT_COMMITTED, is_silent)
                    .await
                {
                    Proof::Fence(fence) => Ok(fence),
                    Proof::Nothing if is_silent => Err(Uncommitted::Unknown(error)),
                    // Each send was answered, and none of them applied.
                    Proof::Nothing | Proof::NotCommitted => Err(Uncommitted::NotCommitted(error)),
                }
            }
        };
        request.meter.completed_in(began.elapsed());
        events::committed(request, hold.attempt, &record.completion, &committed);
        committed
    }

    /// Ends the claim of a transaction that wasn't confirmed, and finds out whether it committed.
    /// Only the fence proves that: a release that applies proves that it has not committed, and
    /// never will; the completed record proves that it has. Where a send was silent, the release is
    /// sent until it is answered, for as long as the time allows.
    async fn prove(
        &self,
        request: &Request,
        hold: &Hold,
        record: &Final,
        last_error: &str,
        is_silent: bool,
    ) -> Proof {
        let Ok(tombstone) = Owner::random() else {
            return Proof::Nothing;
        };
        let again: fn(&StoreError) -> bool = if is_silent {
            StoreError::is_transient
        } else {
            is_rejected_for_now
        };
        let released = self.release_as(tombstone.clone(), request, hold, Some(last_error), again);
        let found = match released.await {
            Ok(Answer::Applied(_)) => return Proof::NotCommitted,
            Ok(Answer::Refused(found)) => found,
            Err(_) => return Proof::Nothing,
        };
        // An earlier send of this very release applied.
        if is_mine(found.as_ref(), &tombstone) {
            return Proof::NotCommitted;
        }
        let met = found.as_ref().and_then(|found| found.content.as_ref().ok());
        match fence(request, &record.completion, found.as_ref()) {
            Fence::Held => Proof::Fence(Fence::Held),
            // A successor took over what was still in progress: this transaction had not committed,
            // and can't any more.
            lost if met.is_some_and(|met| met.attempt > hold.attempt) => Proof::Fence(lost),
            _ => Proof::Nothing,
        }
    }

    /// Sends a final record, alone or with business writes, until it is answered. An outcome that
    /// turns out too large for the store is left out, so that a success can't fail for ever.
    pub(super) async fn send_final(
        &self,
        record: &mut Final,
        mut token: String,
        writes: &[Write],
        until: EpochMillis,
        end: Option<Instant>,
    ) -> Sent {
        let first = self
            .send_commit(Some(record), &token, writes, until, end)
            .await;
        if !matches!(first.answer, Err(StoreError::TooLarge)) {
            return first;
        }
        record.completion.outcome = StoredOutcome::Omitted(Omission::TooLarge);
        // Another request has another token.
        token.push('o');
        let second = self
            .send_commit(Some(record), &token, writes, until, end)
            .await;
        Sent {
            is_silent: first.is_silent || second.is_silent,
            ..second
        }
    }

    /// Sends a commit until it is answered, and leaves time to find out what became of it where no
    /// answer comes; none of it lasts beyond `end`. The store sends it once for each call, so each
    /// send without an answer is seen here.
    pub(super) async fn send_commit(
        &self,
        record: Option<&Final>,
        token: &str,
        writes: &[Write],
        until: EpochMillis,
        end: Option<Instant>,
    ) -> Sent {
        let longest = match record {
            Some(_) => Duration::MAX,
            None => LONGEST_BY_TOKEN,
        };
        let deadline = self
            .moment()
            .store_deadline(until - LEAST_STORE_TIME, longest, end);
        let commit = Commit::new(token, record, writes);
        let silent = AtomicBool::new(false);
        let send = || async {
            let answer = self.store.commit(commit, deadline).await;
            let is_silent = matches!(&answer, Err(error) if error.is_unreachable());
            silent.fetch_or(is_silent, Ordering::Relaxed);
            answer
        };
        let answer = persist(Turns::Elsewhere, deadline, StoreError::is_transient, send).await;
        Sent {
            answer,
            is_silent: silent.into_inner(),
        }
    }
}
