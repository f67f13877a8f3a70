//! Single calls that leave together.
//!
//! Several runs side by side each ask for one write. Here the writes gather while a request is under way, and the next
//! request takes all of them. Nothing is spawned: whoever polls the runs polls [`Grouped::drive`] beside them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join4;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::error::StoreError;
use crate::key::RecordId;
use crate::packed::{LargeOutcome, Place};
use crate::record::{Amendment, Completion, Found, NewClaim, Release, Renewal, Takeover, Version};
use crate::store::{Answer, Store};
use crate::transaction::{Admission, Commit, Committed};

/// How many requests leave together: as many statements as DynamoDB takes in one request.
pub(crate) const GROUP: usize = 25;

/// How calls leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    InGroups,
    /// Each as a request of its own.
    Alone,
}

/// A store whose claims, completions, releases and reads leave in groups. Takeovers are rare, and leave alone, as transactions do.
///
/// Where all are to leave alone, it is the same type that sees to it: the engine is compiled once for each type of store.
#[derive(Debug)]
pub(crate) struct Grouped<S> {
    inner: Arc<S>,
    sending: Sending,
    claims: Queue<NewClaim, Answer>,
    completions: Queue<Completion, Answer>,
    releases: Queue<Release, Answer>,
    reads: Queue<RecordId, Option<Found>>,
}

impl<S: Store> Grouped<S> {
    pub(crate) fn new(inner: Arc<S>, sending: Sending) -> Self {
        Self {
            inner,
            sending,
            claims: Queue::new(|claim| &claim.id),
            completions: Queue::new(|completion| &completion.id),
            releases: Queue::new(|release| &release.id),
            reads: Queue::new(|id| id),
        }
    }

    /// Sends what has gathered, again and again. Poll it after the callers, so that all who are ready have joined the group.
    pub(crate) async fn drive(&self) -> Infallible {
        let (never, ..) = join4(
            self.drive_claims(),
            self.drive_completions(),
            self.drive_releases(),
            self.drive_reads(),
        )
        .await;
        never
    }

    async fn drive_claims(&self) -> Infallible {
        loop {
            let group = self.claims.next().await;
            let answers = self.inner.create_all(&group.requests, group.deadline).await;
            group.answer(answers);
        }
    }

    async fn drive_completions(&self) -> Infallible {
        loop {
            let group = self.completions.next().await;
            let answers = self
                .inner
                .complete_all(&group.requests, group.deadline)
                .await;
            group.answer(answers);
        }
    }

    async fn drive_releases(&self) -> Infallible {
        loop {
            let group = self.releases.next().await;
            let answers = self
                .inner
                .release_all(&group.requests, group.deadline)
                .await;
            group.answer(answers);
        }
    }

    async fn drive_reads(&self) -> Infallible {
        loop {
            let group = self.reads.next().await;
            let answers = self.inner.load_all(&group.requests, group.deadline).await;
            group.answer(answers);
        }
    }
}

// What passes through is boxed: a run that only ever groups needs no room for it.
impl<S: Store> Store for Grouped<S> {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        match self.sending {
            Sending::InGroups => self.claims.join(claim.clone(), deadline).await,
            Sending::Alone => Box::pin(self.inner.create(claim, deadline)).await,
        }
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        Box::pin(self.inner.take_over(seen, claim, mode, deadline)).await
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        match self.sending {
            Sending::InGroups => self.completions.join(completion.clone(), deadline).await,
            Sending::Alone => Box::pin(self.inner.complete(completion, deadline)).await,
        }
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        Box::pin(self.inner.renew(renewal, deadline)).await
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        Box::pin(self.inner.amend(amendment, deadline)).await
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        match self.sending {
            Sending::InGroups => self.releases.join(release.clone(), deadline).await,
            Sending::Alone => Box::pin(self.inner.release(release, deadline)).await,
        }
    }

    fn admission(&self) -> Option<Admission> {
        self.inner.admission()
    }

    /// A transaction is a request of its own.
    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        Box::pin(self.inner.commit(commit, deadline)).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        match self.sending {
            Sending::InGroups => self.reads.join(id.clone(), deadline).await,
            Sending::Alone => Box::pin(self.inner.load(id, deadline)).await,
        }
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        Box::pin(self.inner.keep(outcome, deadline)).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        Box::pin(self.inner.fetch(id, place, deadline)).await
    }
}

/// Requests of one kind that wait for the next group.
#[derive(Debug)]
struct Queue<R, A> {
    waiting: Mutex<VecDeque<Waiting<R, A>>>,
    arrived: Notify,
    id: fn(&R) -> &RecordId,
}

#[derive(Debug)]
struct Waiting<R, A> {
    request: R,
    deadline: Instant,
    reply: oneshot::Sender<Result<A, StoreError>>,
}

/// Requests that leave together.
#[derive(Debug)]
struct Group<R, A> {
    requests: Vec<R>,
    replies: Vec<oneshot::Sender<Result<A, StoreError>>>,
    /// The earliest of theirs.
    deadline: Instant,
}

impl<R, A> Group<R, A> {
    /// A store that gives too few answers leaves the last callers with a dropped channel, which reads as a timeout.
    fn answer(self, answers: Vec<Result<A, StoreError>>) {
        for (reply, answer) in self.replies.into_iter().zip(answers) {
            // A caller that has gone away needs no answer.
            let _ = reply.send(answer);
        }
    }
}

impl<R, A> Queue<R, A> {
    fn new(id: fn(&R) -> &RecordId) -> Self {
        Self {
            waiting: Mutex::default(),
            arrived: Notify::new(),
            id,
        }
    }

    async fn join(&self, request: R, deadline: Instant) -> Result<A, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.push(Waiting {
            request,
            deadline,
            reply,
        });
        self.arrived.notify_one();
        answer.await.unwrap_or(Err(StoreError::Timeout))
    }

    fn push(&self, one: Waiting<R, A>) {
        let mut waiting = self.waiting();
        if waiting.capacity() == 0 {
            // Where one comes, more do.
            waiting.reserve(GROUP);
        }
        waiting.push_back(one);
    }

    async fn next(&self) -> Group<R, A> {
        loop {
            let group = self.take();
            if let Some(deadline) = group.iter().map(|waiting| waiting.deadline).min() {
                let mut leaving = Group {
                    requests: Vec::with_capacity(group.len()),
                    replies: Vec::with_capacity(group.len()),
                    deadline,
                };
                for waiting in group {
                    leaving.requests.push(waiting.request);
                    leaving.replies.push(waiting.reply);
                }
                return leaving;
            }
            self.arrived.notified().await;
        }
    }

    /// The longest waiting requests. No two of one record share a group: the second waits for the next.
    fn take(&self) -> Vec<Waiting<R, A>> {
        let mut waiting = self.waiting();
        let mut group: Vec<Waiting<R, A>> = Vec::with_capacity(waiting.len().min(GROUP));
        while group.len() < GROUP {
            let Some(next) = waiting.pop_front() else {
                break;
            };
            let id = (self.id)(&next.request);
            if group.iter().any(|taken| (self.id)(&taken.request) == id) {
                waiting.push_front(next);
                break;
            }
            group.push(next);
        }
        group
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting<R, A>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
