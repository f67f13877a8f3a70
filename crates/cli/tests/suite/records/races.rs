//! Operators and workers on one record at random: no write without its fence, and no second effect
//! that no operator asked for. `RACES=1000 SEED=4711` plays more of them, and these again.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use futures_util::{StreamExt, stream};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::protocol::record::{
    Found, Omission, Owner, RecordWrite, Status, StoredOutcome,
};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::testing::TestDynamoDb;
use lambda_idempotency::{
    Claim, EpochMillis, EpochSeconds, Error, Fingerprint, Idempotency, OnCrash, RecordId,
    StoreError,
};
use lambda_idempotency_cli::Failure;
use lambda_idempotency_cli::records::Act;
use lambda_idempotency_cli::records::operate::{Ending, Order, carry_out};
use tokio::time::{Instant, sleep};

use crate::support::{self, PATIENCE, key, size};

/// The number of rounds.
pub(super) fn races() -> u64 {
    size("RACES", 100) as u64
}

/// Keeps each write that applied.
#[derive(Clone)]
struct Recording {
    store: DynamoDbStore,
    by_operator: bool,
    applied: Arc<Mutex<Vec<(bool, RecordWrite)>>>,
}

impl Store for Recording {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let answer = self.store.write(write, deadline).await?;
        if answer.is_applied() {
            self.applied
                .lock()
                .unwrap()
                .push((self.by_operator, write.clone()));
        }
        Ok(answer)
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.store.load(id, deadline).await
    }
}

/// The history of one key: its effects, and the orders, with whether they were carried out.
#[derive(Default)]
struct Journal {
    effects: AtomicUsize,
    orders: Mutex<Vec<(Ending, bool)>>,
}

fn now() -> EpochMillis {
    SystemTime::now().into()
}

async fn pause(random: &mut Rng) {
    sleep(Duration::from_micros(random.u64(0..4_000))).await;
}

/// A worker whose handler may fail before its effect, and may die after it.
async fn work(once: &Idempotency, token: &str, journal: &Journal, mut random: Rng) {
    for _ in 0..3 {
        pause(&mut random).await;
        let (fails, dies) = (random.u8(0..4) == 0, random.u8(0..4) == 0);
        let wait = random.u64(0..3_000);
        let handler = async |_claim: Claim| {
            if fails {
                return Err(std::io::Error::other("before the effect"));
            }
            journal.effects.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_micros(wait)).await;
            Ok(17)
        };
        let run = once.run(key(token), Fingerprint::json(b"{}"), handler);
        if dies {
            // Leaked, as the future of a process that dies.
            let mut run = Box::pin(run);
            let ended = tokio::time::timeout(Duration::from_micros(wait), &mut run).await;
            if ended.is_err() {
                std::mem::forget(run);
            }
            continue;
        }
        match run.await {
            Ok(_)
            | Err(
                Error::Handler(_)
                | Error::InFlight { .. }
                | Error::Interrupted { .. }
                | Error::Failed(_)
                | Error::OutcomeOmitted { .. }
                | Error::LeaseLost,
            ) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn ending(random: &mut Rng, found: &Found) -> Ending {
    let record = found.content.as_deref().unwrap();
    let status = if random.bool() {
        Status::Completed
    } else {
        Status::Failed
    };
    let failure = "{\"kind\":\"operator\",\"message\":\"by hand\"}";
    let stored = |text: &str, status| Ending::Final {
        status,
        outcome: StoredOutcome::Inline(text.to_owned()),
        expiration: EpochSeconds(now().0 / 1_000 + 3_600),
    };
    match record.status {
        Status::InProgress if random.bool() => Ending::Released,
        Status::InProgress if status == Status::Failed => stored(failure, status),
        Status::InProgress => stored("18", status),
        Status::Failed => Ending::Released,
        _ => Ending::Final {
            status: record.status,
            outcome: StoredOutcome::Omitted(Omission::Redacted),
            expiration: record.expiration,
        },
    }
}

/// An operator who ends what is there, also while it is live.
async fn operate(store: &Recording, id: &RecordId, journal: &Journal, name: &str, mut random: Rng) {
    for _ in 0..3 {
        pause(&mut random).await;
        let deadline = Instant::now() + PATIENCE;
        let Some(found) = store.load(id, deadline).await.unwrap() else {
            continue;
        };
        let ending = ending(&mut random, &found);
        pause(&mut random).await;
        let act = Act {
            at: now().0,
            act: "race".to_owned(),
            by: name.to_owned(),
            reason: "a test".to_owned(),
            left: None,
            given: None,
        };
        let order = Order {
            ending: ending.clone(),
            act,
        };
        let done = carry_out(store, id, &found, &order, now(), PATIENCE).await;
        let mut orders = journal.orders.lock().unwrap();
        match done {
            Ok(_) => orders.push((ending, true)),
            Err(Failure::Moved(_)) => orders.push((ending, false)),
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Fails unless each write that applied was its owner's, each takeover followed one that was seen
/// (the chain of owners has no branch), and no worker took over what was final or held.
fn check_fences(applied: &[(bool, RecordWrite)]) {
    let mut followed: HashSet<Option<String>> = HashSet::new();
    let mut holders: HashSet<&Owner> = HashSet::new();
    let mut tombstones: HashMap<&Owner, &Owner> = HashMap::new();
    let mut ended: HashSet<&Owner> = HashSet::new();
    for (by_operator, write) in applied {
        match write {
            RecordWrite::Create(claim) => {
                assert!(followed.insert(None), "two attempts made the record");
                holders.insert(&claim.owner);
            }
            RecordWrite::TakeOver { seen, claim, .. } => {
                let key = format!("{seen:?}");
                assert!(
                    followed.insert(Some(key)),
                    "two took the record over from {seen:?}"
                );
                let released =
                    seen.status.as_deref() == Some("INPROGRESS") && seen.lease == Some(0);
                assert!(*by_operator || released, "a worker took over {seen:?}");
                holders.insert(&claim.owner);
            }
            RecordWrite::Release(release) => {
                assert!(ended.insert(&release.owner), "{release:?} came twice");
                tombstones.insert(&release.tombstone, &release.owner);
            }
            RecordWrite::Complete(completion) => {
                assert!(ended.insert(&completion.owner), "{completion:?} came twice");
            }
            RecordWrite::Intervene(intervention) => {
                let key = format!("{:?}", intervention.seen);
                assert!(
                    followed.insert(Some(key)),
                    "two ended {:?}",
                    intervention.seen
                );
                assert!(*by_operator, "a worker intervened: {intervention:?}");
                holders.insert(&intervention.owner);
            }
            _ => {}
        }
    }
    for (_, write) in applied {
        assert!(holders.contains(write.owner()), "{write:?} is of no holder");
        assert!(
            !tombstones.contains_key(write.owner()),
            "{write:?} is of a tombstone"
        );
    }
}

/// Fails where the handler ran more often than it was asked to.
fn check_effects(round: u64, journal: &Journal) -> (usize, usize) {
    let effects = journal.effects.load(Ordering::SeqCst);
    let orders = journal.orders.lock().unwrap();
    let releases = orders
        .iter()
        .filter(|(ending, done)| *done && *ending == Ending::Released);
    let asked = 1 + releases.count();
    assert!(
        effects <= asked,
        "round {round}: {effects} effects, {asked} asked for"
    );
    (effects, orders.iter().filter(|(_, done)| *done).count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_and_workers_on_one_record_leave_no_effect_that_was_not_asked_for() {
    let seed =
        std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    let races = races();
    println!("RACES={races} SEED={seed}");
    let dynamodb = TestDynamoDb::start().await.unwrap();
    let store = dynamodb.store().await.unwrap();
    let rounds = stream::iter(0..races).map(|round| {
        let store = Recording {
            store: store.clone(),
            by_operator: false,
            applied: Arc::default(),
        };
        let operators = Recording {
            by_operator: true,
            ..store.clone()
        };
        async move {
            let mut random = Rng::with_seed(seed.wrapping_add(round));
            let once = support::engine(store.clone()).on_crash(OnCrash::Interrupt);
            let once = once.build().unwrap();
            let token = format!("A-{round}");
            let id = once.record_id(&key(&token)).unwrap();
            let journal = Journal::default();
            tokio::join!(
                work(&once, &token, &journal, random.fork()),
                work(&once, &token, &journal, random.fork()),
                operate(&operators, &id, &journal, "alice", random.fork()),
                operate(&operators, &id, &journal, "bob", random.fork()),
            );
            check_fences(&store.applied.lock().unwrap());
            check_effects(round, &journal)
        }
    });
    let counts: Vec<(usize, usize)> = rounds.buffer_unordered(16).collect().await;
    let effects: usize = counts.iter().map(|(effects, _)| effects).sum();
    let orders: usize = counts.iter().map(|(_, orders)| orders).sum();
    println!("{races} rounds: {effects} effects, {orders} orders carried out");
    // The rounds were races: operators and workers both had their turns.
    assert!(
        effects > counts.len() / 4 && orders > counts.len() / 4,
        "{effects} effects, {orders} orders"
    );
}
