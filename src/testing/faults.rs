//! Puts a wire in front of a store, which fails on purpose where a test planned it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;

use crate::protocol::key::RecordId;
use crate::protocol::lock::lock;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, RecordWrite};
use crate::store;
use crate::store::transaction::{Admission, Commit, Committed};
use crate::store::{Answer, Store, StoreError};
use crate::testing::Crash;

#[cfg(test)]
mod tests;

/// The store is in front of another one, with a wire between them that loses, delays and repeats
/// calls.
///
/// To see how a handler behaves under faults, give [`Idempotency`](crate::Idempotency) this store,
/// [`inject`](Self::inject) a fault, and run it. A [`seeded`](Self::seeded) wire fails at random;
/// the same seed and the same calls give the same faults. Clones share the wire. Grouped calls go
/// over it one by one, so each of a group meets its own fault.
///
/// The times of faults are those of `tokio::time`, which a [`ManualClock`](super::ManualClock) doesn't
/// move. Under `#[tokio::test(start_paused = true)]` (tokio's feature `test-util`) they cost a test no
/// time, and `tokio::time::sleep` passes them.
///
/// ```
/// use lambda_idempotency::testing::{Call, Fault, FaultyStore};
/// use lambda_idempotency::{Idempotency, Key, Outcome, store::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = FaultyStore::new(MemoryStore::new());
/// let once = Idempotency::builder(store.clone()).namespace("tests").build()?;
/// let charge = || once.run(Key::new("charge", "A-17"), None, |claim| async move { Ok::<_, std::io::Error>(claim.attempt()) });
///
/// // The completion applies, its reply is lost: the engine sends it again, and sees its own.
/// store.inject(Call::Complete, Fault::ReplyLost);
/// assert!(matches!(charge().await?, Outcome::Executed(1)));
/// assert!(matches!(charge().await?, Outcome::Replayed(1, _)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FaultyStore {
    inner: Arc<dyn store::DynStore>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Call, Fault)>,
    dice: Option<Dice>,
    crash: Option<PlannedCrash>,
    /// Writes that are still on their way.
    late: Vec<Late>,
    met: BTreeMap<(Call, &'static str), u64>,
}

/// The process dies at the next such call.
#[derive(Clone, Debug)]
struct PlannedCrash {
    call: Call,
    /// The call applies before the process dies.
    applies: bool,
    crash: Crash,
}

impl FaultyStore {
    /// Makes a wire that carries everything, until a fault is [injected](Self::inject).
    pub fn new(inner: impl Store) -> Self {
        Self {
            inner: Arc::new(inner),
            state: Arc::default(),
        }
    }

    /// Makes a wire on which each call meets some fault with this probability, from 0 to 1. A seed
    /// gives one sequence of faults.
    #[doc(hidden)]
    pub fn seeded(inner: impl Store, seed: u64, probability: f64) -> Self {
        let store = Self::new(inner);
        let random = fastrand::Rng::with_seed(seed);
        lock(&store.state).dice = Some(Dice {
            random,
            probability,
        });
        store
    }

    /// Queues a fault for the next such call.
    pub fn inject(&self, call: Call, fault: Fault) {
        lock(&self.state).waiting.push_back((call, fault));
    }

    /// Lets the process die at the next such call, before it is sent. Before [`Call::Complete`] or
    /// [`Call::Commit`] the handler has returned, and its outcome is not stored. One crash is planned
    /// at a time: the last. [`Crash`] has an example.
    pub fn crash_before(&self, call: Call) -> Crash {
        self.crash(call, false)
    }

    /// Lets the process die at the next such call, when it has applied. After [`Call::Create`] the
    /// key is claimed, and its handler has not begun; after [`Call::Complete`] the outcome is
    /// stored, and the caller has no answer.
    ///
    /// ```
    /// use lambda_idempotency::testing::{Call, FaultyStore};
    /// use lambda_idempotency::{Idempotency, Key, store::MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = FaultyStore::new(MemoryStore::new());
    /// let once = Idempotency::builder(store.clone()).namespace("tests").build()?;
    /// let charge = || once.run(Key::new("charge", "A-17"), None, async |_| Ok::<_, std::io::Error>(1250));
    ///
    /// store.crash_after(Call::Complete).cut_off(charge()).await?;
    /// assert!(charge().await?.is_replayed());
    /// # Ok(()) }
    /// ```
    pub fn crash_after(&self, call: Call) -> Crash {
        self.crash(call, true)
    }

    fn crash(&self, call: Call, applies: bool) -> Crash {
        let crash = Crash::new();
        lock(&self.state).crash = Some(PlannedCrash {
            call,
            applies,
            crash: crash.clone(),
        });
        crash
    }

    /// Makes a call, unless the process is to die before it or after it.
    async fn alive<T>(&self, call: Call, made: impl Future<Output = T>) -> T {
        let planned = lock(&self.state)
            .crash
            .take_if(|planned| planned.call == call);
        let Some(planned) = planned else {
            return made.await;
        };
        if planned.applies {
            made.await;
        }
        planned.crash.here().await
    }

    /// Stops all faults, and forgets those in the queue, and a crash. Late writes still arrive.
    pub fn calm(&self) {
        let mut state = lock(&self.state);
        state.waiting.clear();
        state.dice = None;
        state.crash = None;
    }

    /// Counts how often each call met each fault, by the fault's name.
    #[doc(hidden)]
    pub fn met(&self) -> BTreeMap<(Call, &'static str), u64> {
        lock(&self.state).met.clone()
    }

    /// Chooses the fault of this call. Late writes that are due by now arrive before it.
    async fn next(&self, call: Call) -> Option<Fault> {
        while let Some(late) = self.due() {
            let write = late.write.clone();
            // No caller waits for its answer any more.
            let deadline = Instant::now() + Duration::from_mins(1);
            let _ = self.under_way(late).arrive(&write, deadline).await;
        }
        let mut state = lock(&self.state);
        let fault = state.next(call)?;
        *state.met.entry((call, fault.name())).or_default() += 1;
        Some(fault)
    }

    /// Takes the first late write that is due.
    fn due(&self) -> Option<Late> {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let due = state.late.iter().position(|late| late.at <= now)?;
        Some(state.late.remove(due))
    }

    fn under_way(&self, late: Late) -> UnderWay<'_> {
        UnderWay {
            wire: self,
            late: Some(late),
        }
    }

    async fn carry(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let send = || self.inner.write(write, deadline);
        let Some(fault) = self.next(Call::of(write)).await else {
            return send().await;
        };
        let late = |pause| Late {
            at: after(pause),
            write: write.clone(),
        };
        match fault {
            Fault::Late(pause) => {
                lock(&self.state).late.push(late(pause));
                Err(fault.error())
            }
            Fault::Delayed(pause) => {
                let late = late(pause);
                let at = late.at;
                let under_way = self.under_way(late);
                tokio::time::sleep_until(at.min(deadline)).await;
                if at > deadline {
                    return Err(StoreError::Timeout);
                }
                under_way.arrive(write, deadline).await
            }
            Fault::Copied(pause) => {
                lock(&self.state).late.push(late(pause));
                send().await
            }
            _ => meet(fault, deadline, send).await,
        }
    }

    /// Carries a call that has no effect when it arrives without its caller.
    async fn ask<T, Fut>(
        &self,
        call: Call,
        deadline: Instant,
        send: impl Fn() -> Fut,
    ) -> Result<T, StoreError>
    where
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let asked = async {
            match self.next(call).await {
                None | Some(Fault::Copied(_)) => send().await,
                Some(Fault::Delayed(pause)) => {
                    in_time(pause, deadline).await?;
                    send().await
                }
                Some(fault) => meet(fault, deadline, send).await,
            }
        };
        self.alive(call, asked).await
    }
}

/// Sends a call under a fault that treats all calls alike; under any other, the call is lost.
async fn meet<T, Fut>(
    fault: Fault,
    deadline: Instant,
    send: impl Fn() -> Fut,
) -> Result<T, StoreError>
where
    Fut: Future<Output = Result<T, StoreError>>,
{
    match fault {
        Fault::ReplyLost => {
            let _ = send().await;
            Err(fault.error())
        }
        Fault::Resent => match send().await {
            // The wire behind this one lost it: there is no answer to lose, and the caller must hear
            // of it, as a commit's sends are the engine's.
            Err(error) if error.is_unreachable() => Err(error),
            _ => send().await,
        },
        Fault::ReplyDelayed(pause) => {
            let answer = send().await;
            in_time(pause, deadline).await?;
            answer
        }
        _ => Err(fault.error()),
    }
}

/// The longest pause: further ahead, a platform's clock may hold no instant.
const LONGEST: Duration = Duration::from_hours(24 * 365 * 30);

fn after(pause: Duration) -> Instant {
    Instant::now() + pause.min(LONGEST)
}

/// A write that arrives later.
#[derive(Debug)]
struct Late {
    at: Instant,
    write: RecordWrite,
}

/// A write is between its caller and the store. Dropped with its caller, or past the deadline, it
/// still arrives.
struct UnderWay<'a> {
    wire: &'a FaultyStore,
    late: Option<Late>,
}

impl UnderWay<'_> {
    async fn arrive(
        mut self,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let answer = self.wire.inner.write(write, deadline).await;
        self.late = None;
        answer
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(&self.wire.state).late.extend(self.late.take());
    }
}

/// Waits for this time, or until the deadline passes.
async fn in_time(pause: Duration, deadline: Instant) -> Result<(), StoreError> {
    let at = after(pause);
    tokio::time::sleep_until(at.min(deadline)).await;
    if at > deadline {
        return Err(StoreError::Timeout);
    }
    Ok(())
}

/// Carries calls out, each when the one before has its answer, however long a fault delays it.
async fn one_by_one<F: Future>(calls: Vec<F>) -> Vec<F::Output> {
    stream::iter(calls).buffered(1).collect().await
}

impl Store for FaultyStore {
    fn check(&self) -> Result<(), StoreError> {
        self.inner.check()
    }

    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let carried = self.carry(write, deadline);
        self.alive(Call::of(write), carried).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        let call = || self.inner.load(id, deadline);
        self.ask(Call::Load, deadline, call).await
    }

    async fn write_all(
        &self,
        writes: &[RecordWrite],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        let calls = writes.iter().map(|write| self.write(write, deadline));
        // A crash leaves the later writes unsent.
        one_by_one(calls.collect()).await
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        let calls = ids.iter().map(|id| self.load(id, deadline));
        // A crash leaves the later reads unsent.
        one_by_one(calls.collect()).await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        let call = || self.inner.keep(outcome, deadline);
        self.ask(Call::Keep, deadline, call).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let call = || self.inner.fetch(id, place, deadline);
        self.ask(Call::Fetch, deadline, call).await
    }

    fn max_id_bytes(&self) -> usize {
        self.inner.max_id_bytes()
    }

    fn admission(&self) -> Option<Admission> {
        self.inner.admission()
    }

    fn honours_tokens(&self) -> bool {
        self.inner.honours_tokens()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        let call = || self.inner.commit(commit, deadline);
        self.ask(Call::Commit, deadline, call).await
    }
}

/// A call of a [`Store`](crate::store::Store): the kind of its write, or its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`RecordWrite::Create`]
    Create,
    /// [`RecordWrite::TakeOver`]
    TakeOver,
    /// [`RecordWrite::Complete`]
    Complete,
    /// [`RecordWrite::Renew`]
    Renew,
    /// [`RecordWrite::Amend`]: a note of a step, or a key that was derived.
    Amend,
    /// [`RecordWrite::Release`]
    Release,
    /// [`RecordWrite::Intervene`]
    Intervene,
    /// `load`
    Load,
    /// `keep`
    Keep,
    /// `fetch`
    Fetch,
    /// `commit`
    Commit,
}

impl Call {
    fn of(write: &RecordWrite) -> Self {
        match write {
            RecordWrite::Create(_) => Self::Create,
            RecordWrite::TakeOver { .. } => Self::TakeOver,
            RecordWrite::Complete(_) => Self::Complete,
            RecordWrite::Renew { .. } => Self::Renew,
            RecordWrite::Amend { .. } => Self::Amend,
            RecordWrite::Release(_) => Self::Release,
            RecordWrite::Intervene(_) => Self::Intervene,
        }
    }
}

/// A fault happens to one call. Its time passes by `tokio::time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The call never arrives: [`StoreError::Unavailable`].
    RequestLost,
    /// The call applies, and its answer is lost: [`StoreError::Unavailable`].
    ReplyLost,
    /// The call applies, its answer is lost, and it is sent again at once, as the SDK does with
    /// record writes: the caller gets the second answer.
    Resent,
    /// The answer is lost, and the call arrives after this time: before the first call that comes
    /// then. A read, a transaction, and an outcome to be kept, never arrive.
    Late(Duration),
    /// The call arrives after this time, even if its caller is dropped meanwhile; past its deadline
    /// the answer is lost. A read, a transaction, and an outcome to be kept, never arrive without
    /// their caller.
    Delayed(Duration),
    /// The call applies at once, and its answer comes after this time; past its deadline the answer
    /// is lost.
    ReplyDelayed(Duration),
    /// The call applies and is answered, and a copy of it arrives after this time: before the first
    /// call that comes then. A read, a transaction, and an outcome to be kept, are never copied.
    Copied(Duration),
    /// [`StoreError::Throttled`]; nothing applies.
    Throttled,
    /// [`StoreError::Conflict`]; nothing applies.
    Conflict,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::RequestLost => "request lost",
            Self::ReplyLost => "reply lost",
            Self::Resent => "resent",
            Self::Late(_) => "late",
            Self::Delayed(_) => "delayed",
            Self::ReplyDelayed(_) => "reply delayed",
            Self::Copied(_) => "copied",
            Self::Throttled => "throttled",
            Self::Conflict => "conflict",
        }
    }

    fn error(self) -> StoreError {
        let injected = format!("injected: {}", self.name());
        match self {
            Self::Throttled => StoreError::Throttled(injected.into()),
            Self::Conflict => StoreError::Conflict,
            _ => StoreError::Unavailable(injected.into()),
        }
    }
}

/// Writes the name of the fault.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug)]
struct Dice {
    random: fastrand::Rng,
    probability: f64,
}

impl State {
    fn next(&mut self, call: Call) -> Option<Fault> {
        let told = self.waiting.iter().position(|(wanted, _)| *wanted == call);
        match told {
            Some(position) => self.waiting.remove(position).map(|(_, fault)| fault),
            None => self.dice.as_mut()?.throw(),
        }
    }
}

impl Dice {
    fn throw(&mut self) -> Option<Fault> {
        if self.random.f64() >= self.probability {
            return None;
        }
        // From a blink to longer than most leases last.
        let pause = Duration::from_millis(10_u64 << self.random.u32(0..12));
        Some(match self.random.u8(0..9) {
            0 => Fault::RequestLost,
            1 => Fault::ReplyLost,
            2 => Fault::Resent,
            3 => Fault::Late(pause),
            4 => Fault::Delayed(pause),
            5 => Fault::ReplyDelayed(pause),
            6 => Fault::Copied(pause),
            7 => Fault::Throttled,
            _ => Fault::Conflict,
        })
    }
}
