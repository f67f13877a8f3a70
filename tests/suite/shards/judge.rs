//! The effects of the handlers, and the judgement on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::Value;

use crate::support::shards::{DataStream, Record};

/// Everything that happened, in order.
#[derive(Default)]
pub struct Ledger {
    effects: Mutex<Vec<Effect>>,
    crashed: Mutex<BTreeSet<u64>>,
    /// The number of disturbances of each kind.
    counts: Mutex<BTreeMap<&'static str, u32>>,
}

#[derive(Clone)]
struct Effect {
    movement_id: String,
    sku: String,
    invocation: u64,
}

impl Ledger {
    pub fn book(&self, movement_id: String, sku: String, invocation: u64) {
        self.effects.lock().unwrap().push(Effect {
            movement_id,
            sku,
            invocation,
        });
    }

    /// Notes that an invocation may not have completed what it did: it died, or ran out of time.
    pub fn crashed(&self, invocation: u64) {
        self.crashed.lock().unwrap().insert(invocation);
    }

    pub fn count(&self, what: &'static str) {
        *self.counts.lock().unwrap().entry(what).or_default() += 1;
    }

    pub fn print(&self) {
        let effects = self.effects.lock().unwrap().len();
        println!("{effects} effects; {:?}", self.counts.lock().unwrap());
    }

    /// A run without trouble shows nothing.
    pub fn assert_disturbed(&self) {
        let counts = self.counts.lock().unwrap();
        for what in [
            "handlers that failed",
            "invocations that crashed",
            "replies that were lost",
        ] {
            assert!(
                counts.get(what).is_some_and(|count| *count > 0),
                "{what}: {counts:?}"
            );
        }
    }

    pub fn assert_each_at_least_once(&self, stream: &DataStream) {
        let booked = self.invocations();
        let ids: BTreeSet<_> = stream.records().map(id_of).collect();
        let lost: Vec<_> = ids.iter().filter(|id| !booked.contains_key(*id)).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
    }

    /// All effects of a movement but the last one are of invocations that crashed or ran out of time, one of each at most.
    pub fn assert_repeated_by_crashes_alone(&self) {
        let crashed = self.crashed.lock().unwrap();
        for (id, mut invocations) in self.invocations() {
            let all = invocations.clone();
            invocations.pop();
            let explained = invocations
                .iter()
                .all(|invocation| crashed.contains(invocation));
            let distinct: BTreeSet<_> = all.iter().collect();
            assert!(explained && distinct.len() == all.len(), "{id} by {all:?}");
        }
    }

    /// The first effects of an article's movements are in the order in which the movements first came into its shard.
    pub fn assert_in_order(&self, stream: &DataStream) {
        let came = stream
            .records()
            .map(|record| (record.partition_key.clone(), id_of(record)));
        let effects = self.effects.lock().unwrap();
        let took_effect = effects
            .iter()
            .map(|effect| (effect.sku.clone(), effect.movement_id.clone()));
        let (came, took_effect) = (firsts(came), firsts(took_effect));
        for (sku, expected) in came {
            assert_eq!(took_effect.get(&sku), Some(&expected), "{sku}");
        }
    }

    /// Returns the invocations in which each movement took effect.
    fn invocations(&self) -> BTreeMap<String, Vec<u64>> {
        let mut by_id: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for effect in self.effects.lock().unwrap().iter().cloned() {
            by_id
                .entry(effect.movement_id)
                .or_default()
                .push(effect.invocation);
        }
        by_id
    }
}

/// The movements of each article, each where it comes first.
fn firsts(movements: impl Iterator<Item = (String, String)>) -> BTreeMap<String, Vec<String>> {
    let (mut by_sku, mut seen) = (BTreeMap::<_, Vec<_>>::new(), BTreeSet::new());
    for (sku, id) in movements {
        if seen.insert(id.clone()) {
            by_sku.entry(sku).or_default().push(id);
        }
    }
    by_sku
}

fn id_of(record: &Record) -> String {
    let movement: Value = serde_json::from_str(&record.data).expect("JSON");
    movement["movement_id"].as_str().expect("an id").to_owned()
}
