//! The requests of one kind: those that are under way, and those that gather meanwhile.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use crate::protocol::key::RecordId;
use crate::protocol::record::{Found, RecordWrite};
use crate::store::{Answer, GROUP, Store, StoreError};

/// A request that may leave in a group.
pub(super) trait Request: Clone + Send + Sync {
    type Answer: Send;

    fn id(&self) -> &RecordId;

    fn send_alone<S: Store>(
        &self,
        store: &S,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Answer, StoreError>> + Send;

    fn send_all<S: Store>(
        group: &[Self],
        store: &S,
        deadline: Instant,
    ) -> impl Future<Output = Vec<Result<Self::Answer, StoreError>>> + Send;
}

impl Request for RecordWrite {
    type Answer = Answer;

    fn id(&self) -> &RecordId {
        self.id()
    }

    async fn send_alone<S: Store>(
        &self,
        store: &S,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        store.write(self, deadline).await
    }

    async fn send_all<S: Store>(
        group: &[Self],
        store: &S,
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        store.write_all(group, deadline).await
    }
}

impl Request for RecordId {
    type Answer = Option<Found>;

    fn id(&self) -> &RecordId {
        self
    }

    async fn send_alone<S: Store>(
        &self,
        store: &S,
        deadline: Instant,
    ) -> Result<Option<Found>, StoreError> {
        store.load(self, deadline).await
    }

    async fn send_all<S: Store>(
        group: &[Self],
        store: &S,
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        store.load_all(group, deadline).await
    }
}

/// A queue has the requests of one kind.
pub(super) struct Queue<R: Request>(Mutex<State<R>>);

struct State<R: Request> {
    /// The groups that wait. None of them is full, and none waits while nothing is under way.
    waiting: VecDeque<Group<R>>,
    /// The number of groups, and of single requests, that a caller is sending.
    under_way: usize,
    /// Since the queue was idle last, a request came while another one was under way.
    is_crowded: bool,
}

/// A group has requests that leave together. While it waits, each has a caller to answer. Once a
/// caller leads it, that caller's own request is the last, and has none.
struct Group<R: Request> {
    requests: Vec<R>,
    callers: Vec<oneshot::Sender<Turn<R>>>,
    /// The latest of their deadlines: each caller keeps to its own.
    deadline: Instant,
}

/// What a caller that waits is told.
enum Turn<R: Request> {
    /// The answer to its request.
    Answer(Result<R::Answer, StoreError>),
    /// Its group is to leave, and it leads.
    Lead(Group<R>),
}

/// How a request enters the queue.
enum Entry<R: Request> {
    /// It leaves at once: nothing is under way.
    First { is_crowded: bool },
    /// It made its group full, which leaves at once.
    Leads(Group<R>),
    /// It waits for its turn.
    Waits(oneshot::Receiver<Turn<R>>),
}

impl<R: Request> Default for Queue<R> {
    fn default() -> Self {
        Self(Mutex::new(State {
            waiting: VecDeque::new(),
            under_way: 0,
            is_crowded: false,
        }))
    }
}

impl<R: Request> Queue<R> {
    /// Sends a request: alone, or in a group that this caller or another one leads.
    pub(super) async fn send<S: Store>(
        &self,
        store: &S,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Answer, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::Timeout);
        }
        let turn = match self.enter(request, deadline) {
            Entry::First { is_crowded } => {
                let mut lead = Lead::alone(self);
                if is_crowded {
                    // An answer wakes a whole group, whose members come here one after the other.
                    yield_now().await;
                    lead.group = self.company(request, deadline);
                }
                return lead.send(store, request, deadline).await;
            }
            Entry::Leads(group) => Turn::Lead(group),
            Entry::Waits(turn) => {
                let mut place = Place { queue: self, turn };
                match timeout_at(deadline, &mut place.turn).await {
                    Ok(Ok(turn)) => turn,
                    Ok(Err(_)) | Err(_) => return Err(StoreError::Timeout),
                }
            }
        };
        match turn {
            Turn::Answer(answer) => answer,
            Turn::Lead(group) => {
                let lead = Lead {
                    queue: self,
                    group: Some(group.without_those_who_left()),
                };
                lead.send(store, request, deadline).await
            }
        }
    }

    fn enter(&self, request: &R, deadline: Instant) -> Entry<R> {
        let mut state = self.state();
        if state.under_way == 0 {
            state.under_way = 1;
            let is_crowded = std::mem::take(&mut state.is_crowded);
            return Entry::First { is_crowded };
        }
        state.is_crowded = true;
        let last = state.waiting.pop_back_if(|group| !group.has(request));
        let mut group = last.unwrap_or_else(|| Group::until(deadline));
        group.add(request, deadline);
        if group.requests.len() == GROUP {
            state.under_way += 1;
            return Entry::Leads(group);
        }
        let (caller, turn) = oneshot::channel();
        group.callers.push(caller);
        state.waiting.push_back(group);
        Entry::Waits(turn)
    }

    /// Takes the group that gathered behind a request, with that request as the last; `None` where no
    /// other request came, or where the group has one for the same record.
    fn company(&self, request: &R, deadline: Instant) -> Option<Group<R>> {
        let mut state = self.state();
        let mut group = state.waiting.pop_front_if(|group| !group.has(request))?;
        drop(state);
        group.add(request, deadline);
        Some(group.without_those_who_left())
    }

    /// Notes that a group, or a single request, is no longer under way: the group that has waited
    /// longest takes its place.
    fn ended(&self) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.waiting.pop_front();
                if next.is_none() {
                    state.under_way = state.under_way.saturating_sub(1);
                }
                next
            };
            if next.is_none_or(hand_over) {
                return;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.under_way == 0 && state.waiting.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Request> Group<R> {
    fn until(deadline: Instant) -> Self {
        Self {
            requests: Vec::with_capacity(GROUP),
            callers: Vec::with_capacity(GROUP),
            deadline,
        }
    }

    /// Two requests for one record never share a group.
    fn has(&self, request: &R) -> bool {
        self.requests.iter().any(|other| other.id() == request.id())
    }

    fn add(&mut self, request: &R, deadline: Instant) {
        self.requests.push(request.clone());
        self.deadline = self.deadline.max(deadline);
    }

    /// Leaves out the requests whose callers have gone. The leader's own, the last, stays.
    fn without_those_who_left(mut self) -> Self {
        if self.callers.iter().any(oneshot::Sender::is_closed) {
            let own = self.requests.pop();
            let waiting = self.requests.into_iter().zip(self.callers);
            let waiting = waiting.filter(|(_, caller)| !caller.is_closed());
            (self.requests, self.callers) = waiting.unzip();
            self.requests.extend(own);
        }
        self
    }
}

/// Lets one of a group's callers lead it; `false` when all of them have gone.
fn hand_over<R: Request>(mut group: Group<R>) -> bool {
    while let Some(caller) = group.callers.pop() {
        match caller.send(Turn::Lead(group)) {
            Ok(()) => return true,
            Err(Turn::Lead(mut without)) => {
                // The last request is this caller's.
                without.requests.pop();
                group = without;
            }
            Err(Turn::Answer(_)) => return false,
        }
    }
    false
}

/// A caller that sends; when it ends, another group may leave.
struct Lead<'a, R: Request> {
    queue: &'a Queue<R>,
    /// The group, until it is answered.
    group: Option<Group<R>>,
}

impl<'a, R: Request> Lead<'a, R> {
    fn alone(queue: &'a Queue<R>) -> Self {
        Self { queue, group: None }
    }

    /// Sends the caller's request, with its group if it leads one, and answers the others. A leader
    /// whose own time is over, or that is dropped, hands the group over.
    async fn send<S: Store>(
        mut self,
        store: &S,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Answer, StoreError> {
        let Some(group) = &self.group else {
            return request.send_alone(store, deadline).await;
        };
        let sent = R::send_all(&group.requests, store, group.deadline);
        let Ok(answers) = timeout_at(deadline, sent).await else {
            return Err(StoreError::Timeout);
        };
        let callers = self.group.take().map(|group| group.callers);
        let mut answers = answers.into_iter();
        // Where a store gives too few answers, the last callers get a timeout.
        let mut next = || answers.next().unwrap_or(Err(StoreError::Timeout));
        for caller in callers.into_iter().flatten() {
            // A caller that has gone needs no answer.
            let _ = caller.send(Turn::Answer(next()));
        }
        next()
    }
}

impl<R: Request> Drop for Lead<'_, R> {
    fn drop(&mut self) {
        if let Some(mut group) = self.group.take() {
            group.requests.pop();
            if hand_over(group) {
                return;
            }
        }
        self.queue.ended();
    }
}

/// The place of a caller that waits. One that goes away after it was told to lead hands over.
struct Place<'a, R: Request> {
    queue: &'a Queue<R>,
    turn: oneshot::Receiver<Turn<R>>,
}

impl<R: Request> Drop for Place<'_, R> {
    fn drop(&mut self) {
        self.turn.close();
        if let Ok(Turn::Lead(group)) = self.turn.try_recv() {
            drop(Lead {
                queue: self.queue,
                group: Some(group),
            });
        }
    }
}
