//! What is checked, and how far.

use crate::checker::Scope;
use crate::world::Budget;

const NOTHING: Budget = Budget {
    crashes: 0,
    requests_lost: 0,
    replies_lost: 0,
    duplicates: 0,
    sweeps: 0,
    strangers: 0,
};

/// One key, three workers with one delivery each.
fn three(name: &'static str, skews: [i64; 3], end: i64, budget: Budget) -> Scope {
    Scope {
        name,
        keys: 1,
        workers: skews.iter().map(|&skew| (0, skew, 0, 1)).collect(),
        budget,
        end,
        transactional: false,
        failures: true,
    }
}

/// Within the margin, and beyond it.
const NEAR: [i64; 3] = [0, 0, 1];
const FAR: [i64; 3] = [0, 0, 3];

/// The scopes of the test command.
pub fn short() -> Vec<Scope> {
    let transaction = |name, end, budget| Scope {
        transactional: true,
        ..three(name, NEAR, end, budget)
    };
    vec![
        three(
            "1 key, 3 workers: crashes, lost replies",
            NEAR,
            4,
            Budget {
                crashes: 2,
                replies_lost: 2,
                ..NOTHING
            },
        ),
        three(
            "1 key, 3 workers: lost requests",
            NEAR,
            5,
            Budget {
                requests_lost: 2,
                ..NOTHING
            },
        ),
        three(
            "1 key, 3 workers: a late copy",
            NEAR,
            4,
            Budget {
                duplicates: 1,
                ..NOTHING
            },
        ),
        three(
            "1 key, 3 workers: TTL",
            NEAR,
            7,
            Budget {
                sweeps: 2,
                ..NOTHING
            },
        ),
        Scope {
            workers: vec![(0, 0, 0, 2), (0, 1, 0, 1)],
            ..three(
                "1 key, 2 workers: retries, late copies, TTL",
                NEAR,
                7,
                Budget {
                    duplicates: 2,
                    sweeps: 2,
                    ..NOTHING
                },
            )
        },
        three(
            "1 key, 3 workers: clocks beyond the margin",
            FAR,
            4,
            Budget {
                crashes: 1,
                replies_lost: 1,
                ..NOTHING
            },
        ),
        transaction(
            "1 key, 3 workers, a transaction: crashes, lost replies",
            3,
            Budget {
                crashes: 1,
                replies_lost: 2,
                ..NOTHING
            },
        ),
        transaction(
            "1 key, 3 workers, a transaction: lost requests, late copies",
            3,
            Budget {
                requests_lost: 1,
                duplicates: 1,
                ..NOTHING
            },
        ),
        Scope {
            workers: vec![(0, 0, 0, 2), (0, 1, 1, 1)],
            ..three(
                "1 key, 2 workers: retries, another payload",
                NEAR,
                5,
                Budget {
                    crashes: 1,
                    replies_lost: 1,
                    duplicates: 1,
                    ..NOTHING
                },
            )
        },
        Scope {
            workers: vec![(0, 0, 0, 2), (0, 1, 0, 1)],
            failures: false,
            ..three(
                "1 key, 2 workers: a library without a fence",
                NEAR,
                5,
                Budget {
                    crashes: 1,
                    replies_lost: 1,
                    strangers: 1,
                    ..NOTHING
                },
            )
        },
        Scope {
            keys: 2,
            workers: vec![(0, 0, 0, 1), (1, 0, 0, 1), (0, 1, 0, 1), (1, 1, 0, 1)],
            failures: false,
            ..three(
                "2 keys, 2 workers each: statements of a group",
                NEAR,
                3,
                Budget {
                    replies_lost: 1,
                    ..NOTHING
                },
            )
        },
    ]
}

/// Two faults of each class together; hours, and much memory.
pub fn long() -> Vec<Scope> {
    let all = Budget {
        crashes: 2,
        requests_lost: 2,
        replies_lost: 2,
        duplicates: 2,
        sweeps: 2,
        strangers: 0,
    };
    vec![
        three("1 key, 3 workers: everything", NEAR, 7, all),
        three(
            "1 key, 3 workers: everything, clocks beyond the margin",
            FAR,
            7,
            all,
        ),
        Scope {
            transactional: true,
            ..three("1 key, 3 workers, a transaction: everything", NEAR, 7, all)
        },
    ]
}
