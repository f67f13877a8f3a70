//! Groups the writes and reads of runs side by side: those that gather while a request is under way
//! leave together in the next.
//!
//! Nothing is spawned: the caller that polls the runs polls [`Groups::drive`] beside them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::protocol::key::RecordId;
use crate::protocol::record::{Found, RecordWrite};
use crate::store::{Answer, GROUP, Store, StoreError};

#[cfg(test)]
mod tests;

/// The queues of one batch. Claims, completions and releases each have one, and so have reads: of
/// each kind one group is under way at a time. Other writes are rare, and leave alone.
#[derive(Debug)]
pub(crate) struct Groups {
    claims: Queue<RecordWrite, Answer>,
    completions: Queue<RecordWrite, Answer>,
    releases: Queue<RecordWrite, Answer>,
    reads: Queue<RecordId, Option<Found>>,
    /// Notified when a request has joined a queue.
    arrived: Notify,
}

/// The kind of the requests of one group.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Claims,
    Completions,
    Releases,
    Reads,
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self {
            claims: Queue::new(RecordWrite::id),
            completions: Queue::new(RecordWrite::id),
            releases: Queue::new(RecordWrite::id),
            reads: Queue::new(|id| id),
            arrived: Notify::new(),
        }
    }

    /// Waits for the answer to a write that leaves in a group; `None` for a write that leaves
    /// alone.
    pub(super) async fn write(
        &self,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Option<Result<Answer, StoreError>> {
        let queue = match write {
            RecordWrite::Create(_) => &self.claims,
            RecordWrite::Complete(_) => &self.completions,
            RecordWrite::Release(_) => &self.releases,
            _ => return None,
        };
        Some(self.join(queue, write.clone(), deadline).await)
    }

    /// Waits for the answer to a read.
    pub(super) async fn load(
        &self,
        id: &RecordId,
        deadline: Instant,
    ) -> Result<Option<Found>, StoreError> {
        self.join(&self.reads, id.clone(), deadline).await
    }

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

    /// Sends what has gathered, again and again. Poll it after the callers, so that all who are
    /// ready have joined the group.
    pub(crate) async fn drive<S: Store>(&self, store: &S) -> Infallible {
        let mut under_way = FuturesUnordered::new();
        let mut idle = vec![Kind::Claims, Kind::Completions, Kind::Releases, Kind::Reads];
        loop {
            idle.retain(|kind| match self.send(*kind, store) {
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

    /// Sends the next group of this kind, where one waits. The future is boxed: all kinds have one
    /// type, and only what is under way is polled.
    fn send<'a, S: Store>(&'a self, kind: Kind, store: &'a S) -> Option<BoxFuture<'a, Kind>> {
        let queue = match kind {
            Kind::Claims => &self.claims,
            Kind::Completions => &self.completions,
            Kind::Releases => &self.releases,
            Kind::Reads => {
                let group = self.reads.next()?;
                return Some(Box::pin(async move {
                    let answers = store.load_all(&group.requests, group.deadline).await;
                    group.answer(answers);
                    kind
                }));
            }
        };
        let group = queue.next()?;
        Some(Box::pin(async move {
            let answers = store.write_all(&group.requests, group.deadline).await;
            group.answer(answers);
            kind
        }))
    }
}

/// A queue has the requests of one kind that wait, in the groups that they will leave in.
#[derive(Debug)]
struct Queue<R, A> {
    waiting: Mutex<VecDeque<Group<R, A>>>,
    id: fn(&R) -> &RecordId,
}

/// A group has requests that leave together.
#[derive(Debug)]
struct Group<R, A> {
    requests: Vec<R>,
    replies: Vec<oneshot::Sender<Result<A, StoreError>>>,
    /// The earliest of their deadlines.
    deadline: Instant,
}

impl<R, A> Group<R, A> {
    /// Makes an empty group, with room for all the requests that it may get.
    fn until(deadline: Instant) -> Self {
        Self {
            requests: Vec::with_capacity(GROUP),
            replies: Vec::with_capacity(GROUP),
            deadline,
        }
    }

    /// Hands each caller its answer. Where a store gives too few answers, the last callers get a
    /// timeout.
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

    /// Adds a request to the last group, where that has room. Two requests of one record never
    /// share a group: the second waits for the next.
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

    /// Takes the group that has waited longest.
    fn next(&self) -> Option<Group<R, A>> {
        self.waiting().pop_front()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Group<R, A>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
