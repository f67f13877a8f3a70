//! Keeps the endings of runs that were dropped, and those without an answer, for the engine's next call
//! to send.
//!
//! Nothing is spawned: an ending goes into the queue where its future is dropped, and
//! [`send_unsent`](crate::engine::Engine::send_unsent) sends it before the next claim.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout, timeout_at};

use crate::engine::error::Obstacle;
use crate::engine::fence::{Hold, is_mine};
use crate::engine::pace::Turns;
use crate::engine::persist::persist;
use crate::engine::time::LONGEST;
use crate::engine::{Engine, REPLY_TIME, Request, events};
use crate::protocol::journal::Journal;
use crate::protocol::key::RecordId;
use crate::protocol::lock::lock;
use crate::protocol::record::{
    Completion, Omission, Owner, RecordWrite, Release, StoredOutcome, WITHOUT_REPLY,
};
use crate::protocol::{Asking, Decision, Settled, decide};
use crate::store::{Answer, StoreError};

#[cfg(test)]
mod tests;

/// The most endings that are kept.
const MOST: usize = 256;

/// The most bytes of outcomes that are kept.
const MOST_BYTES: usize = 8 * 1_024 * 1_024;

/// The most endings that one call sends.
const AT_ONCE: usize = 25;

/// An ending that the store has not answered.
struct Unsent {
    request: Request,
    hold: Hold,
    /// A completion, of a success or of a failure, or a release.
    write: RecordWrite,
    /// The outcome's text, where it is over the inline limit and not kept yet.
    large: Option<String>,
    /// Of the release of a claim that may still arrive: when it is sent again.
    later: Option<Later>,
}

/// The next try of a release that has met no claim.
#[derive(Clone, Copy, Debug)]
struct Later {
    due: Instant,
    tries: usize,
}

impl Later {
    /// The pauses before the tries. A request that is later than all of them has outlived its
    /// connection.
    const PAUSES: [Duration; 3] = [
        Duration::from_secs(1),
        Duration::from_secs(4),
        Duration::from_secs(16),
    ];

    /// Returns the try after this many; `None` after the last.
    fn after(tries: usize) -> Option<Self> {
        let due = Instant::now() + *Self::PAUSES.get(tries)?;
        Some(Self { due, tries })
    }

    fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }
}

impl Unsent {
    /// Counts the bytes of its outcome.
    fn bytes(&self) -> usize {
        let inline = match &self.write {
            RecordWrite::Complete(completion) => match &completion.outcome {
                StoredOutcome::Inline(text) => text.len(),
                StoredOutcome::Packed(packed) => packed.size(),
                StoredOutcome::Omitted(_) => 0,
            },
            _ => 0,
        };
        inline + self.large.as_ref().map_or(0, String::len)
    }

    /// Returns the ending without its outcome: its work was done all the same.
    fn without_outcome(&self) -> Self {
        Self {
            request: self.request.without_batch(),
            hold: self.hold.clone(),
            write: match &self.write {
                RecordWrite::Complete(completion) => {
                    with_outcome(completion, StoredOutcome::Omitted(Omission::NotKept))
                }
                other => other.clone(),
            },
            large: None,
            later: self.later,
        }
    }

    /// Ranks it by what is lost with it: without its completion an effect may happen twice, without a
    /// release the key is held until the lease is over, if a claim holds it at all.
    fn rank(&self) -> u8 {
        match &self.write {
            RecordWrite::Release(_) if self.later.is_some() => 0,
            RecordWrite::Release(release) if is_without_reply(release) => 1,
            RecordWrite::Release(_) => 2,
            _ => 3,
        }
    }

    /// Returns whether the call for this key sends it: its own key's at once.
    fn is_due(&self, id: &RecordId) -> bool {
        self.later.is_none_or(|later| later.is_due()) || self.write.id() == id
    }
}

fn is_without_reply(release: &Release) -> bool {
    release.last_error.as_deref() == Some(WITHOUT_REPLY)
}

fn with_outcome(completion: &Completion, outcome: StoredOutcome) -> RecordWrite {
    RecordWrite::Complete(Completion {
        outcome,
        ..completion.clone()
    })
}

/// The endings of an engine that are not sent yet, or not answered.
#[derive(Default)]
pub(crate) struct UnsentEndings {
    /// The number of the endings, so that a call learns without the lock that there are none.
    count: AtomicUsize,
    endings: Mutex<VecDeque<Arc<Unsent>>>,
    /// The turn to send: of the calls that arrive meanwhile, those wait for it whose key has an ending.
    turn: tokio::sync::Mutex<()>,
}

// Shows the number alone: an ending has an outcome.
debug_fields!([] UnsentEndings { count });

impl UnsentEndings {
    /// Returns whether the call for this key has anything to send.
    fn has_due(&self, id: &RecordId) -> bool {
        let is_empty = self.count.load(Ordering::Relaxed) == 0;
        !is_empty && lock(&self.endings).iter().any(|unsent| unsent.is_due(id))
    }

    /// Returns whether an ending of this key is left.
    fn has_of(&self, id: &RecordId) -> bool {
        lock(&self.endings)
            .iter()
            .any(|unsent| unsent.write.id() == id)
    }

    /// Adds an ending. Where there are too many then, the oldest of the lowest rank are discarded. Where
    /// their outcomes are too large together, the largest lose theirs: none costs another's run its
    /// ending.
    fn push(&self, unsent: Unsent) {
        let mut discarded = Vec::new();
        {
            let mut endings = lock(&self.endings);
            endings.push_back(Arc::new(unsent));
            while endings.len() > MOST {
                let ranked = endings.iter().enumerate();
                let lowest = ranked.min_by_key(|(_, unsent)| unsent.rank());
                let lowest = lowest.map_or(0, |(position, _)| position);
                discarded.extend(endings.remove(lowest));
            }
            let mut bytes: usize = endings.iter().map(|unsent| unsent.bytes()).sum();
            // Of two that are as large, the older one.
            while bytes > MOST_BYTES
                && let Some(largest) = endings.iter_mut().rev().max_by_key(|unsent| unsent.bytes())
            {
                let without = largest.without_outcome();
                bytes -= largest.bytes();
                *largest = Arc::new(without);
            }
            self.count.store(endings.len(), Ordering::Relaxed);
        }
        for oldest in discarded {
            events::ending_discarded(&oldest.request, &oldest.hold);
        }
    }

    /// Returns the endings that the next call sends: first those of its own key, then the oldest, then
    /// those that have met no claim before.
    fn next(&self, id: &RecordId) -> Vec<Arc<Unsent>> {
        let endings = lock(&self.endings);
        let due = endings.iter().filter(|unsent| unsent.is_due(id));
        let mut due: Vec<_> = due.cloned().collect();
        due.sort_by_key(|unsent| (unsent.write.id() != id, unsent.later.is_some()));
        due.truncate(AT_ONCE);
        due
    }

    /// Forgets an ending that is settled; it may have lost its outcome meanwhile.
    fn remove(&self, settled: &Unsent) {
        let mut endings = lock(&self.endings);
        endings.retain(|unsent| unsent.hold.owner != settled.hold.owner);
        self.count.store(endings.len(), Ordering::Relaxed);
    }
}

/// The longest time that a call spends on the endings of others.
const LONGEST_SEND: Duration = Duration::from_secs(1);

impl Engine {
    /// Sends the endings that are left, before this request is claimed.
    pub(super) async fn send_unsent(&self, request: &Request) {
        if self.holds_key(&request.id) {
            // Its end may be answered before the claim is sent.
            request.note_record();
        }
        if self.unsent.has_due(&request.id) {
            Box::pin(self.send_before(request)).await;
        }
    }

    /// Sends all endings that are left, for this time at the longest. Returns the number of those that
    /// have no answer then.
    pub(crate) async fn send_all(&self, time: Duration) -> u32 {
        let left = || -> Vec<_> {
            let endings = lock(&self.unsent.endings);
            // What has met no claim holds no key.
            let left = endings.iter().filter(|unsent| unsent.later.is_none());
            left.cloned().collect()
        };
        let deadline = Instant::now() + time.min(LONGEST);
        let sent = async {
            let _turn = self.unsent.turn.lock().await;
            let all = left();
            join_all(all.iter().map(|unsent| self.send_one(unsent, deadline))).await;
        };
        let _ = timeout_at(deadline, sent).await;
        u32::try_from(left().len()).unwrap_or(u32::MAX)
    }

    /// Sends the endings in at most half of the request's own time. One that isn't answered by
    /// then stays for the next call.
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
        let turn = &self.unsent.turn;
        let sent = async {
            let _turn = match turn.try_lock() {
                Ok(turn) => turn,
                Err(_) if self.unsent.has_of(&request.id) => turn.lock().await,
                Err(_) => return,
            };
            let next = self.unsent.next(&request.id);
            join_all(next.iter().map(|unsent| self.send_one(unsent, deadline))).await;
        };
        // Dropped at the deadline: an ending without an answer stays in the queue.
        let _ = timeout_at(deadline, sent).await;
    }

    /// Sends an ending, and forgets it where the store has answered, or its lease is over.
    async fn send_one(&self, unsent: &Arc<Unsent>, deadline: Instant) {
        let Unsent { request, hold, .. } = &**unsent;
        if let (RecordWrite::Release(release), Some(later)) = (&unsent.write, unsent.later) {
            return self.send_late(unsent, release, later, deadline).await;
        }
        let mut write = self.packed(unsent, deadline).await;
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
        if answer.is_ok() {
            self.free_key(write.id(), &hold.owner);
        }
        if let RecordWrite::Release(release) = &*write
            && is_open
            && is_without_reply(release)
            && self.may_arrive(request, release, &answer)
        {
            self.leave_for_later(request, hold, release.clone(), 0);
        }
        match &*write {
            RecordWrite::Complete(completion) => {
                let finished = answer.map(|answer| match answer {
                    Answer::Applied(_) => Settled::Recorded,
                    Answer::Refused(found) => request.settle(completion, found.as_ref()),
                });
                self.note_permission(&finished);
                events::finished(request, hold.attempt, completion, &finished);
            }
            RecordWrite::Release(release) => match answer {
                Ok(Answer::Refused(found)) if !is_mine(found.as_ref(), &release.tombstone) => {}
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

    /// Returns whether a claim may still be on its way, and apply, whose release had this answer: it met no
    /// claim, or a record that any claim takes over. Where the claim itself is shown, it came after the
    /// release.
    pub(super) fn may_arrive(
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
        let decision = decide(found, asking, &self.settings.rules());
        let is_open = matches!(
            decision,
            Decision::Create | Decision::TakeOver { .. } | Decision::Mine(_)
        );
        is_open && !is_mine(found, &release.tombstone)
    }

    /// Returns the write, whose large outcome is kept first, in half of the time: a completion without its outcome is safe, and one that
    /// is never sent is not.
    async fn packed<'a>(&self, unsent: &'a Unsent, deadline: Instant) -> Cow<'a, RecordWrite> {
        let Unsent {
            request,
            hold,
            write,
            large,
            ..
        } = unsent;
        if let (Some(text), RecordWrite::Complete(completion)) = (large, write) {
            let until = completion.expiration;
            let pack = Box::pin(self.pack(request, hold, text, until));
            let half = deadline.saturating_duration_since(Instant::now()) / 2;
            let outcome = timeout(half, pack).await.unwrap_or_else(|_| {
                events::not_kept(request, hold, &StoreError::Timeout);
                StoredOutcome::Omitted(Omission::NotKept)
            });
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
        let turns = Turns::End(&self.pace, write.id());
        persist(turns, deadline, StoreError::is_transient, send).await
    }

    /// Leaves an ending to the engine's next call. One that is only observed is not left: no call
    /// waits for it.
    pub(super) fn leave(
        &self,
        request: &Request,
        hold: &Hold,
        write: RecordWrite,
        large: Option<String>,
    ) {
        if self.observed.is_none() {
            events::ending_left(request, hold, &write);
            self.push(request, hold, write, large, None);
        }
    }

    fn push(
        &self,
        request: &Request,
        hold: &Hold,
        write: RecordWrite,
        large: Option<String>,
        later: Option<Later>,
    ) {
        self.unsent.push(Unsent {
            request: request.without_batch(),
            // Without the journal, whose results may be large.
            hold: Hold {
                owner: hold.owner.clone(),
                journal: Journal::default(),
                ..*hold
            },
            write,
            large,
            later,
        });
    }

    /// Leaves the release of a claim that may still arrive to a later call, after this many such tries.
    pub(super) fn leave_for_later(
        &self,
        request: &Request,
        hold: &Hold,
        release: Release,
        tries: usize,
    ) {
        if self.observed.is_none()
            && let Some(later) = Later::after(tries)
        {
            self.push(request, hold, release.into(), None, Some(later));
        }
    }

    /// Makes the release of a claim; `None`, as an event reports, where its tombstone can't be drawn.
    pub(super) fn new_release(
        request: &Request,
        hold: &Hold,
        last_error: Option<&str>,
    ) -> Option<Release> {
        let failed = |error: &Obstacle| events::release_failed(request, hold.attempt, error);
        let tombstone = Owner::random().map_err(Obstacle::Entropy);
        Some(Release {
            id: request.id.clone(),
            owner: hold.owner.clone(),
            tombstone: tombstone.inspect_err(failed).ok()?,
            last_error: last_error.map(str::to_owned),
            forget_fingerprint: !hold.keeps_fingerprint,
        })
    }

    /// Leaves a release to the engine's next call.
    pub(super) fn leave_release(&self, request: &Request, hold: &Hold, last_error: &str) {
        if let Some(release) = Self::new_release(request, hold, Some(last_error)) {
            self.leave(request, hold, release.into(), None);
        }
    }

    /// Leaves a release of a claim that may have applied. Its work didn't begin under the claim, but
    /// its caller may do it without: the fingerprint stays, so that no other payload gets the key.
    pub(super) fn leave_claimed(&self, request: &Request, hold: &Hold) {
        let mut hold = hold.clone();
        hold.keeps_fingerprint = true;
        self.leave_release(request, &hold, WITHOUT_REPLY);
    }
}

/// Calls a function when it is dropped, unless it was disarmed before.
#[must_use = "it acts as soon as it is dropped"]
pub(crate) struct OnDrop<F: FnOnce()> {
    act: Option<F>,
}

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) fn new(act: F) -> Self {
        Self { act: Some(act) }
    }

    /// Keeps the function from being called: the store has answered.
    pub(super) fn disarm(mut self) {
        self.act = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(act) = self.act.take() {
            act();
        }
    }
}
