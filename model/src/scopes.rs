//! What is checked, and how far.

use crate::checker::Scope;
use crate::world::Budget;

/// Within the margin, and beyond it.
const NEAR: [i64; 3] = [0, 0, 1];
const FAR: [i64; 3] = [0, 0, 3];

impl Scope {
    /// One key, three workers with one delivery each, and nothing that goes wrong but handlers.
    fn of(name: &'static str, end: i64) -> Self {
        Self {
            name,
            keys: 1,
            workers: NEAR.iter().map(|&skew| (0, skew, 0, 1)).collect(),
            budget: Budget::default(),
            end,
            transactional: false,
            failures: true,
        }
    }

    fn clocks(mut self, skews: [i64; 3]) -> Self {
        self.workers = skews.iter().map(|&skew| (0, skew, 0, 1)).collect();
        self
    }

    fn workers(mut self, workers: &[(usize, i64, u8, u8)]) -> Self {
        self.keys = workers.iter().map(|worker| worker.0).max().unwrap_or(0) + 1;
        self.workers = workers.to_vec();
        self
    }

    fn transaction(mut self) -> Self {
        self.transactional = true;
        self
    }

    /// Handlers succeed.
    fn no_failures(mut self) -> Self {
        self.failures = false;
        self
    }

    fn faults(mut self, change: impl FnOnce(&mut Budget)) -> Self {
        change(&mut self.budget);
        self
    }
}

/// The scopes of the test command.
pub fn short() -> Vec<Scope> {
    vec![
        Scope::of("1 key, 3 workers: crashes, lost replies", 4)
            .faults(|b| (b.crashes, b.replies_lost) = (2, 2)),
        Scope::of("1 key, 3 workers: lost requests", 5).faults(|b| b.requests_lost = 2),
        Scope::of("1 key, 3 workers: a late copy", 4).faults(|b| b.duplicates = 1),
        Scope::of("1 key, 3 workers: TTL", 7).faults(|b| b.sweeps = 2),
        Scope::of("1 key, 3 workers: clocks beyond the margin", 4)
            .clocks(FAR)
            .faults(|b| (b.crashes, b.replies_lost) = (1, 1)),
        Scope::of("1 key, 3 workers, a transaction: crash, lost replies", 3)
            .transaction()
            .faults(|b| (b.crashes, b.replies_lost) = (1, 2)),
        Scope::of(
            "1 key, 2 workers, a transaction: lost requests, late copies",
            4,
        )
        .transaction()
        .workers(&[(0, 0, 0, 2), (0, 1, 0, 1)])
        .faults(|b| (b.requests_lost, b.duplicates) = (2, 2)),
        Scope::of("1 key, 2 workers: retries, a late copy, TTL", 7)
            .workers(&[(0, 0, 0, 2), (0, 1, 0, 1)])
            .faults(|b| (b.duplicates, b.sweeps) = (1, 1)),
        Scope::of("1 key, 2 workers: retries, another payload", 4)
            .workers(&[(0, 0, 0, 2), (0, 1, 1, 1)])
            .faults(|b| (b.crashes, b.replies_lost) = (1, 1)),
        Scope::of("1 key, 2 workers: a library without a fence", 5)
            .workers(&[(0, 0, 0, 2), (0, 1, 0, 1)])
            .no_failures()
            .faults(|b| (b.crashes, b.replies_lost, b.strangers) = (1, 1, 1)),
        Scope::of("2 keys, 2 workers each: statements of a group", 2)
            .workers(&[(0, 0, 0, 1), (1, 0, 0, 1), (0, 1, 0, 1), (1, 1, 0, 1)])
            .no_failures()
            .faults(|b| b.replies_lost = 1),
    ]
}

/// Two faults of each class together: hours, and much memory.
pub fn long() -> Vec<Scope> {
    let everything = |scope: Scope| {
        scope.faults(|b| {
            (b.crashes, b.requests_lost, b.replies_lost) = (2, 2, 2);
            (b.duplicates, b.sweeps) = (2, 2);
        })
    };
    vec![
        everything(Scope::of("1 key, 3 workers: everything", 7)),
        everything(
            Scope::of("1 key, 3 workers: everything, clocks beyond the margin", 7).clocks(FAR),
        ),
        everything(Scope::of("1 key, 3 workers, a transaction: everything", 7).transaction()),
    ]
}
