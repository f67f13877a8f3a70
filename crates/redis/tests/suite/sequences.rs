//! Conditional writes, compared with the protocol's own function one by one: `SEQUENCES=100000 SEQUENCES_SEED=4711` plays others.

use std::fmt::Debug;

use fastrand::Rng;
use futures_util::future::join_all;
use lambda_idempotency::protocol::record::RecordWrite;
use lambda_idempotency::store::{MemoryStore, Store};
use lambda_idempotency::{Idempotency, Key, RecordId};
use lambda_idempotency_redis::{Connection, RedisStore};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::server::{MINUTE, Server};

// The module of the PostgreSQL store's tests.
#[path = "../../../postgres/tests/suite/sequences/draw.rs"]
#[allow(dead_code, reason = "a store without transactions has no commits")]
mod draw;

use draw::{Kind, Sequence};

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

fn soon() -> Instant {
    Instant::now() + MINUTE
}

#[track_caller]
fn same<T: PartialEq + Debug>(got: &T, expected: &T, seed: u64, sent: &[RecordWrite]) {
    assert!(
        got == expected,
        "SEQUENCES_SEED={seed}\n  got      {got:?}\n  expected {expected:?}\n  after {sent:#?}",
    );
}

/// The largest number of sequences whose writes are sent at once.
const GROUP: u64 = 100;

async fn play<C: Connection>(store: RedisStore<C>, seed: u64, share: u64, sequences: u64) {
    let ids = Idempotency::builder(MemoryStore::new())
        .namespace("sequences")
        .build()
        .unwrap();
    let id = |number: u64| -> RecordId {
        ids.record_id(&Key::raw("op", format!("id-{share}-{number}")))
            .unwrap()
    };
    let mut rng = Rng::with_seed(seed.wrapping_add(share));
    let mut played = 0;
    while played < sequences {
        let size = rng.u64(1..=GROUP);
        let mut group: Vec<_> = (played..played + size)
            .map(|number| Sequence::new(id(number)))
            .collect();
        played += size;
        for _ in 0..rng.usize(4..=8) {
            let writes: Vec<_> = group
                .iter()
                .map(|one| one.next(&mut rng, &Kind::ALL))
                .collect();
            let sent = writes.iter().map(|write| store.write(write, soon()));
            let answers = join_all(sent).await;
            for ((one, write), answer) in group.iter_mut().zip(&writes).zip(answers) {
                let expected = one.expect(write);
                same(&answer.unwrap(), &expected, seed, &one.sent);
            }
            let read = group.iter().map(|one| store.load(&one.id, soon()));
            let found = join_all(read).await;
            for (one, found) in group.iter().zip(found) {
                same(&found.unwrap(), &one.found(), seed, &one.sent);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_and_each_record_is_the_models() {
    let sequences = number("SEQUENCES").unwrap_or(5_000);
    let seed = number("SEQUENCES_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("SEQUENCES={sequences} SEQUENCES_SEED={seed}");
    let (server, cluster) = (Server::start(&[]).await, Cluster::start().await);
    let mut playing = tokio::task::JoinSet::new();
    // One share in five is played on a cluster.
    for share in 0..4 {
        playing.spawn(play(server.store().await, seed, share, sequences / 5));
    }
    playing.spawn(play(cluster.store().await, seed, 4, sequences / 5));
    while let Some(played) = playing.join_next().await {
        played.unwrap();
    }
}
