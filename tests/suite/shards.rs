//! Streams read by an event source mapping: random failures, crashes, duplicates and lost checkpoints, and each movement takes effect once.
//!
//! A run prints its seed. `SHARDS_SEED=4711 cargo test --test suite -- --nocapture shards::` repeats it; only a run in memory, whose
//! time is tokio's, repeats it step by step.

mod environment;
mod judge;
mod poller;

use std::time::Duration;

use fastrand::Rng;
use lambda_idempotency::store::MemoryStore;
use serde_json::json;

use crate::on_each_server;
use crate::support::Server;
use crate::support::shards::{DataStream, Discarded, Mapping, Record, Why};
use environment::{Crash, Environments, Plan};
use judge::{Ledger, ids_of};

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

/// Reads the stream by two mappings at once, as happens when a mapping is made anew while the old one still runs. Both lose checkpoints.
async fn read_twice(environments: &Environments, stream: &DataStream, seed: u64) -> Vec<Discarded> {
    let mapping = |batch_size, parallelization_factor, salt| Mapping {
        batch_size,
        parallelization_factor,
        bisect_batch_on_function_error: true,
        forgets: Some(seed ^ salt),
        ..Mapping::default()
    };
    let function = async |batch: &[Record]| environments.invoke(batch).await;
    let (one, other) = (mapping(40, 2, 1), mapping(25, 1, 2));
    let (mut discarded, more) =
        tokio::join!(one.read(stream, &function), other.read(stream, &function));
    discarded.extend(more);
    discarded
}

/// Crashes come while no effect waits for its completion: there is nothing that an attempt could not note.
#[tokio::test(start_paused = true)]
async fn in_memory_each_movement_is_booked_exactly_once_in_the_order_of_its_key() {
    let seed = seed();
    let stream = movements(&mut Rng::with_seed(seed));
    let plan = Plan {
        crash: Crash::AtRest,
        ..Plan::default()
    };
    let environments = Environments::new(MemoryStore::new(), plan, seed);
    let discarded = read_twice(&environments, &stream, seed).await;
    assert_eq!(discarded, []);
    let ledger = environments.ledger();
    ledger.print();
    ledger.assert_disturbed();
    ledger.assert_each_at_least_once(&stream);
    ledger.assert_each_at_most_once();
    ledger.assert_in_order(&stream);
}

/// Crashes come at any moment. An effect whose completion was cut off is repeated; nothing else is.
#[tokio::test(start_paused = true)]
async fn in_memory_a_crash_at_any_moment_repeats_only_effects_that_it_could_not_note() {
    let seed = seed();
    let stream = movements(&mut Rng::with_seed(seed));
    let environments = Environments::new(MemoryStore::new(), Plan::default(), seed);
    let discarded = read_twice(&environments, &stream, seed).await;
    assert_eq!(discarded, []);
    judge_crashes(environments.ledger(), &stream);
}

on_each_server!(a_crash_at_any_moment_repeats_only_effects_that_it_could_not_note);
async fn a_crash_at_any_moment_repeats_only_effects_that_it_could_not_note(server: Server) {
    let seed = seed();
    let stream = movements(&mut Rng::with_seed(seed));
    let environments = Environments::new(server.store().await, Plan::default(), seed);
    let mapping = Mapping {
        batch_size: 12,
        bisect_batch_on_function_error: true,
        forgets: Some(seed),
        ..Mapping::default()
    };
    let function = async |batch: &[Record]| environments.invoke(batch).await;
    let discarded = mapping.read(&stream, &function).await;
    assert_eq!(discarded, []);
    judge_crashes(environments.ledger(), &stream);
}

fn judge_crashes(ledger: &Ledger, stream: &DataStream) {
    ledger.print();
    ledger.assert_disturbed();
    ledger.assert_each_at_least_once(stream);
    ledger.assert_repeated_by_crashes_alone();
    ledger.assert_in_order(stream);
}

/// Bounded retries: what is not booked is discarded, by its number.
#[tokio::test(start_paused = true)]
async fn in_memory_what_bounded_retries_do_not_book_is_in_the_list_of_the_discarded() {
    let seed = seed();
    let stream = movements(&mut Rng::with_seed(seed));
    let plan = Plan {
        crash: Crash::Never,
        poison_every: Some(100),
        ..Plan::default()
    };
    let environments = Environments::new(MemoryStore::new(), plan, seed);
    let mapping = Mapping {
        batch_size: 20,
        maximum_retry_attempts: Some(20),
        pause: Duration::from_millis(10),
        ..Mapping::default()
    };
    let function = async |batch: &[Record]| environments.invoke(batch).await;
    let discarded = mapping.read(&stream, &function).await;
    assert!(
        discarded
            .iter()
            .all(|part| part.why == Why::RetriesExhausted)
    );
    let discarded = ids_of(discarded.iter().flat_map(|part| &part.records));
    let ledger = environments.ledger();
    ledger.print();
    ledger.assert_each_at_most_once();
    let booked = ledger.booked();
    for id in ids_of(stream.records()) {
        assert!(
            booked.contains(&id) || discarded.contains(&id),
            "{id} is lost"
        );
    }
    for poison in (0..MOVEMENTS).step_by(100).map(|n| format!("m-{n:04}")) {
        assert!(
            discarded.contains(&poison) && !booked.contains(&poison),
            "{poison}"
        );
    }
}
