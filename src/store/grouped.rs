//! Single calls that leave together.
//!
//! Several runs side by side each ask for one write. Here the writes gather while a request is under way, and the next
//! request takes all of them. Nothing is spawned: whoever polls the runs polls [`Grouped::drive`] beside them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
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
    /// Something has joined a queue.
    arrived: Notify,
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
            arrived: Notify::new(),
        }
    }

    /// Waits in a queue for the group that the request leaves in, and for its own answer.
    async fn join<R, A>(
        &self,
        queue: &Queue<R, A>,
        request: R,
        deadline: Instant,
    ) -> Result<A, StoreError> {
        let (reply, answer) = oneshot::channel();
        queue.push(request, reply, deadline);
        self.arrived.notify_one();
        answer.await.unwrap_or(Err(StoreError::Timeout))
    }

    /// Sends what has gathered, again and again. Poll it after the callers, so that all who are ready have joined the group.
    pub(crate) async fn drive(&self) -> Infallible {
        let mut under_way = FuturesUnordered::new();
        let mut idle = Kind::ALL.to_vec();
        loop {
            idle.retain(|kind| match self.leave(*kind) {
                Some(request) => {
                    under_way.push(request);
                    false
                }
                None => true,
            });
            let arrived = pin!(self.arrived.notified());
            // With nothing under way, the stream is at its end.
            match select(under_way.next(), arrived).await {
                Either::Left((Some(answered), _)) => idle.push(answered),
                Either::Left((None, arrived)) => arrived.await,
                Either::Right(((), _)) => {}
            }
        }
    }

    /// The next group of this kind on its way to the store, where one waits. While it is under way, others gather. Boxed: so
    /// there is one type for all, and only what is under way is looked at.
    fn leave(&self, kind: Kind) -> Option<BoxFuture<'_, Kind>> {
        let store = &self.inner;
        Some(match kind {
            Kind::Claims => {
                let group = self.claims.next()?;
                Box::pin(async move {
                    let answers = store.create_all(&group.requests, group.deadline).await;
                    group.answer(answers);
                    kind
                })
            }
            Kind::Completions => {
                let group = self.completions.next()?;
                Box::pin(async move {
                    let answers = store.complete_all(&group.requests, group.deadline).await;
                    group.answer(answers);
                    kind
                })
            }
            Kind::Releases => {
                let group = self.releases.next()?;
                Box::pin(async move {
                    let answers = store.release_all(&group.requests, group.deadline).await;
                    group.answer(answers);
                    kind
                })
            }
            Kind::Reads => {
                let group = self.reads.next()?;
                Box::pin(async move {
                    let answers = store.load_all(&group.requests, group.deadline).await;
                    group.answer(answers);
                    kind
                })
            }
        })
    }
}

/// What requests of one group do.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Claims,
    Completions,
    Releases,
    Reads,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Claims, Self::Completions, Self::Releases, Self::Reads];
}

// What passes through is boxed: a run that only ever groups needs no room for it.
impl<S: Store> Store for Grouped<S> {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        match self.sending {
            Sending::InGroups => self.join(&self.claims, claim.clone(), deadline).await,
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
            Sending::InGroups => {
                self.join(&self.completions, completion.clone(), deadline)
                    .await
            }
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
            Sending::InGroups => self.join(&self.releases, release.clone(), deadline).await,
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
            Sending::InGroups => self.join(&self.reads, id.clone(), deadline).await,
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

/// Requests of one kind that wait, in the groups that they will leave in.
#[derive(Debug)]
struct Queue<R, A> {
    waiting: Mutex<VecDeque<Group<R, A>>>,
    id: fn(&R) -> &RecordId,
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
    /// For the first of them. Where one comes, more do.
    fn until(deadline: Instant) -> Self {
        Self {
            requests: Vec::with_capacity(GROUP),
            replies: Vec::with_capacity(GROUP),
            deadline,
        }
    }

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
            id,
        }
    }

    /// Into the last group, where that has room. No two of one record share a group: the second waits for the next.
    fn push(&self, request: R, reply: oneshot::Sender<Result<A, StoreError>>, deadline: Instant) {
        let mut waiting = self.waiting();
        let id = (self.id)(&request);
        let has_room = |group: &mut Group<R, A>| {
            let mut requests = group.requests.iter();
            group.requests.len() < GROUP && requests.all(|other| (self.id)(other) != id)
        };
        if !waiting.back_mut().is_some_and(has_room) {
            waiting.push_back(Group::until(deadline));
        }
        if let Some(group) = waiting.back_mut() {
            group.requests.push(request);
            group.replies.push(reply);
            group.deadline = group.deadline.min(deadline);
        }
    }

    /// The group that has waited longest.
    fn next(&self) -> Option<Group<R, A>> {
        self.waiting().pop_front()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Group<R, A>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
