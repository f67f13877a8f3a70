//! Sagas: what was done stands as a whole, or what was confirmed is undone, whenever the process dies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lambda_idempotency::protocol::journal::{SagaState, StepState};
use lambda_idempotency::protocol::packed::{LargeOutcome, Place};
use lambda_idempotency::protocol::record::{
    Ended, Found, Intervention, Owner, Record, RecordWrite,
};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    Claim, Clock, Error, Idempotency, Key, OnCrash, Outcome, PreparedStep, RecordId, Saga,
    SagaError, SagaStatus, Step, StepError, StoreError, Verdict,
};
use tokio::time::Instant;

const LEASE: Duration = Duration::from_mins(1);
const STEPS: [&str; 3] = ["reserve", "charge", "ship"];

/// A store before which the process dies at some of its writes: before it applies, or behind it.
#[derive(Clone, Default)]
struct Deadly {
    inner: MemoryStore,
    writes: Arc<AtomicUsize>,
    dies_at: Arc<Mutex<Vec<(usize, bool)>>>,
    /// The write of which a copy arrives late, and the one before which it does.
    late: Arc<Mutex<Option<(usize, usize)>>>,
    copy: Arc<Mutex<Option<RecordWrite>>>,
    /// The write that doesn't arrive, and is told so.
    unavailable_at: Arc<AtomicUsize>,
}

impl Store for Deadly {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let late = *self.late.lock().unwrap();
        if late.is_some_and(|(of, _)| of == number) {
            *self.copy.lock().unwrap() = Some(write.clone());
        }
        if late.is_some_and(|(_, at)| at == number) {
            let copy = self.copy.lock().unwrap().take();
            // It has nobody to answer.
            let _ = self
                .inner
                .write(&copy.expect("sent before"), deadline)
                .await;
        }
        // Write 0 is the first claim.
        if number > 0 && number == self.unavailable_at.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("unavailable".into()));
        }
        let dies = self.dies_at.lock().unwrap().clone();
        if dies.contains(&(number, false)) {
            return std::future::pending().await;
        }
        let answer = self.inner.write(write, deadline).await;
        if dies.contains(&(number, true)) {
            return std::future::pending().await;
        }
        answer
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.inner.load(id, deadline).await
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        self.inner.keep(outcome, deadline).await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
enum Shop {
    #[error("declined")]
    Declined,
    #[error("no answer")]
    Down,
}

/// The state of the providers: how often each effect happened, and each compensation.
#[derive(Default)]
struct World {
    /// By key, where keys are honoured.
    seen: BTreeMap<String, u32>,
    done: BTreeMap<String, u32>,
    undone: BTreeMap<String, u32>,
    /// The number of times that the failing step was asked for.
    declined: u32,
    /// All that was asked of them, in order.
    asked: Vec<String>,
}

/// A shop whose providers honour keys, or can be asked about effects instead. Compensations honour keys.
struct Bench {
    clock: ManualClock,
    store: Deadly,
    once: Idempotency,
    world: Mutex<World>,
    honours_keys: bool,
    /// The step that fails permanently, and a compensation that fails permanently.
    fails: Option<&'static str>,
    /// Whether the failing step would succeed if it were asked again.
    fails_once: bool,
    undo_fails: Mutex<Option<&'static str>>,
    /// Effects that happen, and kill the process before their answer.
    dies_behind: Mutex<Option<String>>,
}

fn bench(honours_keys: bool, fails: Option<&'static str>) -> Bench {
    let (clock, store) = (ManualClock::default(), Deadly::default());
    let builder = Idempotency::builder(store.clone()).namespace("saga");
    let once = builder.lease(LEASE).clock(clock.clone()).build().unwrap();
    Bench {
        clock,
        store,
        once,
        world: Mutex::default(),
        honours_keys,
        fails,
        fails_once: false,
        undo_fails: Mutex::default(),
        dies_behind: Mutex::default(),
    }
}

fn key() -> Key {
    Key::new("checkout", "order-17")
}

type Handled = Result<u32, SagaError<Shop>>;
type Told = Result<Outcome<u32>, Error<SagaError<Shop>>>;

impl Bench {
    async fn fire(&self, name: &str, key: String) -> Result<u32, Shop> {
        if self.fails == Some(name) {
            let mut world = self.world.lock().unwrap();
            world.declined += 1;
            if !self.fails_once || world.declined == 1 {
                return Err(Shop::Declined);
            }
        }
        {
            let mut world = self.world.lock().unwrap();
            world.asked.push(name.to_owned());
            let seen = world.seen.entry(key).or_default();
            *seen += 1;
            if *seen == 1 || !self.honours_keys {
                *world.done.entry(name.to_owned()).or_default() += 1;
            }
        }
        self.die_behind(name).await;
        Ok(u32::try_from(name.len()).unwrap())
    }

    async fn undo(&self, name: &str, key: String, result: u32) -> Result<(), Shop> {
        assert_eq!(
            usize::try_from(result).unwrap(),
            name.len(),
            "its own result"
        );
        if *self.undo_fails.lock().unwrap() == Some(name) {
            return Err(Shop::Declined);
        }
        {
            let mut world = self.world.lock().unwrap();
            world.asked.push(format!("{name}/undo"));
            let seen = world.seen.entry(key).or_default();
            *seen += 1;
            if *seen == 1 {
                *world.undone.entry(name.to_owned()).or_default() += 1;
            }
        }
        self.die_behind(&format!("{name}/undo")).await;
        Ok(())
    }

    async fn die_behind(&self, name: &str) {
        let dies = self
            .dies_behind
            .lock()
            .unwrap()
            .take_if(|dies| dies == name);
        if dies.is_some() {
            std::future::pending::<()>().await;
        }
    }

    /// Runs a step of the shop's, with its compensation.
    async fn step<'a>(&'a self, saga: &mut Saga<'a, Shop>, name: &'a str) -> Handled {
        let undo = move |key, result| self.undo(name, key, result);
        saga.step(name, |key| self.fire(name, key), undo).await
    }

    async fn checkout(&self, claim: Claim) -> Handled {
        let mut saga = claim.saga()?.permanent(|error| *error == Shop::Declined);
        let mut total = 0;
        for name in STEPS {
            let effect = |key| self.fire(name, key);
            let undo = move |key, result| self.undo(name, key, result);
            let done = if self.honours_keys {
                saga.step(name, effect, undo).await
            } else {
                let query = |_| async {
                    let is_done = self.world.lock().unwrap().done.contains_key(name);
                    Ok(is_done.then(|| u32::try_from(name.len()).unwrap()))
                };
                saga.queried_step(name, query, effect, undo).await
            };
            total += done?;
        }
        saga.finish().await?;
        Ok(total)
    }

    /// Delivers once to the checkout; `None` where the process died.
    async fn deliver(&self) -> Option<Told> {
        self.deliver_to(|claim| self.checkout(claim)).await
    }

    /// Delivers once to this handler; `None` where the process died.
    async fn deliver_to<F: Future<Output = Handled>>(
        &self,
        handler: impl FnOnce(Claim) -> F,
    ) -> Option<Told> {
        let run = Box::pin(self.once.run(key(), None, handler));
        let ended = tokio::time::timeout(Duration::from_millis(50), run).await;
        if ended.is_err() {
            self.clock.advance(2 * LEASE);
        }
        ended.ok()
    }

    /// Delivers to a handler that fails, and whose saga has this status then.
    async fn fails<F: Future<Output = Handled>>(
        &self,
        handler: impl FnOnce(Claim) -> F,
        status: SagaStatus,
    ) {
        let run = Box::pin(self.once.run(key(), None, handler));
        let told = run.await.unwrap_err();
        let is_so = match status {
            SagaStatus::Stuck => matches!(told, Error::Interrupted { .. }),
            SagaStatus::Compensated => {
                matches!(told, Error::Handler(SagaError::Compensated { .. }))
            }
            _ => matches!(told, Error::Handler(SagaError::Unanswered { .. })),
        };
        assert!(is_so, "{told:?}");
        assert_eq!(self.status().await, status);
    }

    /// Delivers until the saga has ended.
    async fn deliver_all(&self) -> Told {
        for _ in 0..5 {
            match self.deliver().await {
                Some(ended @ (Ok(_) | Err(Error::Failed { .. }))) => return ended,
                Some(Err(Error::Handler(SagaError::Compensated { .. }))) | None => {}
                Some(Err(error)) => panic!("{error}"),
            }
        }
        panic!("it does not end");
    }

    async fn record(&self) -> Record {
        let id = self.once.record_id(&key()).unwrap();
        let found = self.store.load(&id, Instant::now() + LEASE).await.unwrap();
        *found.expect("a record").content.expect("a readable one")
    }

    async fn status(&self) -> SagaStatus {
        SagaStatus::of(&self.record().await).expect("a saga")
    }

    /// Releases the record as an operator does, with these entries as failed.
    async fn release_by_hand(&self, fails: impl Fn(&str) -> bool) {
        let id = self.once.record_id(&key()).unwrap();
        let end = Instant::now() + LEASE;
        let found = self.store.load(&id, end).await.unwrap().unwrap();
        let record = found.content.unwrap();
        let failed = record.journal.iter().filter(|(name, _)| fails(name));
        let failed = failed.map(|(name, entry)| {
            let entry = entry.ended(StepState::Failed, None, self.clock.now());
            (name, entry)
        });
        let released = Intervention {
            id,
            seen: found.version,
            owner: Owner::random().unwrap(),
            expiration: record.expiration,
            steps: failed.collect(),
            end: Ended::Released { last_error: None },
        };
        let released = RecordWrite::Intervene(released);
        let released = self.store.write(&released, end).await;
        assert_matches!(released, Ok(Answer::Applied(_)));
    }

    /// All effects stand, or none that was confirmed; nothing happened twice, nothing else is undone.
    fn assert_whole(&self, what: &str) {
        let world = self.world.lock().unwrap();
        let done: Vec<_> = STEPS
            .iter()
            .filter(|name| world.done.contains_key(**name))
            .collect();
        let undone: Vec<_> = STEPS
            .iter()
            .filter(|name| world.undone.contains_key(**name))
            .collect();
        let counts = world.done.values().chain(world.undone.values());
        assert!(
            counts.clone().all(|count| *count == 1),
            "{what}: {:?} {:?}",
            world.done,
            world.undone
        );
        // A confirmed step is not asked for again. The steps come forward, then backward, each in its order.
        let mut asked = world.asked.clone();
        asked.dedup();
        let undone_last_first = undone.iter().rev().map(|name| format!("{name}/undo"));
        let in_order = done.iter().map(|name| (**name).to_owned());
        let in_order: Vec<_> = in_order.chain(undone_last_first).collect();
        assert_eq!(asked, in_order, "{what}");
        match self.fails {
            None => assert_eq!((done.len(), undone.len()), (STEPS.len(), 0), "{what}"),
            // It died before anything said that the saga is compensating.
            Some(_) if self.fails_once && undone.is_empty() && done.len() == STEPS.len() => {}
            Some(_) => assert_eq!(done, undone, "{what}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_good_undoes_what_was_done_and_duplicates_are_told() {
    let bench = bench(true, Some("ship"));
    let first = bench.deliver().await.unwrap();
    let Err(Error::Handler(SagaError::Compensated { undone, .. })) = first else {
        panic!("{first:?}")
    };
    assert_eq!(undone, ["charge", "reserve"]);
    bench.assert_whole("once");
    assert_eq!(bench.status().await, SagaStatus::Compensated);
    // Long after the retention of other failures.
    bench.clock.advance(Duration::from_hours(20));
    let duplicate = bench.deliver().await.unwrap().unwrap_err().to_string();
    assert!(
        duplicate.contains("declined; undone: charge, reserve"),
        "{duplicate}"
    );
    bench.assert_whole("twice");
}

#[tokio::test(start_paused = true)]
async fn a_saga_without_a_failure_is_done_and_replayed() {
    let bench = bench(true, None);
    let total = bench.deliver().await.unwrap().unwrap();
    assert_matches!(total, Outcome::Executed(17));
    assert_eq!(bench.status().await, SagaStatus::Completed);
    let again = bench.deliver().await.unwrap().unwrap();
    assert_matches!(again, Outcome::Replayed(17, _));
    bench.assert_whole("done");
}

/// Returns the number of writes of a saga that ends without a death.
async fn writes(honours_keys: bool, fails: Option<&'static str>) -> usize {
    let bench = bench(honours_keys, fails);
    bench.deliver_all().await.map(drop).unwrap_or_default();
    bench.store.writes.load(Ordering::Relaxed)
}

const FAILS: [Option<&str>; 4] = [None, Some("reserve"), Some("charge"), Some("ship")];

/// With and without honoured keys, each step failing.
fn worlds() -> impl Iterator<Item = (bool, Option<&'static str>)> {
    let honours = [true, false].into_iter();
    honours.flat_map(|honours| FAILS.map(|fails| (honours, fails)))
}

#[tokio::test(start_paused = true)]
async fn at_every_two_deaths_all_effects_stand_or_none_that_was_confirmed() {
    // One pair of so many.
    let stride = std::env::var("DEATHS_STRIDE").map_or(3, |text| text.parse().unwrap());
    let mut deaths = 0;
    for (honours_keys, fails) in worlds() {
        let last = writes(honours_keys, fails).await + 6;
        let places = || (0..last).flat_map(|place| [(place, false), (place, true)]);
        for first in places() {
            let later = places().filter(|second| second.0 > first.0);
            for second in later.filter(|second| (first.0 + second.0).is_multiple_of(stride)) {
                for fails_once in [false, true] {
                    let mut bench = bench(honours_keys, fails);
                    bench.fails_once = fails_once;
                    *bench.store.dies_at.lock().unwrap() = vec![first, second];
                    bench.deliver_all().await.map(drop).unwrap_or_default();
                    let what =
                        format!("{honours_keys} {fails:?}, dead at {first:?} and {second:?}");
                    bench.assert_whole(&what);
                    deaths += 2;
                }
            }
        }
    }
    assert!(deaths > 4_000, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_write_changes_nothing_whether_or_not_its_sender_died() {
    let mut copies = 0;
    for (honours_keys, fails) in worlds() {
        let last = writes(honours_keys, fails).await;
        for of in 0..last {
            for at in of + 1..last + 4 {
                for dies in [None, Some((of, false)), Some((of, true))] {
                    let bench = bench(honours_keys, fails);
                    *bench.store.late.lock().unwrap() = Some((of, at));
                    *bench.store.dies_at.lock().unwrap() = dies.into_iter().collect();
                    bench.deliver_all().await.map(drop).unwrap_or_default();
                    let what = format!("{honours_keys} {fails:?}, {of} again at {at}, {dies:?}");
                    bench.assert_whole(&what);
                    copies += usize::from(bench.store.writes.load(Ordering::Relaxed) > at);
                }
            }
        }
    }
    assert!(copies > 1_000, "{copies}");
}

#[tokio::test(start_paused = true)]
async fn at_every_death_all_effects_stand_or_none_that_was_confirmed() {
    let mut deaths = 0;
    for honours_keys in [true, false] {
        for fails in FAILS {
            for place in 0.. {
                let mut died = false;
                for applies in [false, true] {
                    let bench = bench(honours_keys, fails);
                    *bench.store.dies_at.lock().unwrap() = vec![(place, applies)];
                    let what =
                        format!("{honours_keys} {fails:?}, dead at write {place}, {applies}");
                    let first = bench.deliver().await;
                    died |= first.is_none();
                    bench.deliver_all().await.map(drop).unwrap_or_default();
                    bench.assert_whole(&what);
                    deaths += usize::from(first.is_none());
                }
                if !died {
                    break;
                }
            }
            let places = STEPS
                .iter()
                .flat_map(|name| [(*name).to_owned(), format!("{name}/undo")]);
            for place in places {
                let bench = bench(honours_keys, fails);
                *bench.dies_behind.lock().unwrap() = Some(place.clone());
                let first = bench.deliver().await;
                bench.deliver_all().await.map(drop).unwrap_or_default();
                bench.assert_whole(&format!("{honours_keys} {fails:?}, dead behind {place}"));
                deaths += usize::from(first.is_none());
            }
        }
    }
    assert!(deaths > 100, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_resumes_where_it_stopped() {
    let bench = bench(true, None);
    let tries = AtomicUsize::new(0);
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga()?.permanent(|error| *error == Shop::Declined);
        bench.step(&mut saga, "reserve").await?;
        let down = |_| async {
            match tries.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Shop::Down),
                _ => Ok(1),
            }
        };
        saga.step("charge", down, |_, _: u32| async { Ok(()) })
            .await
    };
    let first = bench.once.run(key(), None, checkout).await.unwrap_err();
    assert_matches!(
        first,
        Error::Handler(SagaError::Step(StepError::Effect(Shop::Down)))
    );
    assert_eq!(bench.status().await, SagaStatus::Running);
    bench.once.run(key(), None, checkout).await.unwrap();
    assert_eq!(bench.world.lock().unwrap().done["reserve"], 1);
    assert!(bench.world.lock().unwrap().undone.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_compensation_that_fails_for_good_waits_for_an_operator() {
    let bench = bench(true, Some("ship"));
    *bench.undo_fails.lock().unwrap() = Some("charge");
    for _ in 0..2 {
        let stuck = bench.deliver().await.unwrap().unwrap_err();
        assert_matches!(stuck, Error::Interrupted { .. });
        assert_eq!(bench.status().await, SagaStatus::Stuck);
        assert!(
            bench.world.lock().unwrap().undone.is_empty(),
            "the last first"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_of_unknown_fate_that_nobody_can_be_asked_about_waits_for_an_operator() {
    let bench = bench(true, None);
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        let charge = Step::named("charge").on_crash(OnCrash::Interrupt);
        let undo = |key, result| bench.undo("charge", key, result);
        saga.step(charge, |key| bench.fire("charge", key), undo)
            .await
    };
    *bench.dies_behind.lock().unwrap() = Some("charge".to_owned());
    assert!(bench.deliver_to(checkout).await.is_none());
    let answered = async |claim: Claim| Ok(checkout(claim).await.unwrap_or(0));
    bench.fails(checkout, SagaStatus::Stuck).await;
    bench.fails(answered, SagaStatus::Stuck).await;
    assert_eq!(bench.world.lock().unwrap().done["charge"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_go_on_from_an_interrupted_step_beside_its_saga() {
    let bench = bench(true, None);
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        bench.step(&mut saga, "reserve").await?;
        let mail = Step::named("mail").on_crash(OnCrash::Interrupt);
        match claim.step(mail, |key| bench.fire("mail", key)).await {
            // The provider says that it was sent.
            Ok(_) | Err(StepError::Interrupted { .. }) => saga.finish().await.map(|()| 7),
            Err(error) => Err(error.into()),
        }
    };
    *bench.dies_behind.lock().unwrap() = Some("mail".to_owned());
    assert!(bench.deliver_to(checkout).await.is_none());
    let done = bench.once.run(key(), None, checkout).await.unwrap();
    assert_eq!(done, Outcome::Executed(7));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_one_saga_of_well_named_steps_is_refused_or_undone() {
    let run = async |checkout: &dyn Fn(Claim) -> BoxFuture<'static, Handled>| {
        let bench = bench(true, None);
        let refused = bench.once.run(key(), None, checkout).await;
        match refused {
            Err(Error::Handler(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let nested = run(&|claim| {
        Box::pin(async move {
            let _first = claim.saga::<Shop>()?;
            claim.saga::<Shop>().map(|_| 1)
        })
    });
    assert_matches!(nested.await, SagaError::Nested);
    let named = |names: &'static [&'static str]| {
        move |claim: Claim| -> BoxFuture<'static, _> {
            Box::pin(async move {
                let mut saga = claim.saga::<Shop>()?;
                for name in names {
                    saga.step(*name, |_| async { Ok(1) }, |_, _: u32| async { Ok(()) })
                        .await?;
                }
                Ok(1)
            })
        }
    };
    let many: Vec<&str> = (0..=50).map(|step| &*format!("{step}").leak()).collect();
    for name in ["@saga", ""] {
        let told = run(&named(vec![name].leak())).await;
        assert_matches!(
            told,
            SagaError::Step(StepError::Name { .. }),
            "nothing is to be undone"
        );
    }
    for (names, words, count) in [
        (vec!["a", "a"], "was run already", 1),
        (vec!["a", "a/undo"], "can't be used", 1),
        (many, "has no room", 50),
    ] {
        let told = run(&named(names.leak())).await;
        let SagaError::Compensated { failure, undone } = told else {
            panic!("{told:?}")
        };
        assert!(failure.message.contains(words), "{failure:?}");
        assert_eq!((failure.kind.as_str(), undone.len()), ("NotBegun", count));
    }
}

/// A step that the handler begins itself, once all is undone.
#[tokio::test(start_paused = true)]
async fn a_step_behind_a_compensation_waits_for_an_operator_as_any_other() {
    let bench = bench(true, Some("charge"));
    let checkout = async |claim: Claim| {
        let told = bench.checkout(claim.clone()).await.unwrap_err();
        let notify = Step::named("notify").on_crash(OnCrash::Interrupt);
        claim.step(notify, |key| bench.fire("notify", key)).await?;
        Err::<u32, _>(told)
    };
    *bench.dies_behind.lock().unwrap() = Some("notify".to_owned());
    assert!(bench.deliver_to(checkout).await.is_none());
    for _ in 0..2 {
        let told = bench.once.run(key(), None, checkout).await.unwrap_err();
        assert_matches!(told, Error::Interrupted { .. });
    }
}

#[tokio::test(start_paused = true)]
async fn without_protection_a_saga_that_still_compensates_is_no_success() {
    for observes in [false, true] {
        let mut bench = bench(true, None);
        let builder = Idempotency::builder(bench.store.clone()).namespace("saga");
        let builder = builder.disabled(!observes).observe(observes);
        bench.once = builder.build().unwrap();
        let checkout = async |claim: Claim| {
            let mut saga = claim.saga::<Shop>().unwrap();
            let undo = |_, _| async { Err(Shop::Down) };
            let reserve = saga.step("reserve", |key| bench.fire("reserve", key), undo);
            reserve.await.unwrap();
            let _ = saga.abort(&Shop::Declined).await;
            Ok::<u32, Shop>(1)
        };
        let told = bench.once.run(key(), None, checkout).await;
        // Observing changes no answer.
        assert_eq!(told.is_ok(), observes, "{told:?}");
        assert!(
            observes || matches!(told, Err(Error::Compensating)),
            "{told:?}"
        );
        let fails = async |claim| checkout(claim).await.and(Err::<u32, _>(Shop::Declined));
        let told = bench.once.run_with(key(), None, fails, |_| Verdict::Fail);
        let told = told.await.unwrap_err();
        assert_eq!(matches!(told, Error::Handler(_)), observes, "{told:?}");
        assert_eq!(matches!(told, Error::Compensating), !observes, "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_that_hangs_and_a_compensation_that_panics_are_bounded() {
    let bench = bench(true, None);
    *bench.dies_behind.lock().unwrap() = Some("charge".to_owned());
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        let undo = |_, _: u32| async { panic!("in the compensation") };
        let hangs = |_| std::future::pending();
        saga.queried_step("charge", hangs, |key| bench.fire("charge", key), undo)
            .await?;
        Err::<u32, _>(saga.abort(&Shop::Declined).await)
    };
    assert!(bench.deliver_to(checkout).await.is_none());
    bench.fails(checkout, SagaStatus::Running).await;
    let panics = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        let undo = |_, _: u32| async { panic!("in the compensation") };
        saga.step("charge", |key| bench.fire("charge", key), undo)
            .await?;
        Err::<u32, _>(saga.abort(&Shop::Declined).await)
    };
    bench.fails(panics, SagaStatus::Stuck).await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_before_a_step_that_an_earlier_delivery_did_waits_for_an_operator() {
    for dies in [false, true] {
        let bench = bench(true, None);
        if dies {
            *bench.dies_behind.lock().unwrap() = Some("charge".to_owned());
        }
        let checkout = |is_cancelled: bool| {
            let bench = &bench;
            async move |claim: Claim| {
                let mut saga = claim.saga::<Shop>()?;
                let undo = |_, _: u32| async { Ok(()) };
                saga.step("reserve", |key| bench.fire("reserve", key), undo)
                    .await?;
                if is_cancelled {
                    return Err(saga.abort(&Shop::Declined).await);
                }
                saga.step("charge", |key| bench.fire("charge", key), undo)
                    .await?;
                Err::<u32, _>(SagaError::Step(StepError::Effect(Shop::Down)))
            }
        };
        let first = bench.deliver_to(checkout(false)).await;
        assert_eq!(first.is_none(), dies);
        bench.fails(checkout(true), SagaStatus::Stuck).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_compensation_that_may_have_happened_waits_for_an_operator() {
    let bench = bench(false, None);
    let refunds = AtomicUsize::new(0);
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        let undo = |_, _: u32| async {
            refunds.fetch_add(1, Ordering::Relaxed);
            Err(Shop::Down)
        };
        let charge = Step::named("charge").on_crash(OnCrash::Interrupt);
        let charge = charge.unsure_after(|error| *error == Shop::Down);
        saga.step(charge, |key| bench.fire("charge", key), undo)
            .await?;
        Err::<u32, _>(saga.abort(&Shop::Declined).await)
    };
    for _ in 0..3 {
        bench.once.run(key(), None, checkout).await.unwrap_err();
    }
    assert_eq!(refunds.load(Ordering::Relaxed), 1);
    assert_eq!(bench.status().await, SagaStatus::Stuck);
}

/// Charges at a provider that does it and never answers.
async fn charge_unanswered(claim: Claim, charges: &AtomicUsize) -> Handled {
    let mut saga = claim.saga::<Shop>()?;
    let query = |_| async { Ok((charges.load(Ordering::Relaxed) > 0).then_some(6)) };
    let charge = |_| async {
        charges.fetch_add(1, Ordering::Relaxed);
        Err(Shop::Down)
    };
    let undo = |_, _| async { Ok(()) };
    saga.queried_step("charge", query, charge, undo).await
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_asked_after_an_error_that_leaves_its_effect_unknown() {
    let bench = bench(false, None);
    let charges = AtomicUsize::new(0);
    let checkout = |claim| charge_unanswered(claim, &charges);
    bench.once.run(key(), None, checkout).await.unwrap_err();
    let told = bench.once.run(key(), None, checkout).await.unwrap();
    assert_eq!((told, charges.into_inner()), (Outcome::Executed(6), 1));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_may_have_happened_stays_so_where_its_next_note_fails() {
    let bench = bench(false, None);
    let charges = AtomicUsize::new(0);
    let checkout = |claim| charge_unanswered(claim, &charges);
    bench.once.run(key(), None, checkout).await.unwrap_err();
    // The next writes are a claim that meets the record, and one that takes it over.
    let note = bench.store.writes.load(Ordering::Relaxed) + 2;
    bench.store.unavailable_at.store(note, Ordering::Relaxed);
    let second = bench.once.run(key(), None, checkout).await.unwrap_err();
    assert_matches!(second, Error::Handler(SagaError::Step(StepError::Store(_))));
    let told = bench.once.run(key(), None, checkout).await.unwrap();
    assert_eq!((told, charges.into_inner()), (Outcome::Executed(6), 1));
}

#[tokio::test(start_paused = true)]
async fn a_transient_error_of_a_second_try_says_nothing_of_the_first() {
    let bench = bench(false, None);
    let checkout = async |claim: Claim, this: &str| {
        let mut saga = claim.saga::<Shop>()?;
        if this == "aborts" {
            return Err(saga.abort(&Shop::Declined).await);
        }
        let charge = |_| async {
            if this == "dies" {
                std::future::pending::<()>().await;
            }
            Err::<u32, _>(Shop::Down)
        };
        saga.step("charge", charge, |_, _| async { Ok(()) }).await
    };
    let dies = bench.deliver_to(|claim| checkout(claim, "dies"));
    assert!(dies.await.is_none());
    let fails = bench
        .once
        .run(key(), None, |claim| checkout(claim, "fails"));
    fails.await.unwrap_err();
    let aborts = bench.fails(|claim| checkout(claim, "aborts"), SagaStatus::Stuck);
    aborts.await;
}

#[tokio::test(start_paused = true)]
async fn a_step_beside_a_saga_keeps_nothing_from_being_undone() {
    let bench = bench(true, None);
    let (undone, sent) = (AtomicUsize::new(0), tokio::sync::Notify::new());
    let checkout = async |claim: Claim| {
        let mail = claim.step("mail", |_| async {
            sent.notified().await;
            Ok::<_, Shop>(1)
        });
        let saga = async {
            let saga = claim.saga::<Shop>()?;
            let mut saga = saga.permanent(|error| *error == Shop::Declined);
            let release = |_, _: u32| async {
                undone.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            saga.step("reserve", |_| async { Ok(1) }, release).await?;
            let declined = |_| async { Err::<u32, _>(Shop::Declined) };
            let charged = saga.step("charge", declined, |_, _| async { Ok(()) });
            let charged = charged.await;
            sent.notify_one();
            charged
        };
        let (mail, charged) = tokio::join!(mail, saga);
        mail.map_err(SagaError::Step)?;
        charged
    };
    bench.fails(checkout, SagaStatus::Compensated).await;
    assert_eq!(undone.into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pending_step_beside_a_saga_that_this_delivery_has_named_is_not_undone() {
    for dies in [true, false] {
        let bench = bench(true, Some("charge"));
        if dies {
            *bench.dies_behind.lock().unwrap() = Some("notify".to_owned());
        }
        let checkout = async |claim: Claim| {
            let mut saga = claim.saga()?.permanent(|error| *error == Shop::Declined);
            bench.step(&mut saga, "reserve").await?;
            let is_unsure = !dies;
            let notify = Step::named("notify").unsure_after(move |_| is_unsure);
            let notified = claim.step(notify, async |key| {
                bench.fire("notify", key).await?;
                Err::<u32, _>(Shop::Down)
            });
            // Its failure is no reason to fail the checkout.
            notified.await.unwrap_err();
            let undo = |_, _| async { Ok(()) };
            saga.step("charge", |key| bench.fire("charge", key), undo)
                .await
        };
        if dies {
            assert!(bench.deliver_to(checkout).await.is_none());
        }
        bench.fails(checkout, SagaStatus::Compensated).await;
        let record = bench.record().await;
        let notify = record.journal.get("notify").unwrap();
        assert_eq!(notify.state, StepState::Pending);
        assert_eq!(bench.world.lock().unwrap().undone["reserve"], 1);
    }
}

/// A step of the saga itself may have been done, whether it failed or its result can't be read.
#[tokio::test(start_paused = true)]
async fn a_step_of_the_saga_that_this_delivery_could_not_finish_waits_for_an_operator() {
    for is_confirmed in [true, false] {
        let bench = bench(true, None);
        let down = async |claim: Claim| {
            let mut saga = claim.saga::<Shop>()?;
            let charge = Step::named("charge").unsure_after(|error| *error == Shop::Down);
            let effect = |_| async { is_confirmed.then_some(1_u32).ok_or(Shop::Down) };
            saga.step(charge, effect, |_, _| async { Ok(()) }).await?;
            Err::<u32, _>(SagaError::Step(StepError::Effect(Shop::Down)))
        };
        bench.once.run(key(), None, down).await.unwrap_err();
        let aborts = async |claim: Claim| {
            let mut saga = claim.saga::<Shop>()?;
            let charge = Step::named("charge").unsure_after(|error| *error == Shop::Down);
            let effect = |_| async { Err::<String, _>(Shop::Down) };
            let charged = saga.step(charge, effect, |_, _| async { Ok(()) }).await;
            charged.unwrap_err();
            Err::<u32, _>(saga.abort(&Shop::Declined).await)
        };
        bench.fails(aborts, SagaStatus::Stuck).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_behind_an_effect_of_unknown_fate_asks_the_provider_first() {
    for happened in [true, false] {
        let bench = bench(false, None);
        let undone = AtomicUsize::new(0);
        let checkout = async |claim: Claim| {
            let mut saga = claim.saga::<Shop>()?;
            let query = |_| async { Ok(happened.then_some(6)) };
            let undo = |_, _: u32| async {
                undone.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            let down = |_| async { Err(Shop::Down) };
            match saga.queried_step("charge", query, down, undo).await {
                Err(SagaError::Step(StepError::Effect(_))) => {
                    return Err(saga.abort(&Shop::Declined).await);
                }
                ended => ended?,
            };
            saga.finish().await?;
            Ok(6)
        };
        bench.fails(checkout, SagaStatus::Compensating).await;
        bench.fails(checkout, SagaStatus::Compensated).await;
        assert_eq!(undone.into_inner(), usize::from(happened));
        assert_eq!(bench.status().await, SagaStatus::Compensated);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_abort_after_a_compensation_got_stuck_says_so() {
    let bench = bench(true, None);
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga()?.permanent(|error| *error == Shop::Declined);
        let undo = |_, _: u32| async { Err(Shop::Declined) };
        saga.step("reserve", |key| bench.fire("reserve", key), undo)
            .await?;
        saga.abort(&Shop::Declined).await;
        Err::<u32, _>(saga.abort(&Shop::Declined).await)
    };
    bench.fails(checkout, SagaStatus::Stuck).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_abort_after_all_was_undone_tells_the_same() {
    let bench = bench(true, None);
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga()?.permanent(|error| *error == Shop::Declined);
        bench.step(&mut saga, "reserve").await?;
        saga.abort(&Shop::Declined).await;
        match saga.abort(&Shop::Declined).await {
            SagaError::Compensated { undone, .. } => Ok(undone),
            error => Err(error),
        }
    };
    let told = bench.once.run(key(), None, checkout).await.unwrap();
    assert_eq!(told, Outcome::Executed(vec!["reserve".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_compensation_that_an_operator_settled_is_as_any_other() {
    let bench = bench(true, Some("ship"));
    *bench.undo_fails.lock().unwrap() = Some("charge");
    bench.deliver().await.unwrap().unwrap_err();
    assert_eq!(bench.status().await, SagaStatus::Stuck);

    bench.release_by_hand(|name| name == "charge/undo").await;

    *bench.undo_fails.lock().unwrap() = None;
    *bench.dies_behind.lock().unwrap() = Some("charge/undo".to_owned());
    assert!(bench.deliver().await.is_none());
    assert_eq!(bench.status().await, SagaStatus::Compensating);
    let ended = bench.deliver_all().await;
    assert_matches!(ended, Err(Error::Failed { .. }));
    bench.assert_whole("settled");
}

/// As `rerun --steps repeat` does.
#[tokio::test(start_paused = true)]
async fn a_saga_that_an_operator_has_run_anew_notes_its_state_again() {
    let bench = bench(true, None);
    bench.deliver().await.unwrap().unwrap();
    bench.release_by_hand(|_| true).await;
    let record = bench.record().await;
    assert!(SagaState::of(&record.journal).is_none());
    bench.deliver().await.unwrap().unwrap();
    let record = bench.record().await;
    let state = SagaState::of(&record.journal).expect("a state");
    assert!(!state.is_erased);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_without_undoing_its_steps_leaves_no_compensated_saga() {
    let bench = bench(true, None);
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        let undo = |_, _: u32| async { Ok(()) };
        saga.step("reserve", |key| bench.fire("reserve", key), undo)
            .await?;
        Err::<u32, SagaError<Shop>>(SagaError::Step(StepError::Effect(Shop::Declined)))
    };
    let fails = bench
        .once
        .run_with(key(), None, checkout, |_| Verdict::Fail);
    fails.await.unwrap_err();
    assert_eq!(bench.status().await, SagaStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_whose_note_was_cut_off_leaves_no_success() {
    let bench = bench(true, Some("reserve"));
    // Behind the claim, the note of the saga and that of the step: the note that the step failed.
    bench.store.dies_at.lock().unwrap().push((3, false));
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga()?.permanent(|error| *error == Shop::Declined);
        let undo = |_, _: u32| async { Ok(()) };
        let step = saga.step("reserve", |key| bench.fire("reserve", key), undo);
        let cut = tokio::time::timeout(Duration::from_millis(50), step).await;
        cut.unwrap_err();
        Ok::<u32, SagaError<Shop>>(7)
    };
    let told = bench.once.run(key(), None, checkout).await;
    assert_matches!(told, Err(Error::Compensating));
}

#[tokio::test(start_paused = true)]
async fn a_second_abort_in_one_attempt_leaves_the_compensation_to_the_next() {
    let bench = bench(true, None);
    let undos = AtomicUsize::new(0);
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        let undo = |_, _: u32| async {
            match undos.fetch_add(1, Ordering::Relaxed) {
                0 => Err(Shop::Down),
                _ => Ok(()),
            }
        };
        saga.step("reserve", |key| bench.fire("reserve", key), undo)
            .await?;
        let first = saga.abort(&Shop::Declined).await;
        if !matches!(first, SagaError::Step(_)) {
            return Err(first);
        }
        Err::<u32, _>(saga.abort(&Shop::Declined).await)
    };
    bench.fails(checkout, SagaStatus::Compensating).await;
    let last_error = bench.record().await.last_error;
    assert_eq!(last_error.as_deref(), Some("compensating"));
    bench.fails(checkout, SagaStatus::Compensated).await;
    assert_eq!(undos.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_undone_before_the_record_says_that_it_is() {
    for (applies, aborts) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bench = bench(true, Some("charge"));
        bench.fails_once = true;
        // The note that the saga is compensating.
        *bench.store.dies_at.lock().unwrap() = vec![(6, applies)];
        let checkout = async |claim: Claim| {
            let mut saga = claim.saga()?.permanent(|error| *error == Shop::Declined);
            bench.step(&mut saga, "reserve").await?;
            let charge = bench.step(&mut saga, "charge");
            let charged = tokio::time::timeout(Duration::from_millis(10), charge).await;
            if charged.is_err() && aborts {
                return Err(saga.abort(&Shop::Declined).await);
            }
            charged.unwrap_or(Ok(0))?;
            // It goes back, however little the handler makes of it.
            bench.step(&mut saga, "ship").await?;
            saga.finish().await?;
            Ok(1)
        };
        bench.fails(checkout, SagaStatus::Compensated).await;
        assert!(!bench.world.lock().unwrap().done.contains_key("ship"));
        let told = bench.once.run(key(), None, checkout).await.unwrap_err();
        assert_matches!(told, Error::Failed { .. });
        assert_eq!(bench.world.lock().unwrap().undone["reserve"], 1);
    }
}

/// Delivers a saga that is aborted, and whose compensation fails for now.
async fn abort_for_now(bench: &Bench) {
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        let undo = |_, _| async { Err(Shop::Down) };
        saga.step("reserve", |key| bench.fire("reserve", key), undo)
            .await?;
        Err::<u32, _>(saga.abort(&Shop::Declined).await)
    };
    bench.once.run(key(), None, checkout).await.unwrap_err();
    assert_eq!(bench.status().await, SagaStatus::Compensating);
}

/// Delivers a saga whose compensation succeeds.
async fn abort(bench: &Bench) {
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        bench.step(&mut saga, "reserve").await?;
        Err::<u32, _>(saga.abort(&Shop::Declined).await)
    };
    bench.fails(checkout, SagaStatus::Compensated).await;
    assert_eq!(bench.world.lock().unwrap().undone["reserve"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_leaves_a_compensating_saga_alone_is_not_final() {
    let bench = bench(true, None);
    abort_for_now(&bench).await;
    let cancelled = async |_: Claim| Ok::<u32, Shop>(1);
    let told = bench.once.run(key(), None, cancelled).await.unwrap_err();
    assert_matches!(told, Error::Compensating);
    let fails = async |_: Claim| Err::<u32, _>(Shop::Declined);
    let permanent = bench.once.run_with(key(), None, fails, |_| Verdict::Fail);
    let told = permanent.await.unwrap_err();
    // A caller that took it for a failure that is stored would not deliver it again.
    assert_matches!(told, Error::Compensating);
    assert_eq!(bench.status().await, SagaStatus::Compensating);
    abort(&bench).await;
}

/// The handler without the saga is of another version of the function.
#[tokio::test(start_paused = true)]
async fn no_step_of_a_handler_without_the_saga_fires_while_that_compensates() {
    for is_prepared in [false, true] {
        let bench = bench(true, None);
        *bench.undo_fails.lock().unwrap() = Some("reserve");
        let with_saga = async |claim: Claim| {
            claim.step("mail", |key| bench.fire("mail", key)).await?;
            let mut saga = claim.saga::<Shop>()?;
            bench.step(&mut saga, "reserve").await?;
            Err::<u32, _>(saga.abort(&Shop::Declined).await)
        };
        bench.once.run(key(), None, with_saga).await.unwrap_err();
        let without_saga = async |claim: Claim| {
            claim
                .step("reserve", |key| bench.fire("reserve", key))
                .await?;
            let ship = async |step: PreparedStep<Shop>| {
                step.firing().await?;
                Ok(bench.fire("ship", step.key()).await?)
            };
            if is_prepared {
                claim.prepared_step("ship", ship).await
            } else {
                claim.step("ship", |key| bench.fire("ship", key)).await
            }
        };
        let told = bench.once.run(key(), None, without_saga).await.unwrap_err();
        assert_matches!(told, Error::Handler(StepError::Compensating { .. }));
        assert_eq!(bench.status().await, SagaStatus::Compensating);
        *bench.undo_fails.lock().unwrap() = None;
        bench.fails(with_saga, SagaStatus::Compensated).await;
        let asked = bench.world.lock().unwrap().asked.clone();
        assert_eq!(asked, ["mail", "reserve", "reserve/undo"]);
    }
}

/// The handler goes on without it, and whether it happened is not known.
#[tokio::test(start_paused = true)]
async fn a_pending_step_before_the_saga_keeps_nothing_from_being_undone() {
    let bench = bench(true, None);
    *bench.undo_fails.lock().unwrap() = Some("reserve");
    let handler = async |claim: Claim| {
        let mail = Step::named("mail").unsure_after(|_: &Shop| true);
        let mailed = claim.step(mail, async |_| Err::<u32, _>(Shop::Down)).await;
        assert_matches!(mailed, Err(StepError::Effect(_)));
        let mut saga = claim.saga::<Shop>()?;
        bench.step(&mut saga, "reserve").await?;
        Err::<u32, _>(saga.abort(&Shop::Declined).await)
    };
    bench.once.run(key(), None, handler).await.unwrap_err();
    assert_eq!(bench.status().await, SagaStatus::Compensating);
    *bench.undo_fails.lock().unwrap() = None;
    bench.fails(handler, SagaStatus::Compensated).await;
    let asked = bench.world.lock().unwrap().asked.clone();
    assert_eq!(asked, ["reserve", "reserve/undo"]);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_a_compensation_can_not_read_any_more_waits_for_an_operator() {
    let bench = bench(true, None);
    abort_for_now(&bench).await;
    let changed = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        let undo = |_, _: String| async { Ok(()) };
        saga.step("reserve", |_| async { Ok(String::new()) }, undo)
            .await?;
        Err::<u32, _>(saga.abort(&Shop::Declined).await)
    };
    bench.fails(changed, SagaStatus::Stuck).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_makes_a_failure_of_a_saga_that_still_compensates_is_not_final() {
    let bench = bench(true, None);
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>().unwrap();
        let undo = |_, _| async { Err(Shop::Down) };
        let reserve = saga.step("reserve", |key| bench.fire("reserve", key), undo);
        reserve.await.unwrap();
        let _ = saga.abort(&Shop::Declined).await;
        Err::<u32, _>(Shop::Declined)
    };
    let permanent = bench
        .once
        .run_with(key(), None, checkout, |_| Verdict::Fail);
    let told = permanent.await.unwrap_err();
    // A caller that took it for a failure that is stored would not deliver it again.
    assert_matches!(told, Error::Compensating);
    assert!(told.is_retryable() && told.handler_ran());
    abort(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_note_of_the_failure_is_not_answered_is_not_final() {
    for (applies, is_success) in [(false, false), (false, true), (true, false), (true, true)] {
        let bench = bench(true, None);
        *bench.store.dies_at.lock().unwrap() = vec![(4, applies)];
        let checkout = async |claim: Claim| {
            let mut saga = claim.saga::<Shop>().unwrap();
            bench.step(&mut saga, "reserve").await.unwrap();
            let told = saga.abort(&Shop::Declined);
            let told = tokio::time::timeout(Duration::from_millis(10), told).await;
            assert!(told.is_err(), "{told:?}");
            if is_success {
                Ok(1)
            } else {
                Err(Shop::Declined)
            }
        };
        let once = bench
            .once
            .run_with(key(), None, checkout, |_| Verdict::Fail);
        let told = once.await.unwrap_err();
        assert_matches!(told, Error::Compensating | Error::Interrupted { .. });
        abort(&bench).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_did_not_answer_is_asked_by_the_next_delivery_before_anything_is_undone() {
    let bench = bench(false, None);
    let (attempts, undone) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let checkout = async |claim: Claim| {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        let mut saga = claim.saga::<Shop>()?;
        let query = |_| async {
            match attempt {
                1 => Err(Shop::Down),
                _ => Ok(Some(6)),
            }
        };
        let undo = |_, _: u32| async {
            undone.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let charge = saga.queried_step("charge", query, |_| std::future::pending(), undo);
        match tokio::time::timeout(Duration::from_millis(10), charge).await {
            Ok(Ok(total)) => {
                saga.finish().await?;
                Ok(total)
            }
            _ => Err(saga.abort(&Shop::Declined).await),
        }
    };
    for _ in 0..2 {
        bench.fails(checkout, SagaStatus::Compensating).await;
    }
    bench.fails(checkout, SagaStatus::Compensated).await;
    assert_eq!(undone.into_inner(), 1);
}

/// An attempt whose lease is over fails permanently, while another has taken the key over.
#[tokio::test(start_paused = true)]
async fn a_failure_behind_a_successors_outcome_is_the_successors() {
    for ends in [true, false] {
        let bench = bench(true, None);
        let outlived = async |_: Claim| {
            bench.clock.advance(2 * LEASE);
            let successor = bench.once.run(key(), None, async |_| {
                if !ends {
                    std::future::pending::<()>().await;
                }
                Ok::<u32, Shop>(2)
            });
            let successor = tokio::time::timeout(Duration::from_millis(10), Box::pin(successor));
            assert_eq!(successor.await.is_ok(), ends);
            Err::<u32, _>(Shop::Declined)
        };
        let told = bench
            .once
            .run_with(key(), None, outlived, |_| Verdict::Fail)
            .await;
        if ends {
            assert_matches!(told, Ok(Outcome::Replayed(2, _)));
        } else {
            assert_matches!(told, Err(Error::LeaseLost));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ignores_what_the_saga_says_is_no_success() {
    let bench = bench(true, Some("charge"));
    *bench.undo_fails.lock().unwrap() = Some("reserve");
    let ignoring = async |claim: Claim| {
        let _ = bench.checkout(claim).await;
        Ok::<_, Shop>(1)
    };
    let told = bench.once.run(key(), None, ignoring).await.unwrap_err();
    assert!(told.handler_ran(), "{told:?}");
    assert_eq!(bench.status().await, SagaStatus::Stuck);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_kept_is_undone_at_once() {
    let bench = bench(true, None);
    let undone = Arc::new(AtomicUsize::new(0));
    let checkout = async |claim: Claim| {
        let mut saga = claim.saga::<Shop>()?;
        let counted = Arc::clone(&undone);
        let undo = move |_, result: f64| async move {
            assert!(result.is_nan());
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        saga.step("measure", |_| async { Ok(f64::NAN) }, undo)
            .await?;
        Ok(1)
    };
    bench.fails(checkout, SagaStatus::Compensated).await;
    assert_eq!(undone.load(Ordering::Relaxed), 1);
}
