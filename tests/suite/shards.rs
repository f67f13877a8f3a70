//! Streams read by an event source mapping: random failures, crashes, duplicates and lost checkpoints, and each movement takes effect once.
//!
//! A run prints its seed. `SHARDS_SEED=4711 cargo test --test suite -- --nocapture shards::` repeats it step by step: its store is in
//! memory, and its time is tokio's.

mod environment;
mod judge;
mod poller;

use fastrand::Rng;
use serde_json::json;

use crate::support::shards::{DataStream, Mapping, Record};
use environment::Environments;

const SHARDS: usize = 8;
const MOVEMENTS: usize = 500;
/// The producer sends one movement in so many again.
const SENT_AGAIN: usize = 8;

fn seed() -> u64 {
    let given = std::env::var("SHARDS_SEED").ok();
    let seed = given.map(|text| text.parse().expect("a number"));
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("SHARDS_SEED={seed}");
    seed
}

/// Movements of 80 articles. Some records repeat a movement: the producer's own retry, later in its shard.
fn movements(dice: &mut Rng) -> DataStream {
    let mut stream = DataStream::new("movements", SHARDS);
    let mut sent: Vec<(String, String)> = Vec::new();
    for n in 0..MOVEMENTS {
        let sku = format!("sku-{}", dice.u8(..80));
        sent.push((format!("m-{n:04}"), sku));
        let again = (dice.usize(..SENT_AGAIN) == 0).then(|| dice.usize(n.saturating_sub(60)..=n));
        for place in [Some(n), again].into_iter().flatten() {
            let (movement_id, sku) = &sent[place];
            let movement = json!({ "movement_id": movement_id, "sku": sku, "delta": 5 });
            stream.put(sku, &movement);
        }
    }
    assert!(stream.records().count() > MOVEMENTS);
    assert!(stream.shards.iter().all(|shard| shard.len() > 10));
    stream
}

/// Crashes come at any moment. An effect whose completion was cut off is repeated; nothing else is.
///
/// The stream is read by two mappings at once, as happens when a mapping is made anew while the old one still runs. Both lose
/// checkpoints.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_repeats_only_effects_that_it_could_not_note() {
    let seed = seed();
    let stream = movements(&mut Rng::with_seed(seed));
    let environments = Environments::new(seed);
    let mapping = |batch_size, parallelization_factor, salt| Mapping {
        batch_size,
        parallelization_factor,
        bisect_batch_on_function_error: true,
        forgets: Some(seed ^ salt),
        ..Mapping::default()
    };
    let function = async |batch: &[Record]| environments.invoke(batch).await;
    let (one, other) = (mapping(40, 2, 1), mapping(25, 1, 2));
    let discarded = tokio::join!(one.read(&stream, &function), other.read(&stream, &function));
    assert_eq!(discarded, (vec![], vec![]));
    let ledger = environments.ledger();
    ledger.print();
    ledger.assert_disturbed();
    ledger.assert_each_at_least_once(&stream);
    ledger.assert_repeated_by_crashes_alone();
    ledger.assert_in_order(&stream);
}
