//! Sends the requests of concurrent callers in groups: those of one batch, or of one engine.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout, timeout_at};

use crate::protocol::key::RecordId;
use crate::protocol::lock::lock;
use crate::protocol::record::{Found, RecordWrite};
use crate::store;
use crate::store::{Answer, GROUP, StoreError};

#[cfg(test)]
mod tests;

/// The longest that a request waits for its group to leave, and that an answer is held back for the others.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

/// Awaits the answers to requests of one group, which leave at once. Unless `waits_for_all`, drops the
/// requests that have none [`PATIENCE`] after the last answer: they are `None`, and may still arrive.
pub(crate) async fn answers<F: Future>(
    requests: Vec<F>,
    waits_for_all: bool,
) -> Vec<Option<F::Output>> {
    let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
    let placed = requests.into_iter().enumerate();
    let placed = placed.map(|(place, request)| request.map(move |answer| (place, answer)));
    let mut placed: FuturesUnordered<_> = placed.collect();
    let mut next = placed.next().await;
    while let Some((place, answer)) = next {
        if let Some(slot) = answers.get_mut(place) {
            *slot = Some(answer);
        }
        next = if waits_for_all {
            placed.next().await
        } else {
            timeout(PATIENCE, placed.next()).await.ok().flatten()
        };
    }
    answers
}

/// The queues of one batch, or of one engine.
///
/// Each kind of requests has a queue. A request leaves at once, alone, where none of its kind is
/// under way. Those that come meanwhile gather, and leave as one group when that one has its
/// answer, or when the group is full. A request for a record that the gathering group has already
/// leaves at once, alone: however many ask for one record, the others wait for two answers at the
/// most. One that has waited for [`PATIENCE`] leaves alone, too: the one under way may never be
/// answered, or its caller not be polled.
///
/// A group is sent by its own task, so that it does not matter which of its callers goes away,
/// or is not polled. Dropping this ends these tasks.
#[derive(Debug)]
pub(crate) struct Groups {
    queues: Arc<Queues>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Queues {
    store: Arc<dyn store::DynStore>,
    claims: Queue<RecordWrite>,
    completions: Queue<RecordWrite>,
    releases: Queue<RecordWrite>,
    reads: Queue<RecordId>,
}

impl Groups {
    /// Creates the queues in front of this store. `gathers` makes the first request of each kind wait
    /// until the runtime has polled its other tasks, as it does after a crowd.
    pub(crate) fn new(store: Arc<dyn store::DynStore>, gathers: bool) -> Self {
        Self {
            queues: Arc::new(Queues {
                store,
                claims: Queue::new(gathers),
                completions: Queue::new(gathers),
                releases: Queue::new(gathers),
                reads: Queue::new(gathers),
            }),
            tasks: Mutex::default(),
        }
    }

    /// Sends a write: claims, completions and releases in groups, others alone.
    pub(crate) async fn write(
        &self,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let queue: fn(&Queues) -> &Queue<RecordWrite> = match write {
            RecordWrite::Create(_) => |queues| &queues.claims,
            RecordWrite::Complete(_) => |queues| &queues.completions,
            RecordWrite::Release(_) => |queues| &queues.releases,
            _ => return self.queues.store.write(write, deadline).await,
        };
        self.send(queue, write, deadline).await
    }

    /// Sends a read. One that its table left out of a group is sent again, alone.
    pub(crate) async fn load(
        &self,
        id: &RecordId,
        deadline: Instant,
    ) -> Result<Option<Found>, StoreError> {
        let found = self.send(|queues| &queues.reads, id, deadline).await;
        let Err(left_out @ StoreError::Throttled(_)) = found else {
            return found;
        };
        match self.queues.store.load(id, deadline).await {
            // The table has answered this request.
            Err(StoreError::NotSent | StoreError::Timeout | StoreError::Unavailable(_)) => {
                Err(left_out)
            }
            found => found,
        }
    }

    async fn send<R: Request>(
        &self,
        queue_of: fn(&Queues) -> &Queue<R>,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Answer, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::NotSent);
        }
        let store = &*self.queues.store;
        let Ok(runtime) = Handle::try_current() else {
            return request.send_alone(store, deadline).await;
        };
        let queue = queue_of(&self.queues);
        let mut wait = match queue.enter(request, deadline) {
            Entry::Alone => return request.send_alone(store, deadline).await,
            Entry::First => {
                let _next = Next {
                    groups: self,
                    queue_of,
                    runtime,
                };
                return request.send_alone(store, deadline).await;
            }
            Entry::Gathers(wait) => {
                self.send_gathered(&runtime, queue_of);
                wait
            }
            Entry::Full(group, wait) => {
                let queues = Arc::clone(&self.queues);
                self.spawn(&runtime, async move { group.send(&*queues.store).await });
                wait
            }
            Entry::Waits(wait) => wait,
        };
        let patience = deadline.min(Instant::now() + PATIENCE);
        let answer = match timeout_at(patience, &mut wait.answer).await {
            Ok(answer) => answer,
            Err(_) if queue.withdraw(wait.number) => Ok(Err(StoreError::NotSent)),
            Err(_) => match timeout_at(deadline, &mut wait.answer).await {
                Ok(answer) => answer,
                Err(_) if wait.way.waits() => return Err(StoreError::NotSent),
                Err(_) => return Err(StoreError::Timeout),
            },
        };
        match answer {
            // It can't leave with a group, or didn't in time, or the group didn't settle it.
            Ok(Err(left)) if left.is_left_to_caller() && Instant::now() < deadline => {
                let answer = request.send_alone(store, deadline).await;
                answer.map_err(|error| error.uncertain_if(left.is_uncertain()))
            }
            // The group's task may have ended without an answer: the runtime stops, or the store has
            // panicked.
            answer => answer.unwrap_or(Err(StoreError::Timeout)),
        }
    }

    /// Has what gathers sent by a task.
    fn send_gathered<R: Request>(&self, runtime: &Handle, queue_of: fn(&Queues) -> &Queue<R>) {
        let queues = Arc::clone(&self.queues);
        // Made here: the task may be dropped before it is polled.
        let sender = Sender { queues, queue_of };
        self.spawn(runtime, sender.run());
    }

    fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        #[cfg(feature = "test-util")]
        let task = store::process::ending_with_it(task);
        tasks.spawn_on(task, runtime);
    }
}

/// Sends what has gathered in a queue, until nothing has. Ended before its time, it leaves the queue
/// open: those who wait leave alone.
struct Sender<R: Request> {
    queues: Arc<Queues>,
    queue_of: fn(&Queues) -> &Queue<R>,
}

impl<R: Request> Sender<R> {
    async fn run(self) {
        loop {
            // An answer wakes a whole group, whose members come here one after the other.
            yield_now().await;
            match (self.queue_of)(&self.queues).gathered() {
                Some(group) => group.send(&*self.queues.store).await,
                None => return,
            }
        }
    }
}

impl<R: Request> Drop for Sender<R> {
    fn drop(&mut self) {
        lock(&(self.queue_of)(&self.queues).state).is_busy = false;
    }
}

/// Has the group that gathered behind a single request sent, when that request has ended.
struct Next<'a, R: Request> {
    groups: &'a Groups,
    queue_of: fn(&Queues) -> &Queue<R>,
    runtime: Handle,
}

impl<R: Request> Drop for Next<'_, R> {
    fn drop(&mut self) {
        if (self.queue_of)(&self.groups.queues).goes_on() {
            self.groups.send_gathered(&self.runtime, self.queue_of);
        }
    }
}

/// A request that may leave in a group.
trait Request: Clone + fmt::Debug + Send + Sync + 'static {
    type Answer: fmt::Debug + Send + 'static;

    fn id(&self) -> &RecordId;

    fn send_alone<'a>(
        &'a self,
        store: &'a dyn store::DynStore,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Self::Answer, StoreError>>;

    fn send_all<'a>(
        group: &'a [Self],
        store: &'a dyn store::DynStore,
        deadline: Instant,
    ) -> BoxFuture<'a, Vec<Result<Self::Answer, StoreError>>>;
}

impl Request for RecordWrite {
    type Answer = Answer;

    fn id(&self) -> &RecordId {
        self.id()
    }

    fn send_alone<'a>(
        &'a self,
        store: &'a dyn store::DynStore,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answer, StoreError>> {
        store.write(self, deadline)
    }

    fn send_all<'a>(
        group: &'a [Self],
        store: &'a dyn store::DynStore,
        deadline: Instant,
    ) -> BoxFuture<'a, Vec<Result<Answer, StoreError>>> {
        store.write_all(group, deadline)
    }
}

impl Request for RecordId {
    type Answer = Option<Found>;

    fn id(&self) -> &RecordId {
        self
    }

    fn send_alone<'a>(
        &'a self,
        store: &'a dyn store::DynStore,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Option<Found>, StoreError>> {
        store.load(self, deadline)
    }

    fn send_all<'a>(
        group: &'a [Self],
        store: &'a dyn store::DynStore,
        deadline: Instant,
    ) -> BoxFuture<'a, Vec<Result<Option<Found>, StoreError>>> {
        store.load_all(group, deadline)
    }
}

/// The caller of a request in a group.
#[derive(Debug)]
struct Waiter<R: Request> {
    number: u64,
    answer: oneshot::Sender<Result<R::Answer, StoreError>>,
    deadline: Instant,
}

/// The requests of one kind.
#[derive(Debug)]
struct Queue<R: Request> {
    state: Mutex<State<R>>,
    /// Every request joins a group.
    gathers: bool,
}

#[derive(Debug)]
struct State<R: Request> {
    /// The requests that wait for the answer to those under way.
    gathering: Group<R>,
    /// A single request is under way, or a task sends what gathers.
    is_busy: bool,
    /// Since the queue was idle last, a request came while another one was under way.
    is_crowded: bool,
    /// The number of the last request.
    last: u64,
}

/// Requests that leave together.
#[derive(Debug)]
struct Group<R: Request> {
    requests: Vec<R>,
    waiters: Vec<Waiter<R>>,
    way: Way,
}

tokio::task_local! {
    static WAY: Way;
}

/// The progress of a group in this process: a store may wait, for credentials say, before it sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way(Arc<AtomicU8>);

impl Way {
    const WAITS: u8 = 1;

    fn waits(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::WAITS
    }
}

#[cfg(any(test, feature = "dynamodb"))]
impl Way {
    /// The store has not said that it waits.
    const UNKNOWN: u8 = 0;
    const SENT: u8 = 2;

    /// Notes that a request of the group under way, if there is one, was made and isn't sent yet.
    pub(crate) fn note_request() {
        let (from, to, order) = (Self::UNKNOWN, Self::WAITS, Ordering::Relaxed);
        let _ = WAY.try_with(|way| way.0.compare_exchange(from, to, order, order));
    }

    /// Notes that a request of the group under way, if there is one, is sent.
    pub(crate) fn note_send() {
        let _ = WAY.try_with(|way| way.0.store(Self::SENT, Ordering::Relaxed));
    }
}

/// The way in which a request enters its queue.
enum Entry<R: Request> {
    /// It leaves at once, and nobody waits for it.
    Alone,
    /// It leaves at once, and what comes meanwhile gathers behind it.
    First,
    /// It is the first of a group, which a task is to send.
    Gathers(Wait<R>),
    /// It made its group full.
    Full(Group<R>, Wait<R>),
    /// It waits in a group that somebody sends.
    Waits(Wait<R>),
}

/// The wait of a request in a group.
struct Wait<R: Request> {
    number: u64,
    answer: oneshot::Receiver<Result<R::Answer, StoreError>>,
    way: Way,
}

impl<R: Request> Queue<R> {
    fn new(gathers: bool) -> Self {
        Self {
            state: Mutex::new(State {
                gathering: Group::new(),
                is_busy: false,
                is_crowded: false,
                last: 0,
            }),
            gathers,
        }
    }

    fn enter(&self, request: &R, deadline: Instant) -> Entry<R> {
        let mut state = lock(&self.state);
        let is_free = !state.is_busy;
        if is_free && !std::mem::take(&mut state.is_crowded) && !self.gathers {
            state.is_busy = true;
            return Entry::First;
        }
        if state.gathering.has(request.id()) {
            state.gathering.leave_out_those_who_went_away();
            if state.gathering.has(request.id()) {
                return Entry::Alone;
            }
        }
        state.last += 1;
        let number = state.last;
        let (sender, answer) = oneshot::channel();
        let waiter = Waiter {
            number,
            answer: sender,
            deadline,
        };
        state.gathering.add(request, waiter);
        let way = state.gathering.way.clone();
        let wait = Wait {
            number,
            answer,
            way,
        };
        state.is_crowded |= !is_free;
        if state.gathering.requests.len() == GROUP {
            state.gathering.leave_out_those_who_went_away();
        }
        if state.gathering.requests.len() == GROUP {
            let group = std::mem::replace(&mut state.gathering, Group::new());
            return Entry::Full(group, wait);
        }
        if is_free {
            state.is_busy = true;
            return Entry::Gathers(wait);
        }
        Entry::Waits(wait)
    }

    /// Takes what has gathered; `None`, and the queue is free, where nothing has.
    fn gathered(&self) -> Option<Group<R>> {
        let mut state = lock(&self.state);
        let mut group = std::mem::replace(&mut state.gathering, Group::new());
        group.leave_out_those_who_went_away();
        state.is_busy = !group.requests.is_empty();
        state.is_busy.then_some(group)
    }

    /// Returns whether something has gathered; the queue is free where nothing has.
    fn goes_on(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_busy = !state.gathering.requests.is_empty();
        state.is_busy
    }

    /// Takes a request back; `false` where it has left. The one that it waited for doesn't hold up
    /// the next.
    fn withdraw(&self, number: u64) -> bool {
        let mut state = lock(&self.state);
        let Group {
            requests, waiters, ..
        } = &mut state.gathering;
        let Some(place) = waiters.iter().position(|own| own.number == number) else {
            return false;
        };
        requests.remove(place);
        waiters.remove(place);
        state.is_busy = false;
        true
    }
}

impl<R: Request> Group<R> {
    fn new() -> Self {
        Self {
            requests: Vec::new(),
            waiters: Vec::new(),
            way: Way::default(),
        }
    }

    fn has(&self, id: &RecordId) -> bool {
        self.requests.iter().any(|other| other.id() == id)
    }

    fn add(&mut self, request: &R, waiter: Waiter<R>) {
        if self.requests.is_empty() {
            self.requests.reserve_exact(GROUP);
            self.waiters.reserve_exact(GROUP);
        }
        self.requests.push(request.clone());
        self.waiters.push(waiter);
    }

    fn leave_out_those_who_went_away(&mut self) {
        if self.waiters.iter().any(|one| one.answer.is_closed()) {
            let requests = std::mem::take(&mut self.requests).into_iter();
            let pairs = requests.zip(std::mem::take(&mut self.waiters));
            let pairs = pairs.filter(|(_, waiter)| !waiter.answer.is_closed());
            (self.requests, self.waiters) = pairs.unzip();
        }
    }

    /// Sends the group and answers its callers. Where a store gives too few answers, the last
    /// callers get a timeout.
    async fn send(mut self, store: &dyn store::DynStore) {
        let waiters = std::mem::take(&mut self.waiters);
        // Each caller keeps to its own.
        let latest = waiters.iter().map(|one| one.deadline).max();
        let latest = latest.unwrap_or_else(Instant::now);
        let send = R::send_all(&self.requests, store, latest);
        let answers = WAY.scope(self.way.clone(), send).await;
        let left = std::iter::repeat_with(|| Err(StoreError::Timeout));
        for (waiter, answer) in waiters.into_iter().zip(answers.into_iter().chain(left)) {
            // A caller that went away needs no answer.
            let _ = waiter.answer.send(answer);
        }
    }
}

/// A group that was not sent says so: its task was dropped before it began.
impl<R: Request> Drop for Group<R> {
    fn drop(&mut self) {
        for waiter in self.waiters.drain(..) {
            let _ = waiter.answer.send(Err(StoreError::NotSent));
        }
    }
}
