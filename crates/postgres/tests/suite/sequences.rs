//! Conditional writes, compared with the protocol's own function one by one:
//! `SEQUENCES=100000 SEQUENCES_SEED=4711` plays others.

use std::fmt::Debug;

use fastrand::Rng;
use lambda_idempotency::protocol::record::{Completion, Final, RecordWrite, Takeover};
use lambda_idempotency::protocol::transition_to_final;
use lambda_idempotency::store::transaction::{Commit, Committed};
use lambda_idempotency::store::{Answer, MemoryStore, Store};
use lambda_idempotency::{EpochMillis, EpochSeconds, Idempotency, Key, RecordId};
use lambda_idempotency_postgres::{Pool, PostgresStore};
use tokio::time::Instant;

use crate::support::{MINUTE, name, number, sqlx_store, store};

mod draw;
mod order;

use draw::{Kind, Sequence, outcome};

/// The largest number of sequences that are sent in one group: a statement's cost is mostly its own, not
/// its rows'.
const GROUP: u64 = 100;

/// The number of sequences, and their seed.
fn sequences() -> (u64, u64) {
    let sequences = number("SEQUENCES").unwrap_or(10_000);
    let seed = number("SEQUENCES_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("SEQUENCES={sequences} SEQUENCES_SEED={seed}");
    (sequences, seed)
}

fn soon() -> Instant {
    Instant::now() + MINUTE
}

fn ids() -> Idempotency {
    let ids = Idempotency::builder(MemoryStore::new()).namespace("tests");
    ids.build().unwrap()
}

fn id(ids: &Idempotency) -> RecordId {
    ids.record_id(&Key::raw("op", name("id"))).unwrap()
}

/// The seed of a run, and the share of it that has its own dice.
type Dice = (u64, u64);

/// A place in what a seed plays: each comparison that fails shows it.
#[derive(Debug)]
struct At<'a> {
    seed: u64,
    sent: &'a [RecordWrite],
}

#[track_caller]
fn same<T: PartialEq + Debug>(got: &T, expected: &T, at: &At<'_>) {
    assert!(
        got == expected,
        "SEQUENCES_SEED={}\n  got      {got:?}\n  expected {expected:?}\n  after {:#?}",
        at.seed,
        at.sent,
    );
}

/// Plays sequences side by side, each group on one connection at a time.
async fn play_groups<P: Pool>(store: PostgresStore<P>, (seed, share): Dice, sequences: u64) {
    let ids = ids();
    let mut rng = Rng::with_seed(seed.wrapping_add(share));
    let mut played = 0;
    while played < sequences {
        let size = rng.u64(1..=GROUP);
        played += size;
        let mut group: Vec<_> = (0..size).map(|_| Sequence::new(id(&ids))).collect();
        for step in 0..rng.usize(4..=5) {
            // Few kinds in a group: each is a statement.
            let some = [rng.usize(..6), rng.usize(..6)];
            let mut kinds = some.map(|kind| Kind::ALL[kind]);
            if step == 0 {
                kinds[0] = Kind::Create;
            }
            let writes: Vec<_> = group.iter().map(|one| one.next(&mut rng, &kinds)).collect();
            let answers = store.write_all(&writes, soon()).await;
            for ((one, write), answer) in group.iter_mut().zip(&writes).zip(answers) {
                let expected = one.expect(write);
                let sent = &one.sent;
                same(&answer.unwrap(), &expected, &At { seed, sent });
            }
            let of_group: Vec<_> = group.iter().map(|one| one.id.clone()).collect();
            let found = store.load_all(&of_group, soon()).await;
            for (one, found) in group.iter().zip(found) {
                let sent = &one.sent;
                same(&found.unwrap(), &one.found(), &At { seed, sent });
            }
        }
    }
}

/// Plays sequences one after the other, with single writes and commits without business writes.
async fn play_single<P: Pool>(store: PostgresStore<P>, (seed, share): Dice, sequences: u64) {
    let ids = ids();
    let mut rng = Rng::with_seed(seed.wrapping_add(share));
    for _ in 0..sequences {
        let mut one = Sequence::new(id(&ids));
        for _ in 0..rng.usize(4..=8) {
            if rng.u8(..4) == 0 {
                commit(&store, &mut one, &mut rng, seed).await;
            } else {
                let write = one.next(&mut rng, &Kind::ALL);
                let answer = store.write(&write, soon()).await.unwrap();
                let expected = one.expect(&write);
                let sent = &one.sent;
                same(&answer, &expected, &At { seed, sent });
            }
            let found = store.load(&one.id, soon()).await.unwrap();
            let sent = &one.sent;
            same(&found, &one.found(), &At { seed, sent });
        }
    }
}

async fn commit<P: Pool>(store: &PostgresStore<P>, one: &mut Sequence, rng: &mut Rng, seed: u64) {
    let claim = one.claim(rng);
    let owner = match one.model.as_ref().and_then(|model| model.owner.clone()) {
        Some(owner) if rng.bool() => owner,
        _ => claim.owner.clone(),
    };
    let completion = Completion::new(
        one.id.clone(),
        owner,
        outcome(rng),
        EpochMillis(5),
        EpochSeconds(9),
    );
    let owner = claim.owner.clone();
    let claim = match rng.u8(..3) {
        0 => None,
        1 => Some(RecordWrite::Create(claim)),
        _ => Some(RecordWrite::TakeOver {
            seen: one.seen(rng),
            mode: [Takeover::Fresh, Takeover::Resume, Takeover::Unstarted][rng.usize(..3)],
            claim,
        }),
    };
    let mut record = Final { completion, claim };
    if record.claim.is_some() {
        // The engine claims and completes by one owner.
        record.completion.owner = owner;
    }
    let answer = store
        .commit(Commit::new("token", Some(&record), &[]), soon())
        .await
        .unwrap();
    let left = transition_to_final(one.model.as_ref(), &record);
    let answer = match answer {
        Committed::Applied => Answer::Applied(None),
        Committed::Fenced(found) => Answer::Refused(found),
        Committed::Refused(refusal) => panic!("without a business write: {refusal:?}"),
    };
    let expected = match left {
        Some(left) => {
            one.note(left);
            Answer::Applied(None)
        }
        None => Answer::Refused(one.found()),
    };
    let sent = &one.sent;
    same(&answer, &expected, &At { seed, sent });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_and_each_record_is_the_models() {
    let (sequences, seed) = sequences();
    let (store, sqlx) = (store().await, sqlx_store().await);
    let share_of = sequences.div_ceil(10);
    let mut playing = tokio::task::JoinSet::new();
    // One share in ten runs on the other driver.
    for share in 0..9 {
        playing.spawn(play_groups(store.clone(), (seed, share), share_of));
    }
    playing.spawn(play_groups(sqlx.clone(), (seed, 9), share_of));
    playing.spawn(play_single(store, (seed, 10), sequences / 200));
    playing.spawn(play_single(sqlx, (seed, 11), sequences / 1_000));
    while let Some(played) = playing.join_next().await {
        played.unwrap();
    }
}
