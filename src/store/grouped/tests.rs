//! Tests of the module above.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::{
    Arc, Found, GROUP, Groups, Instant, Mutex, PATIENCE, RecordId, RecordWrite, Way, lock,
    yield_now,
};
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::record::{Completion, NewClaim, Owner, Release, StoredOutcome};
use crate::store::{Answer, MemoryStore, Store, StoreError};
use crate::{Claim, Idempotency, Key, OnStoreUnavailable};

const EXPIRATION: EpochSeconds = EpochSeconds(i64::MAX / 2_000);

/// Answers a call when it is let through, and keeps what was asked for.
struct Gate {
    records: MemoryStore,
    calls: Mutex<Vec<Vec<String>>>,
    /// Those of the groups of writes.
    deadlines: Mutex<Vec<Instant>>,
    open: Semaphore,
    /// Whether a write applies before the gate: then it has applied where its caller is dropped.
    applies_first: Mutex<Box<dyn FnMut() -> bool + Send>>,
}

impl Gate {
    fn closed() -> Arc<Self> {
        Self::applying(|| false)
    }

    fn applying(first: impl FnMut() -> bool + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            records: MemoryStore::new(),
            calls: Mutex::default(),
            deadlines: Mutex::default(),
            open: Semaphore::new(0),
            applies_first: Mutex::new(Box::new(first)),
        })
    }

    /// The sizes of the calls so far.
    fn sizes(&self) -> Vec<usize> {
        self.calls.lock().unwrap().iter().map(Vec::len).collect()
    }

    async fn pass<T>(&self, ids: Vec<String>, work: impl Future<Output = T>) -> T {
        self.calls.lock().unwrap().push(ids);
        let first = (self.applies_first.lock().unwrap())();
        if first {
            let answer = work.await;
            self.open.acquire().await.unwrap().forget();
            answer
        } else {
            self.open.acquire().await.unwrap().forget();
            work.await
        }
    }
}

fn name(id: &RecordId) -> String {
    id.as_str().to_owned()
}

impl Store for Arc<Gate> {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let work = self.records.write(write, deadline);
        self.pass(vec![name(write.id())], work).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        let work = self.records.load(id, deadline);
        self.pass(vec![name(id)], work).await
    }

    async fn write_all(
        &self,
        writes: &[RecordWrite],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let ids = writes.iter().map(|write| name(write.id())).collect();
        self.deadlines.lock().unwrap().push(deadline);
        self.pass(ids, self.records.write_all(writes, deadline))
            .await
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        let names = ids.iter().map(name).collect();
        self.pass(names, self.records.load_all(ids, deadline)).await
    }
}

type Grouped = Arc<Groups>;
type Task = JoinHandle<Result<Answer, StoreError>>;

fn grouped(store: impl Store) -> Grouped {
    Arc::new(Groups::new(Arc::new(store), false))
}

fn behind_a_closed_gate() -> (Arc<Gate>, Grouped) {
    let gate = Gate::closed();
    (Arc::clone(&gate), grouped(gate))
}

fn in_a_minute() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

fn owner(number: usize) -> Owner {
    Owner::from_stored(number.to_string())
}

fn id(number: usize) -> RecordId {
    RecordId::unkeyed(&number.to_string())
}

fn claim(number: usize) -> RecordWrite {
    let (lease, now) = (EpochMillis(7), EpochMillis(6));
    NewClaim::new(id(number), owner(number), lease, now, EXPIRATION).into()
}

fn completion(number: usize) -> RecordWrite {
    let outcome = StoredOutcome::Inline(number.to_string());
    Completion::new(
        id(number),
        owner(number),
        outcome,
        EpochMillis(9),
        EXPIRATION,
    )
    .into()
}

fn release(number: usize) -> RecordWrite {
    RecordWrite::Release(Release {
        id: id(number),
        owner: owner(number),
        tombstone: Owner::from_stored("no one"),
        last_error: None,
        forget_fingerprint: false,
    })
}

fn start(store: &Grouped, write: RecordWrite, seconds: u64) -> Task {
    let (store, deadline) = (store.clone(), Instant::now() + Duration::from_secs(seconds));
    tokio::spawn(async move { store.write(&write, deadline).await })
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..200 {
        yield_now().await;
    }
}

async fn claims(store: &Grouped, numbers: impl IntoIterator<Item = usize>) -> Vec<Task> {
    let mut tasks = Vec::new();
    for number in numbers {
        tasks.push(start(store, claim(number), 60));
        yield_now().await;
    }
    settle().await;
    tasks
}

async fn all_applied(tasks: Vec<Task>) {
    for task in tasks {
        let answer = task.await.unwrap();
        assert_matches!(answer, Ok(Answer::Applied(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_leaves_alone_and_what_gathers_meanwhile_leaves_together() {
    let (gate, store) = behind_a_closed_gate();
    let tasks = claims(&store, 0..11).await;
    assert_eq!(gate.sizes(), [1]);
    gate.open.add_permits(1);
    settle().await;
    assert_eq!(gate.sizes(), [1, 10]);
    gate.open.add_permits(1);
    all_applied(tasks).await;
    assert_eq!(gate.records.len(), 11);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_gathers_the_next_request_leaves_at_once() {
    let (gate, store) = behind_a_closed_gate();
    gate.open.add_permits(1);
    let deadline = in_a_minute();
    store.write(&claim(0), deadline).await.unwrap();
    let write = claim(1);
    let mut next = pin!(store.write(&write, deadline));
    assert!(is_pending(next.as_mut()));
    assert_eq!(gate.sizes(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_full_group_waits_for_nothing() {
    let (gate, store) = behind_a_closed_gate();
    let tasks = claims(&store, 0..=2 * GROUP + 3).await;
    assert_eq!(gate.sizes(), [1, GROUP, GROUP]);
    gate.open.add_permits(1);
    settle().await;
    assert_eq!(gate.sizes(), [1, GROUP, GROUP, 3]);
    gate.open.add_permits(3);
    all_applied(tasks).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_request_for_one_record_leaves_at_once_and_alone() {
    let (gate, store) = behind_a_closed_gate();
    let tasks = claims(&store, [0, 1, 2, 1, 3]).await;
    assert_eq!(gate.sizes(), [1, 1]);
    gate.open.add_permits(10);
    settle().await;
    assert_eq!(gate.sizes(), [1, 1, 3]);
    assert_eq!(gate.records.len(), 4);
    drop(tasks);
}

/// However many ask for one record, a request for another one waits for two answers.
#[tokio::test(start_paused = true)]
async fn a_hot_key_slows_no_other() {
    let store = grouped(Slow(MemoryStore::new()));
    let hot: Vec<_> = (0..500).map(|_| start(&store, claim(7), 60)).collect();
    settle().await;
    let began = Instant::now();
    let other = claim(8);
    let deadline = began + Duration::from_mins(1);
    assert!(store.write(&other, deadline).await.unwrap().is_applied());
    let read = store.load(&id(8), deadline).await.unwrap();
    assert!(read.is_some());
    assert!(began.elapsed() <= 3 * ROUND_TRIP, "{:?}", began.elapsed());
    for task in hot {
        task.await.unwrap().unwrap();
    }
    assert!(began.elapsed() <= 3 * ROUND_TRIP, "{:?}", began.elapsed());
}

const ROUND_TRIP: Duration = Duration::from_millis(10);

/// Answers each call after a round trip, however many are under way.
struct Slow(MemoryStore);

impl Store for Slow {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        tokio::time::sleep(ROUND_TRIP).await;
        self.0.write(write, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        tokio::time::sleep(ROUND_TRIP).await;
        self.0.load(id, deadline).await
    }

    async fn write_all(
        &self,
        writes: &[RecordWrite],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        tokio::time::sleep(ROUND_TRIP).await;
        self.0.write_all(writes, deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn each_kind_has_groups_of_its_own() {
    let (gate, store) = behind_a_closed_gate();
    gate.open.add_permits(4);
    all_applied(claims(&store, 0..4).await).await;
    gate.open.forget_permits(10);
    let before = gate.sizes().len();
    let tasks = [0, 1].map(|number| start(&store, completion(number), 60));
    let more = [2, 3].map(|number| start(&store, release(number), 60));
    let reader = store.clone();
    let read = tokio::spawn(async move { reader.load(&id(1), in_a_minute()).await });
    settle().await;
    assert_eq!(
        gate.sizes()[before..],
        [1, 1, 1],
        "one of each is under way"
    );
    gate.open.add_permits(10);
    all_applied(tasks.into_iter().chain(more).collect()).await;
    assert!(read.await.unwrap().unwrap().is_some());
    assert_eq!(gate.sizes()[before..], [1, 1, 1, 1, 1]);
}

/// A group that has left is not sent again, whichever of its callers goes away, has no time left, or is
/// not polled.
#[tokio::test(start_paused = true)]
async fn callers_that_go_away_or_stand_still_hold_nothing_up() {
    let (gate, store) = behind_a_closed_gate();
    let mut tasks = claims(&store, 0..4).await;
    let short = start(&store, claim(4), 2);
    settle().await;
    let (write, deadline) = (claim(5), in_a_minute());
    let mut still = pin!(store.write(&write, deadline));
    assert!(is_pending(still.as_mut()));
    gate.open.add_permits(1);
    settle().await;
    assert_eq!(gate.sizes(), [1, 5]);
    tasks.pop().unwrap().abort();
    assert_matches!(short.await.unwrap(), Err(StoreError::Timeout));
    gate.open.add_permits(1);
    all_applied(tasks).await;
    assert_eq!(gate.sizes(), [1, 5]);
    assert!(still.await.unwrap().is_applied());
    assert_eq!(gate.records.len(), 6);
}

/// Polls a future once.
fn is_pending(future: Pin<&mut impl Future>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.poll(&mut context).is_pending()
}

/// Says that a group's request is made, and maybe that it is sent; then it hangs.
#[derive(Debug)]
struct Waiting {
    is_sent: bool,
}

impl Store for Waiting {
    async fn write(&self, _: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        tokio::time::sleep(PATIENCE / 2).await;
        Ok(Answer::Applied(None))
    }

    async fn load(&self, _: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        std::future::pending().await
    }

    async fn write_all(&self, _: &[RecordWrite], _: Instant) -> Vec<Result<Answer, StoreError>> {
        Way::note_request();
        if self.is_sent {
            Way::note_send();
        }
        std::future::pending().await
    }
}

/// A store that waits for credentials says so, and each member of the group has its own deadline.
#[tokio::test(start_paused = true)]
async fn a_member_of_a_group_that_waits_in_the_process_was_not_sent() {
    for (is_sent, expected) in [(false, StoreError::NotSent), (true, StoreError::Timeout)] {
        let store = grouped(Waiting { is_sent });
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let (one, two, three) = (claim(0), claim(1), claim(2));
        let (first, second, third) = tokio::join!(
            store.write(&one, at(1)),
            store.write(&two, at(2)),
            store.write(&three, at(3)),
        );
        assert!(first.unwrap().is_applied());
        for member in [second, third] {
            let error = member.unwrap_err();
            assert_eq!(error.to_string(), expected.to_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_request_that_is_dropped_lets_the_others_leave() {
    let (gate, store) = behind_a_closed_gate();
    let mut tasks = claims(&store, 0..4).await;
    tasks.remove(0).abort();
    settle().await;
    assert_eq!(gate.sizes(), [1, 3]);
    gate.open.add_permits(1);
    all_applied(tasks).await;
    gate.open.add_permits(1);
    all_applied(claims(&store, [9]).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_has_gone_is_left_out_of_its_group() {
    let (gate, store) = behind_a_closed_gate();
    let mut tasks = claims(&store, 0..6).await;
    tasks.remove(2).abort();
    tasks.remove(3).abort();
    settle().await;
    let late = store.write(&claim(9), Instant::now() + PATIENCE / 2).await;
    assert_matches!(late, Err(StoreError::NotSent));
    // Nobody comes after this one has gone.
    tasks.pop().unwrap().abort();
    settle().await;
    gate.open.add_permits(2);
    all_applied(tasks).await;
    let asked = gate.calls.lock().unwrap().clone();
    assert_eq!(asked[1], [1, 3].map(|number| name(&id(number))));
    assert_eq!(asked.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_has_gone_makes_no_group_full() {
    let (gate, store) = behind_a_closed_gate();
    let mut tasks = claims(&store, 0..GROUP).await;
    tasks.remove(1).abort();
    settle().await;
    tasks.extend(claims(&store, [GROUP]).await);
    assert_eq!(gate.sizes(), [1]);
    tasks.extend(claims(&store, [GROUP + 1]).await);
    assert_eq!(gate.sizes(), [1, GROUP]);
    gate.open.add_permits(2);
    all_applied(tasks).await;
    assert_eq!(gate.records.len(), GROUP + 1);
}

#[tokio::test(start_paused = true)]
async fn a_group_has_the_latest_deadline_of_those_who_stay() {
    let (gate, store) = behind_a_closed_gate();
    let mut tasks = claims(&store, 0..2).await;
    tasks.pop().unwrap().abort();
    settle().await;
    let began = Instant::now();
    for (number, seconds) in [(2, 10), (3, 30), (4, 20)] {
        tasks.push(start(&store, claim(number), seconds));
        settle().await;
    }
    gate.open.add_permits(2);
    all_applied(tasks).await;
    let deadlines = gate.deadlines.lock().unwrap().clone();
    assert_eq!(deadlines, [began + Duration::from_secs(30)]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_is_answered_without_a_write() {
    let (gate, store) = behind_a_closed_gate();
    gate.open.add_permits(1);
    let alone = store.write(&claim(3), Instant::now()).await;
    assert_matches!(alone, Err(StoreError::NotSent));
    let tasks = claims(&store, 0..3).await;
    let late = store.write(&claim(3), Instant::now()).await;
    assert_matches!(late, Err(StoreError::NotSent));
    gate.open.add_permits(9);
    all_applied(tasks).await;
    assert_eq!(gate.records.len(), 3);
}

/// A store whose first call is never answered.
#[derive(Clone)]
struct HangsOnce(MemoryStore, Arc<Mutex<bool>>);

impl HangsOnce {
    fn new() -> Self {
        Self(MemoryStore::new(), Arc::default())
    }

    async fn call(&self) {
        let has_hung = std::mem::replace(&mut *self.1.lock().unwrap(), true);
        if !has_hung {
            std::future::pending::<()>().await;
        }
    }
}

impl Store for HangsOnce {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        self.call().await;
        self.0.write(write, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.call().await;
        self.0.load(id, deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_call_without_an_answer_runs_protected() {
    let once = Idempotency::builder(HangsOnce::new())
        .namespace("groups")
        .settings(|settings| settings.group_requests = true)
        .on_store_unavailable(OnStoreUnavailable::FailOpen)
        .build()
        .unwrap();
    let run = |key: &'static str| {
        let (once, key) = (once.clone(), Key::new("charge", key));
        let is_protected = async |claim: Claim| Ok::<_, Infallible>(claim.is_protected());
        async move { once.run(key, None, is_protected).await }
    };
    let first = tokio::spawn(run("a"));
    settle().await;
    let began = Instant::now();
    let others = join_all(["b", "c", "d"].map(run));
    for other in others.await {
        assert!(other.unwrap().into_inner());
    }
    assert!(began.elapsed() <= PATIENCE, "{:?}", began.elapsed());
    assert!(run("e").await.unwrap().into_inner());
    assert!(began.elapsed() <= PATIENCE, "it waited for nothing");
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn a_single_request_that_is_not_polled_holds_nothing_up() {
    let store = grouped(Slow(MemoryStore::new()));
    let (write, deadline) = (claim(0), in_a_minute());
    let mut still = pin!(store.write(&write, deadline));
    assert!(is_pending(still.as_mut()));
    let began = Instant::now();
    let other = claim(1);
    assert!(store.write(&other, deadline).await.unwrap().is_applied());
    assert!(began.elapsed() <= PATIENCE + ROUND_TRIP);
    let began = Instant::now();
    let third = claim(2);
    assert!(store.write(&third, deadline).await.unwrap().is_applied());
    assert!(began.elapsed() <= ROUND_TRIP, "{:?}", began.elapsed());
    assert!(still.await.unwrap().is_applied());
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// The task that sends what gathers belongs to the runtime of one of the callers.
#[test]
fn a_runtime_that_ends_leaves_the_queue_to_the_others() {
    let (gate, store) = behind_a_closed_gate();
    let (one, two) = (runtime(), runtime());
    let begin = |runtime: &tokio::runtime::Runtime, number: usize| {
        let task = {
            let _inside = runtime.enter();
            start(&store, claim(number), 60)
        };
        runtime.block_on(settle());
        task
    };
    let (first, second) = (begin(&one, 0), begin(&two, 1));
    drop((first, one));
    assert!(!lock(&store.queues.claims.state).is_busy);
    gate.open.add_permits(9);
    assert!(two.block_on(second).unwrap().unwrap().is_applied());
    let third = two.block_on(async { start(&store, claim(2), 60).await });
    assert!(third.unwrap().unwrap().is_applied());
    two.block_on(settle());
    assert!(!lock(&store.queues.claims.state).is_busy);
}

#[test]
fn a_full_group_whose_runtime_ends_before_it_leaves_was_not_sent() {
    let (gate, store) = behind_a_closed_gate();
    let (one, two) = (runtime(), runtime());
    let tasks = two.block_on(claims(&store, 0..GROUP));
    let (last, deadline) = (claim(GROUP), in_a_minute());
    {
        let _inside = one.enter();
        assert!(is_pending(pin!(store.write(&last, deadline))));
    }
    drop(one);
    gate.open.add_permits(GROUP);
    two.block_on(all_applied(tasks));
    assert_eq!(gate.sizes(), [1; GROUP]);
}

/// Callers come, are dropped and have little time, calls are answered, all in an order that the seed
/// draws: every caller that stays gets the answer to its own request, and nothing waits at the end.
#[tokio::test(start_paused = true)]
async fn in_any_order_of_events_every_caller_that_stays_is_answered() {
    for seed in 0..2_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut fate = fastrand::Rng::with_seed(!seed);
        let gate = Gate::applying(move || fate.bool());
        let store = grouped(Arc::clone(&gate));
        let mut tasks: Vec<(usize, Task)> = Vec::new();
        let crowd = random.usize(1..=3 * GROUP);
        for number in 0..random.usize(1..=2 * crowd) {
            tasks.push((number, start(&store, claim(number), 60)));
            for _ in 0..random.usize(0..3) {
                yield_now().await;
            }
            if random.u8(0..10) == 0 {
                gate.open.add_permits(1);
            }
            if random.u8(0..8) == 0 {
                let gone = random.usize(0..tasks.len());
                tasks.swap_remove(gone).1.abort();
            }
        }
        gate.open.add_permits(10_000);
        for (number, task) in tasks {
            match task.await.unwrap() {
                Ok(Answer::Applied(_)) => {}
                Ok(Answer::Refused(Some(found))) => {
                    let record = found.content.unwrap();
                    assert_eq!(record.owner, Some(owner(number)), "seed {seed}");
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        // Those that were dropped last end, too.
        settle().await;
        assert!(!lock(&store.queues.claims.state).is_busy, "seed {seed}");
    }
}

/// A store that has nothing under way, after so many claims have met.
async fn after_a_crowd(of: usize) -> (Arc<Gate>, Grouped) {
    let (gate, store) = behind_a_closed_gate();
    let tasks = claims(&store, 0..of).await;
    gate.open.add_permits(2);
    all_applied(tasks).await;
    (gate, store)
}

#[tokio::test(start_paused = true)]
async fn requests_that_one_answer_woke_leave_together() {
    let (gate, store) = after_a_crowd(5).await;
    let woken = [5, 6, 7].map(|number| start(&store, claim(number), 60));
    settle().await;
    assert_eq!(gate.sizes(), [1, 4, 3]);
    gate.open.add_permits(1);
    all_applied(woken.into()).await;
    // Nobody met since: the next one leaves without waiting for others.
    let last = claims(&store, [8]).await;
    gate.open.add_permits(1);
    all_applied(last).await;
    settle().await;
    let write = claim(9);
    let mut alone = pin!(store.write(&write, in_a_minute()));
    assert!(is_pending(alone.as_mut()));
    assert_eq!(gate.sizes(), [1, 4, 3, 1, 1]);
}

/// The first request of each kind waits for those that are ready: so it is in a batch.
#[tokio::test(start_paused = true)]
async fn where_all_gather_the_first_leaves_with_the_others() {
    let gate = Gate::closed();
    let groups = Arc::new(Groups::new(Arc::new(Arc::clone(&gate)), true));
    let deadline = Instant::now() + Duration::from_secs(9);
    let writes = [0, 1, 2].map(claim);
    let [first, second, third] = writes.each_ref().map(|write| groups.write(write, deadline));
    let reads = [0, 1].map(id);
    let [read, other] = reads.each_ref().map(|id| groups.load(id, deadline));
    gate.open.add_permits(2);
    let (first, second, third, read, other) = tokio::join!(first, second, third, read, other);
    assert!(first.is_ok() && second.is_ok() && third.is_ok() && read.is_ok() && other.is_ok());
    let mut sizes = gate.sizes();
    sizes.sort_unstable();
    assert_eq!(sizes, [2, 3]);
}

/// Answers fewer requests than it was sent.
struct Forgetful;

impl Store for Forgetful {
    async fn write(&self, _: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        Ok(Answer::Applied(None))
    }

    async fn load(&self, _: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        Ok(None)
    }

    async fn load_all(&self, _: &[RecordId], _: Instant) -> Vec<Result<Option<Found>, StoreError>> {
        vec![Ok(None)]
    }
}

#[tokio::test]
async fn a_request_without_an_answer_in_its_group_has_timed_out() {
    let groups = Groups::new(Arc::new(Forgetful), true);
    let deadline = in_a_minute();
    let ids = [0, 1].map(id);
    let [answered, unanswered] = ids.each_ref().map(|id| groups.load(id, deadline));
    let (answered, unanswered) = tokio::join!(answered, unanswered);
    assert_matches!(answered, Ok(None));
    assert_matches!(unanswered, Err(StoreError::Timeout));
}

/// Leaves one record of each group open, and is slow to answer for it alone.
struct Conflicting;

const SLOW: Duration = Duration::from_secs(5);

impl Conflicting {
    fn leaves_open(id: &RecordId) -> bool {
        *id == self::id(1)
    }

    fn grouped<T>(id: &RecordId, open: StoreError, answer: T) -> Result<T, StoreError> {
        (!Self::leaves_open(id)).then_some(answer).ok_or(open)
    }

    async fn alone(id: &RecordId) {
        tokio::time::sleep(if Self::leaves_open(id) {
            SLOW
        } else {
            Duration::from_millis(10)
        })
        .await;
    }
}

impl Store for Conflicting {
    async fn write(&self, write: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        Self::alone(write.id()).await;
        Ok(Answer::Applied(None))
    }

    async fn load(&self, id: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        Self::alone(id).await;
        Ok(None)
    }

    async fn write_all(
        &self,
        writes: &[RecordWrite],
        _: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let ids = writes.iter().map(RecordWrite::id);
        ids.map(|id| Self::grouped(id, StoreError::NotSent, Answer::Applied(None)))
            .collect()
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        _: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        let open = || StoreError::Throttled("left out".into());
        ids.iter()
            .map(|id| Self::grouped(id, open(), None))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_group_left_open_is_sent_alone_and_holds_up_no_other() {
    let groups = Groups::new(Arc::new(Conflicting), true);
    let began = Instant::now();
    let deadline = began + Duration::from_mins(1);
    let (claims, ids) = ([0, 1, 2].map(claim), [0, 1, 2].map(id));
    let written = claims.each_ref().map(|claim| async {
        let answer = groups.write(claim, deadline).await;
        assert!(answer.unwrap().is_applied());
        began.elapsed()
    });
    let read = ids.each_ref().map(|id| async {
        assert!(groups.load(id, deadline).await.unwrap().is_none());
        began.elapsed()
    });
    let took = tokio::join!(join_all(written), join_all(read));
    let each = vec![Duration::ZERO, SLOW, Duration::ZERO];
    assert_eq!(took, (each.clone(), each));
}

/// Leaves each request of a group to its caller: a write with this error, a read that has this error by
/// itself.
struct Left(fn() -> StoreError);

impl Store for Left {
    async fn write(&self, _: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        Err(StoreError::Throttled("by itself".into()))
    }

    async fn load(&self, _: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        Err((self.0)())
    }

    async fn write_all(&self, _: &[RecordWrite], _: Instant) -> Vec<Result<Answer, StoreError>> {
        vec![Err((self.0)())]
    }

    async fn load_all(&self, _: &[RecordId], _: Instant) -> Vec<Result<Option<Found>, StoreError>> {
        vec![Err(StoreError::Throttled("left out".into()))]
    }
}

#[tokio::test]
async fn a_write_that_its_group_may_have_applied_is_uncertain_whatever_it_meets_alone() {
    let lefts: [fn() -> StoreError; 2] =
        [|| StoreError::NotSent, || StoreError::NotSent.uncertain()];
    for left in lefts {
        let groups = Groups::new(Arc::new(Left(left)), true);
        let deadline = in_a_minute();
        let error = groups.write(&claim(0), deadline).await.unwrap_err();
        assert_matches!(error, StoreError::Throttled(_));
        assert_eq!(error.may_have_applied(), left().is_uncertain());
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_its_group_left_out_is_throttled_where_it_has_no_answer_alone() {
    let silences: [fn() -> StoreError; 3] = [
        || StoreError::NotSent,
        || StoreError::Timeout,
        || StoreError::Unavailable("gone".into()),
    ];
    for silence in silences {
        let groups = Groups::new(Arc::new(Left(silence)), true);
        let error = groups.load(&id(0), in_a_minute()).await.unwrap_err();
        assert_matches!(error, StoreError::Throttled(_));
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_store_panics_may_have_applied() {
    let groups = Groups::new(Arc::new(Left(|| panic!("in the store"))), true);
    let answer = groups.write(&claim(0), in_a_minute()).await;
    assert_matches!(answer, Err(StoreError::Timeout));
}
