//! Sends the endings that dropped runs have left.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::{Later, Unsent, with_outcome};
use crate::engine::fence::{Fence, fence, is_mine};
use crate::engine::pace::Turns;
use crate::engine::persist::persist;
use crate::engine::{Engine, REPLY_TIME, Request, events};
use crate::protocol::record::{Omission, RecordWrite, Release, StoredOutcome, WITHOUT_REPLY};
use crate::protocol::{Asking, Decision, decide};
use crate::store::{Answer, StoreError};

/// The longest time that a call spends on the endings of others.
const LONGEST_SEND: Duration = Duration::from_secs(1);

impl Engine {
    /// Sends what dropped runs have left, before this request is claimed.
    pub(in crate::engine) async fn send_unsent(&self, request: &Request) {
        if self.unsent.has_due(&request.id) {
            Box::pin(self.send_before(request)).await;
        }
    }

    /// Sends the endings in at most half of the request's own time. What isn't answered by then
    /// stays for the next call.
    async fn send_before(&self, request: &Request) {
        let now = self.moment();
        let until = self.run_until(request, now.time);
        let left = until.saturating_since(now.time).saturating_sub(REPLY_TIME);
        let limit = LONGEST_SEND.min(self.settings.store_timeout);
        let time = (left / 2).min(limit);
        if time.is_zero() {
            return;
        }
        let deadline = now.instant + time;
        let sent = async {
            let _turn = self.unsent.turn.lock().await;
            let next = self.unsent.next(&request.id);
            join_all(next.iter().map(|unsent| self.send_one(unsent, deadline))).await;
        };
        // Dropped at the deadline: what has no answer stays in the queue.
        let _ = timeout_at(deadline, sent).await;
    }

    /// Sends an ending, and forgets it where the store has answered, or its lease is over.
    async fn send_one(&self, unsent: &Arc<Unsent>, deadline: Instant) {
        let Unsent { request, hold, .. } = &**unsent;
        if let (RecordWrite::Release(release), Some(later)) = (&unsent.write, unsent.later) {
            return self.send_late(unsent, release, later, deadline).await;
        }
        let mut write = self.packed(unsent).await;
        let mut answer = self.send_again(&write, deadline).await;
        if let (Err(StoreError::TooLarge), RecordWrite::Complete(completion)) = (&answer, &*write) {
            let omitted = StoredOutcome::Omitted(Omission::TooLarge);
            write = Cow::Owned(with_outcome(completion, omitted));
            answer = self.send_again(&write, deadline).await;
        }
        let is_open = self.clock.now() < hold.lease;
        if is_open && answer.as_ref().is_err_and(StoreError::is_transient) {
            return;
        }
        self.unsent.remove(unsent);
        if let RecordWrite::Release(release) = &*write
            && is_open
            && release.last_error.as_deref() == Some(WITHOUT_REPLY)
            && self.may_arrive(request, release, &answer)
        {
            self.leave_for_later(request, hold, release.clone(), 0);
        }
        match &*write {
            RecordWrite::Complete(completion) => {
                self.note_permission(&answer);
                let finished = answer.map(|answer| match answer {
                    Answer::Applied(_) => Fence::Held,
                    Answer::Refused(found) => fence(request, completion, found.as_ref()),
                });
                events::finished(request, hold.attempt, completion, &finished);
            }
            RecordWrite::Release(release) => match answer {
                Ok(_) => events::released(request, hold.attempt, release.last_error.as_deref()),
                Err(error) => events::release_failed(request, hold.attempt, &error),
            },
            _ => {}
        }
    }

    /// Sends the release of a claim that may still arrive, once. An answer counts as a try where the
    /// release was due; without one it is sent again after the same pause.
    async fn send_late(&self, unsent: &Unsent, release: &Release, later: Later, deadline: Instant) {
        let Unsent { request, hold, .. } = unsent;
        let is_due = later.is_due();
        let put_off = |tries| {
            self.unsent.remove(unsent);
            if self.clock.now() < hold.lease {
                self.leave_for_later(request, hold, release.clone(), tries);
            }
        };
        if is_due {
            put_off(later.tries);
        }
        let answer = self.store.write(&unsent.write, deadline).await;
        let is_answered = !answer.as_ref().is_err_and(StoreError::is_transient);
        if !self.may_arrive(request, release, &answer) {
            self.unsent.remove(unsent);
        } else if is_due && is_answered {
            put_off(later.tries + 1);
        }
        if let Ok(Answer::Applied(_)) = answer {
            events::released(request, hold.attempt, release.last_error.as_deref());
        }
    }

    /// Tells whether a claim may still be on its way, and apply, whose release had this answer: it met no
    /// claim, or a record that any claim takes over. Where the claim itself is shown, it came after the
    /// release.
    pub(in crate::engine) fn may_arrive(
        &self,
        request: &Request,
        release: &Release,
        answer: &Result<Answer, StoreError>,
    ) -> bool {
        let found = match answer {
            Ok(Answer::Applied(_)) => return false,
            Ok(Answer::Refused(found)) => found.as_ref(),
            Err(error) => return error.is_transient(),
        };
        let fingerprint = request.fingerprint.as_ref();
        let asking = Asking::new(&release.owner, fingerprint, self.clock.now());
        let decision = decide(found, asking, &self.settings.rules);
        let is_open = matches!(
            decision,
            Decision::Create | Decision::TakeOver { .. } | Decision::Mine(_)
        );
        is_open && !is_mine(found, &release.tombstone)
    }

    /// Returns the write, whose large outcome is kept first.
    async fn packed<'a>(&self, unsent: &'a Unsent) -> Cow<'a, RecordWrite> {
        let Unsent {
            request,
            hold,
            write,
            large,
            ..
        } = unsent;
        if let (Some(text), RecordWrite::Complete(completion)) = (large, write) {
            let until = completion.expiration;
            let outcome = Box::pin(self.pack(request, hold, text, until)).await;
            return Cow::Owned(with_outcome(completion, outcome));
        }
        Cow::Borrowed(write)
    }

    async fn send_again(
        &self,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let send = || self.store.write(write, deadline);
        persist(
            Turns::End(&self.pace, write.id()),
            deadline,
            StoreError::is_transient,
            send,
        )
        .await
    }
}
