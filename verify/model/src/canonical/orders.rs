//! The workers and keys that may change places without a difference.

use crate::scopes::{Scope, Spec};
use crate::world::{KEYS, WORKERS};

/// Workers and keys in another order that changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub workers: [usize; WORKERS],
    pub keys: [usize; KEYS],
}

/// All orders under which the scope is the same. The first is the one in which it was written down.
pub fn orders(scope: &Scope) -> Vec<Order> {
    let (workers, keys) = (scope.workers.len(), scope.keys());
    let mut orders = Vec::new();
    for keys in permutations::<KEYS>(keys) {
        for workers in permutations::<WORKERS>(workers) {
            let order = Order { workers, keys };
            if is_alike(scope, &order) {
                orders.push(order);
            }
        }
    }
    orders
}

fn is_alike(scope: &Scope, order: &Order) -> bool {
    let all = || scope.workers.iter().zip(order.workers);
    let spec = |w: usize| &scope.workers[w];
    let specs = all().all(|(new, old)| {
        let same = Spec {
            key: order.keys[new.key],
            process: spec(old).process,
            ..*new
        };
        same == *spec(old)
    });
    specs
        && all().all(|(one, old_one)| {
            all().all(|(two, old_two)| {
                (one.process == two.process) == (spec(old_one).process == spec(old_two).process)
            })
        })
}

/// Of the first `count` places; the others stay.
fn permutations<const N: usize>(count: usize) -> Vec<[usize; N]> {
    let mut all = vec![std::array::from_fn(|place| place)];
    for place in 1..count {
        for order in all.clone() {
            for other in 0..place {
                let mut swapped: [usize; N] = order;
                swapped.swap(place, other);
                all.push(swapped);
            }
        }
    }
    all
}
