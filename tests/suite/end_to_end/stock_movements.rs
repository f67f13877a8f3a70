//! `stock-movements` behind a data stream: a movement that comes again isn't booked again, whatever happens to the process.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::payments_worker::{NONE, failed};
use crate::support::lambda::{Function, Reply, Sandbox, number, text};
use crate::support::shards::{DataStream, Invoked, Mapping, Record, event};

/// Longer than any test, in milliseconds: a movement that pauses so long before its effect never gets there.
const FOREVER: &str = "3600000";

/// The timeout of a process that is killed: its leases are told from those of the others by it.
const SHORT: Duration = Duration::from_mins(1);

fn movement(id: &str, sku: &str, delta: i64) -> Value {
    json!({ "movement_id": id, "sku": sku, "delta": delta })
}

/// Returns the number of entries of each movement.
async fn entries(function: &Function) -> BTreeMap<String, usize> {
    let mut entries = BTreeMap::new();
    for entry in function.effects().await {
        *entries
            .entry(text(&entry, "movement_id").to_owned())
            .or_default() += 1;
    }
    entries
}

#[tokio::test]
async fn each_movement_of_the_samples_event_is_booked_once_and_a_redelivery_books_none() {
    let function = Function::stock_movements().await;
    let mut sandbox = function.start().await;
    let event = include_str!("../../../functions/stock-movements/events/duplicate.json");
    let event: Value = serde_json::from_str(event).unwrap();

    assert_eq!(failed(sandbox.invoke(event.clone()).await), NONE);
    assert_eq!(failed(sandbox.invoke(event.clone()).await), NONE);
    assert_eq!(failed(function.start().await.invoke(event).await), NONE);
    let mut booked: Vec<_> = function
        .effects()
        .await
        .iter()
        .map(|entry| {
            let of = |attribute| text(entry, attribute).to_owned();
            (of("movement_id"), of("sku"), number(entry, "delta"))
        })
        .collect();
    booked.sort();
    let expected = [("m-1", "tea", -2), ("m-2", "milk", 40)];
    assert_eq!(
        booked,
        expected.map(|(id, sku, delta)| (id.to_owned(), sku.to_owned(), delta))
    );
}

#[tokio::test]
async fn a_record_that_is_no_movement_is_the_checkpoint_and_stops_its_key_alone() {
    let function = Function::stock_movements().await;
    let mut sandbox = function.start().await;
    let mut stream = DataStream::new("movements", 1);
    stream.put("tea", &movement("m-1", "tea", 5));
    stream.put("tea", &json!("no movement"));
    stream.put("tea", &movement("m-2", "tea", 5));
    stream.put("milk", &movement("m-3", "milk", 5));
    let records = &stream.shards[0];

    let reply = failed(sandbox.invoke(event(records)).await);
    assert_eq!(reply, [records[1].sequence_number.clone()]);
    let booked: Vec<_> = entries(&function).await.into_keys().collect();
    assert_eq!(booked, ["m-1", "m-3"]);
}

/// The processes of a function behind its mapping, some of which are killed.
struct Processes {
    function: Function,
    doomed: Function,
    waiting: Mutex<Vec<Sandbox>>,
    dice: Mutex<Rng>,
    killed: Mutex<BTreeMap<&'static str, u32>>,
}

impl Processes {
    async fn invoke(&self, batch: &[Record]) -> Invoked {
        let roll = self.dice.lock().unwrap().u8(..8);
        match roll {
            0 | 1 => self.kill_before_an_effect(batch).await,
            2 => {
                let _ = self.answer(batch, true).await;
                Invoked::Failed
            }
            _ => self.answer(batch, false).await,
        }
    }

    /// Its handlers pause before their effects for longer than it lives.
    async fn kill_before_an_effect(&self, batch: &[Record]) -> Invoked {
        let mut doomed = self.doomed.start().await;
        let invocation = doomed.begin(event(batch)).await;
        let pause = Duration::from_millis(500);
        if let Some(reply) = doomed.finish_within(&invocation, pause).await {
            // All of them were done, or held by another process.
            return of(reply);
        }
        self.count("before an effect");
        doomed.kill();
        self.function.end_leases_within(2 * SHORT).await;
        Invoked::Failed
    }

    /// Waits for the answer; the process is killed after it, or waits for another event.
    async fn answer(&self, batch: &[Record], is_killed: bool) -> Invoked {
        let waiting = self.waiting.lock().unwrap().pop();
        let mut sandbox = match waiting {
            Some(sandbox) => sandbox,
            None => self.function.start().await,
        };
        let reply = of(sandbox.invoke(event(batch)).await);
        if is_killed {
            self.count("after its answer, which is lost");
            sandbox.kill();
        } else {
            self.waiting.lock().unwrap().push(sandbox);
        }
        reply
    }

    fn count(&self, what: &'static str) {
        *self.killed.lock().unwrap().entry(what).or_default() += 1;
    }
}

fn of(reply: Reply) -> Invoked {
    Invoked::Answered(reply.answer())
}

/// The kills come before the effects of a batch, or after its answer: between an effect and its completion there is nothing that an
/// attempt could note, and `crash_points` has those.
#[tokio::test(flavor = "multi_thread")]
async fn processes_killed_at_random_behind_a_mapping_book_each_movement_exactly_once() {
    let seed = std::env::var("SHARDS_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    println!("SHARDS_SEED={seed}");
    let mut stream = DataStream::new("movements", 2);
    for n in 0..150 {
        let sku = format!("sku-{}", n % 12);
        stream.put(&sku, &movement(&format!("m-{n:03}"), &sku, n));
        if n % 5 == 4 {
            // The producer got no answer, and sends again: with another sequence number.
            let sku = format!("sku-{}", (n - 3) % 12);
            stream.put(&sku, &movement(&format!("m-{:03}", n - 3), &sku, n - 3));
        }
    }
    let function = Function::stock_movements().await;
    let processes = Processes {
        doomed: function.with("MOVEMENT_DELAY_MS", FOREVER).timeout(SHORT),
        function: function.clone(),
        waiting: Mutex::default(),
        dice: Mutex::new(Rng::with_seed(seed)),
        killed: Mutex::default(),
    };
    let mapping = Mapping {
        batch_size: 10,
        parallelization_factor: 2,
        bisect_batch_on_function_error: true,
        pause: Duration::from_millis(20),
        forgets: Some(seed),
        ..Mapping::default()
    };
    let invoke = async |batch: &[Record]| processes.invoke(batch).await;
    let discarded = mapping.read(&stream, &invoke).await;
    assert_eq!(discarded, []);
    println!("killed: {:?}", processes.killed.lock().unwrap());
    let expected = (0..150).map(|n| (format!("m-{n:03}"), 1)).collect();
    assert_eq!(entries(&function).await, expected);
    let counted = processes.killed.lock().unwrap().values().sum::<u32>();
    assert!(counted > 0, "none was killed");
}
