//! For every pattern of failures: the reply is the lowest failed number, and going on from there does each record once.

use std::collections::{BTreeMap, HashMap};

use lambda_idempotency::store::MemoryStore;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use super::*;

/// A record: its partition key, and how often its handler fails before it succeeds.
type Plan = (u8, u32);

fn any_plans() -> impl Strategy<Value = Vec<Plan>> {
    let failures = prop_oneof![3 => Just(0), 1 => 1..3_u32];
    prop::collection::vec((0..4_u8, failures), 0..20)
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// The records that took effect, in order, and the number of times that each has yet to fail.
#[derive(Clone, Default)]
struct Shop {
    booked: Arc<Mutex<Vec<usize>>>,
    failures: Arc<Mutex<HashMap<usize, u32>>>,
}

impl Shop {
    fn book(&self, n: usize) -> Result<(), Closed> {
        if let Some(left @ 1..) = self.failures.lock().unwrap().get_mut(&n) {
            *left -= 1;
            return Err(Closed);
        }
        self.booked.lock().unwrap().push(n);
        Ok(())
    }

    /// The lowest of these records whose handler would fail now.
    fn lowest_failing(&self, from: usize) -> Option<usize> {
        let failures = self.failures.lock().unwrap();
        let failing = failures
            .iter()
            .filter(|(n, left)| **n >= from && **left > 0);
        failing.map(|(n, _)| *n).min()
    }
}

fn worker(once: &Idempotency, shop: &Shop) -> impl Worker + use<> {
    let shop = shop.clone();
    kinesis::BatchLayer::new(once.clone()).handler(move |message: kinesis::Message<usize>| {
        let booked = shop.book(message.body);
        async move { booked }
    })
}

/// Delivers until no checkpoint is asked for. Each delivery is of the same execution environment, or of a new one.
async fn converge(plans: &[Plan], is_new: &[bool], batch_size: usize) {
    let once = engine_on(MemoryStore::new());
    let shop = Shop::default();
    let failures = plans.iter().enumerate().map(|(n, plan)| (n, plan.1));
    *shop.failures.lock().unwrap() = failures.collect();
    let mut environment = worker(&once, &shop);
    let (mut from, mut deliveries) = (0, 0);
    while from < plans.len() {
        if is_new[deliveries % is_new.len()] {
            environment = worker(&once, &shop);
        }
        deliveries += 1;
        assert!(deliveries < 500, "it doesn't converge");
        let to = plans.len().min(from + batch_size);
        let expected = shop.lowest_failing(from).filter(|n| *n < to);
        let records =
            (from..to).map(|n| record_of(n, &plans[n].0.to_string(), n.to_string().as_bytes()));
        let asked = deliver(&mut environment, records).await;
        assert_eq!(asked, expected.map(number), "{plans:?} from {from}");
        from = expected.unwrap_or(to);
    }
    let booked = shop.booked.lock().unwrap();
    let mut by_key: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
    for n in booked.iter() {
        by_key.entry(plans[*n].0).or_default().push(*n);
    }
    for (key, booked) in by_key {
        let expected: Vec<_> = (0..plans.len()).filter(|n| plans[*n].0 == key).collect();
        assert_eq!(booked, expected, "each once, in the order of the key");
    }
    assert_eq!(booked.len(), plans.len());
}

proptest! {
    #[test]
    fn each_pattern_of_failures_converges(
        plans in any_plans(),
        is_new in prop::collection::vec(any::<bool>(), 1..8),
        batch_size in 1..50_usize,
    ) {
        runtime().block_on(converge(&plans, &is_new, batch_size));
    }
}
