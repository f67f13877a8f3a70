//! A store whose wire fails on purpose.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::StoreError;
use crate::key::RecordId;
use crate::packed::{LargeOutcome, Place};
use crate::record::{Amendment, Completion, Found, NewClaim, Release, Renewal, Takeover, Version};
use crate::store::{Answer, Store};
use crate::transaction::{Admission, Commit, Committed};

mod plan;
mod wire;

use plan::Plan;
use wire::{Late, Sent};

/// A call of a [`Store`], by its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Call {
    /// `create`
    Create,
    /// `take_over`
    TakeOver,
    /// `complete`
    Complete,
    /// `renew`
    Renew,
    /// `amend`
    Amend,
    /// `release`
    Release,
    /// `load`
    Load,
    /// `keep`
    Keep,
    /// `fetch`
    Fetch,
    /// `commit`
    Commit,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// It never arrives: [`StoreError::Unavailable`].
    RequestLost,
    /// It applies, and its answer is lost: [`StoreError::Unavailable`].
    ReplyLost,
    /// It applies, its answer is lost, and it is sent again at once, as the SDK does: the second answer is the one that counts.
    Resent,
    /// Its answer is lost, and it arrives only after so long, whatever happened meanwhile: before the next call that comes
    /// then. A read, a transaction, and an outcome to be kept, just never arrive.
    Late(Duration),
    /// It arrives after so long, even if its caller is dropped meanwhile; past its deadline the answer is lost. A read, a transaction,
    /// and an outcome to be kept, never arrive without their caller.
    Delayed(Duration),
    /// It applies at once, and its answer comes after so long; past its deadline the answer is lost.
    ReplyDelayed(Duration),
    /// It applies and is answered, and a copy of it arrives after so long, whatever happened meanwhile: before the next call that
    /// comes then. A read, a transaction, and an outcome to be kept, are never copied.
    Copied(Duration),
    /// [`StoreError::Throttled`]; nothing applies.
    Throttled,
    /// [`StoreError::Conflict`]; nothing applies.
    Conflict,
}

/// A store in front of another one, with a wire between them that loses, delays and repeats what it carries.
///
/// To see what a handler does on a bad night, without waiting for one: give [`Idempotency`](crate::Idempotency) this store,
/// [`inject`](Self::inject) a fault, and look. Or let a [`seeded`](Self::seeded) one fail at random; the same seed and the same
/// calls give the same faults. Clones share the wire. Grouped calls go over it one by one, so each of a group meets a
/// fault of its own.
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
pub struct FaultyStore<S> {
    inner: S,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    /// Writes that are still on their way.
    late: Vec<Late>,
    met: BTreeMap<(Call, &'static str), u64>,
}

impl<S: Store> FaultyStore<S> {
    /// A wire that carries everything, until a fault is [injected](Self::inject).
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            state: Arc::default(),
        }
    }

    /// A wire on which each call meets some fault with this probability, from 0 to 1. A seed gives one sequence of faults.
    pub fn seeded(inner: S, seed: u64, probability: f64) -> Self {
        let store = Self::new(inner);
        store.state().plan = Plan::seeded(seed, probability);
        store
    }

    /// The next such call meets this fault. Faults queue up.
    pub fn inject(&self, call: Call, fault: Fault) {
        self.state().plan.inject(call, fault);
    }

    /// No more faults; those that wait are forgotten. Late writes still arrive.
    pub fn calm(&self) {
        self.state().plan = Plan::default();
    }

    /// How often each call met each fault, by the fault's name.
    pub fn met(&self) -> BTreeMap<(Call, &'static str), u64> {
        self.state().met.clone()
    }

    /// The store behind the wire.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this call meets. Late writes that are due by now arrive before it.
    async fn next(&self, call: Call) -> Option<Fault> {
        for write in self.due() {
            // Nobody waits for its answer any more.
            let _ = write.send(&self.inner, wire::answered_in_time()).await;
        }
        let mut state = self.state();
        let fault = state.plan.next(call)?;
        *state.met.entry((call, fault.name())).or_default() += 1;
        Some(fault)
    }

    fn due(&self) -> VecDeque<Sent> {
        let now = Instant::now();
        let mut state = self.state();
        let (due, later) = std::mem::take(&mut state.late)
            .into_iter()
            .partition::<Vec<_>, _>(|late| late.at <= now);
        state.late = later;
        due.into_iter().map(|late| late.write).collect()
    }

    async fn carry(
        &self,
        call: Call,
        write: Sent,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let Some(fault) = self.next(call).await else {
            return write.send(&self.inner, deadline).await;
        };
        match fault {
            Fault::RequestLost => Err(fault.lost()),
            Fault::ReplyLost => {
                // Whatever it answered.
                let _ = write.send(&self.inner, deadline).await;
                Err(fault.lost())
            }
            Fault::Resent => {
                let _ = write.clone().send(&self.inner, deadline).await;
                write.send(&self.inner, deadline).await
            }
            Fault::Late(pause) => {
                let at = Instant::now() + pause;
                self.state().late.push(Late { at, write });
                Err(fault.lost())
            }
            Fault::Delayed(pause) => {
                let at = Instant::now() + pause;
                let mut under_way = UnderWay {
                    wire: self,
                    late: Some(Late { at, write }),
                };
                tokio::time::sleep_until(at.min(deadline)).await;
                match under_way.late.take_if(|late| late.at <= deadline) {
                    Some(late) => late.write.send(&self.inner, deadline).await,
                    None => Err(StoreError::Timeout),
                }
            }
            Fault::ReplyDelayed(pause) => {
                let answer = write.send(&self.inner, deadline).await;
                in_time(pause, deadline).await?;
                answer
            }
            Fault::Copied(pause) => {
                let at = Instant::now() + pause;
                let copy = write.clone();
                self.state().late.push(Late { at, write: copy });
                write.send(&self.inner, deadline).await
            }
            Fault::Throttled => Err(StoreError::Throttled),
            Fault::Conflict => Err(StoreError::Conflict),
        }
    }
}

impl<S: Store> FaultyStore<S> {
    /// A call that may be made twice without harm, and never arrives late.
    async fn ask<T, Fut>(
        &self,
        call: Call,
        deadline: Instant,
        send: impl Fn() -> Fut,
    ) -> Result<T, StoreError>
    where
        Fut: Future<Output = Result<T, StoreError>>,
    {
        match self.next(call).await {
            None | Some(Fault::Copied(_)) => send().await,
            Some(Fault::Resent) => {
                let _ = send().await;
                send().await
            }
            Some(fault @ Fault::ReplyLost) => {
                let _ = send().await;
                Err(fault.lost())
            }
            Some(Fault::Delayed(pause)) => {
                in_time(pause, deadline).await?;
                send().await
            }
            Some(Fault::ReplyDelayed(pause)) => {
                let answer = send().await;
                in_time(pause, deadline).await?;
                answer
            }
            Some(Fault::Throttled) => Err(StoreError::Throttled),
            Some(Fault::Conflict) => Err(StoreError::Conflict),
            Some(fault) => Err(fault.lost()),
        }
    }
}

/// A write between its caller and the store. Dropped with its caller, or past the deadline, it arrives all the same.
struct UnderWay<'a, S: Store> {
    wire: &'a FaultyStore<S>,
    late: Option<Late>,
}

impl<S: Store> Drop for UnderWay<'_, S> {
    fn drop(&mut self) {
        self.wire.state().late.extend(self.late.take());
    }
}

/// Waits so long, or until the deadline passes.
async fn in_time(pause: Duration, deadline: Instant) -> Result<(), StoreError> {
    let at = Instant::now() + pause;
    tokio::time::sleep_until(at.min(deadline)).await;
    if at > deadline {
        return Err(StoreError::Timeout);
    }
    Ok(())
}

impl Fault {
    /// Its name, as [`FaultyStore::met`] counts it.
    pub fn name(self) -> &'static str {
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

    fn lost(self) -> StoreError {
        StoreError::Unavailable(format!("injected: {}", self.name()).into())
    }
}

impl<S: Store> Store for FaultyStore<S> {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        let write = Sent::Create(claim.clone());
        Ok(self.carry(Call::Create, write, deadline).await?.map(drop))
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let write = Sent::TakeOver(seen.clone(), claim.clone(), mode);
        self.carry(Call::TakeOver, write, deadline).await
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let write = Sent::Complete(completion.clone());
        Ok(self.carry(Call::Complete, write, deadline).await?.map(drop))
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        let write = Sent::Renew(renewal.clone());
        Ok(self.carry(Call::Renew, write, deadline).await?.map(drop))
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        let write = Sent::Amend(amendment.clone());
        Ok(self.carry(Call::Amend, write, deadline).await?.map(drop))
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        let write = Sent::Release(release.clone());
        Ok(self.carry(Call::Release, write, deadline).await?.map(drop))
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.ask(Call::Load, deadline, || self.inner.load(id, deadline))
            .await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        self.ask(Call::Keep, deadline, || self.inner.keep(outcome, deadline))
            .await
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

    fn admission(&self) -> Option<Admission> {
        self.inner.admission()
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        let call = || self.inner.commit(commit, deadline);
        self.ask(Call::Commit, deadline, call).await
    }
}

#[cfg(test)]
mod tests;
