//! The night that a seed makes.

use std::num::NonZeroU32;
use std::time::Duration;

use fastrand::Rng;
use lambda_idempotency::{AtDeadline, OnCrash};

use crate::operator::{self, Order};

/// The margin of every engine here.
pub const MARGIN: i64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Door {
    Engine,
    Sqs,
    Http,
}

/// The act of a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deed {
    #[default]
    Succeed,
    Fail,
    FailForGood,
    Panic,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Books {
    #[default]
    Nothing,
    /// Its condition holds.
    Entry,
    /// Its condition doesn't.
    Refused,
    /// Its condition holds, then doesn't, then does again: as a stock that is sold out and refilled.
    Seasonal,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    pub at: i64,
    pub worker: usize,
    pub key: usize,
    /// The number of its payload, one of two.
    pub payload: u8,
    pub deed: Deed,
    /// The time that the handler takes.
    pub takes: i64,
    /// Whether it derives a key for an effect outside.
    pub derives: bool,
    /// The number of journaled steps that it takes.
    pub steps: usize,
    /// The booking that it makes, in one transaction with its record.
    pub books: Books,
    /// Whether it asks for no claim, and commits its record and its booking at the end.
    pub claimless: bool,
    /// The time that its invocation may take, where that is known.
    pub deadline: Option<i64>,
    /// The time at which its process dies, counted from its start. It has its own engine.
    pub dies_after: Option<i64>,
    /// The time at which its caller hangs up, counted from its start: its future is dropped, and its process goes on.
    pub hangs_up_after: Option<i64>,
    /// The time that the handler waits for a step before it drops it, and tries it once more.
    pub patience_with_steps: Option<i64>,
    /// Whether its queue says that it was delivered before.
    pub redelivered: bool,
}

impl Delivery {
    /// Of a patient caller, when all is quiet.
    pub fn quiet(key: usize, payload: u8) -> Self {
        Self {
            key,
            payload,
            ..Self::default()
        }
    }

    /// Returns the time at which its future is dropped, counted from its start, and whether its process dies then.
    pub fn cut_off(&self) -> Option<(i64, bool)> {
        match (self.dies_after, self.hangs_up_after) {
            (Some(dies), Some(hangs_up)) if hangs_up < dies => Some((hangs_up, false)),
            (Some(dies), _) => Some((dies, true)),
            (None, hangs_up) => hangs_up.map(|hangs_up| (hangs_up, false)),
        }
    }

    /// Its message group.
    pub fn group(&self) -> String {
        format!("g-{}", self.key % 2)
    }
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub door: Door,
    /// Of each worker's clock.
    pub skews: Vec<i64>,
    pub lease: i64,
    pub retention: i64,
    pub failure_retention: i64,
    pub crashed: OnCrash,
    pub max_attempts: Option<NonZeroU32>,
    /// The time that a duplicate waits; zero means not at all.
    pub patience: i64,
    /// The chance that a call meets a fault.
    pub trouble: f64,
    pub keys: usize,
    pub deliveries: Vec<Delivery>,
    /// The times at which TTL deletes expired records. Mostly late, sometimes never.
    pub sweeps: Vec<i64>,
    /// The length of a season: a seasonal condition holds in one, and not in the next.
    pub season: i64,
    /// In a queue whose messages have an order.
    pub fifo: bool,
    /// The length of a lease that is renewed, and how long an attempt may take under it, where no deadline is known.
    pub renewed: Option<(i64, i64)>,
    /// The fate of a handler at the deadline of its invocation.
    pub at_deadline: AtDeadline,
    /// The orders of an operator.
    pub orders: Vec<Order>,
}

impl Scenario {
    pub fn of(seed: u64) -> Self {
        let mut dice = Rng::with_seed(seed);
        let dice = &mut dice;
        let door = [Door::Engine, Door::Engine, Door::Sqs, Door::Http][dice.usize(0..4)];
        let widest = if dice.u8(0..5) == 0 {
            5 * MARGIN
        } else {
            MARGIN / 2
        };
        let skews: Vec<_> = (0..3).map(|_| dice.i64(-widest..=widest)).collect();
        let lease = dice.i64(1..=8) * 1_000;
        let keys = dice.usize(1..=3);
        let after = OnCrash::RunAgainAfter(Duration::from_millis(dice.u64(1..=9_000)));
        let reckless = dice.u8(0..8) == 0;
        let deliveries = (0..dice.usize(3..=20))
            .map(|_| delivery(dice, lease, keys, reckless))
            .collect();
        Self {
            door,
            skews,
            lease,
            retention: [5_000, 60_000, 3_600_000][dice.usize(0..3)],
            failure_retention: [3_000, 600_000][dice.usize(0..2)],
            crashed: [
                OnCrash::RunAgain,
                OnCrash::RunAgain,
                OnCrash::Interrupt,
                after,
            ][dice.usize(0..4)],
            max_attempts: [None, None, NonZeroU32::new(2)][dice.usize(0..3)],
            patience: [0, 0, 3_000][dice.usize(0..3)],
            trouble: [0.0, 0.05, 0.15, 0.4][dice.usize(0..4)],
            keys,
            deliveries,
            sweeps: (0..dice.usize(0..4)).map(|_| dice.i64(0..90_000)).collect(),
            season: [40, 400, 3_000, 20_000][dice.usize(0..4)],
            fifo: dice.bool(),
            renewed: (dice.u8(0..3) == 0)
                .then(|| (dice.i64(lease / 4..=lease), dice.i64(lease..=4 * lease))),
            at_deadline: at_deadline(seed),
            orders: operator::orders(seed, keys),
        }
    }

    /// Returns whether no two clocks differ by more than the margin, so that no live lease is taken over.
    pub fn clocks_agree(&self) -> bool {
        self.spread() <= MARGIN
    }

    /// Returns the largest difference between two clocks, the true one included.
    pub fn spread(&self) -> i64 {
        let most = self.skews.iter().max().copied().unwrap_or(0);
        let least = self.skews.iter().min().copied().unwrap_or(0);
        most.max(0) - least.min(0)
    }
}

/// By dice of its own, so that a seed's other settings stay as they were.
fn at_deadline(seed: u64) -> AtDeadline {
    let mut dice = Rng::with_seed(seed ^ u64::from_be_bytes(*b"deadline"));
    if dice.bool() {
        AtDeadline::GoOn
    } else {
        AtDeadline::End
    }
}

fn delivery(dice: &mut Rng, lease: i64, keys: usize, reckless: bool) -> Delivery {
    let takes = match dice.u8(0..10) {
        0..6 => dice.i64(0..=lease / 2),
        6..8 => 0,
        // It outlives its lease.
        _ => dice.i64(lease..=3 * lease),
    };
    let deed = match dice.u8(0..10) {
        0..7 => Deed::Succeed,
        7 => Deed::Fail,
        8 => Deed::FailForGood,
        _ => Deed::Panic,
    };
    Delivery {
        at: if dice.bool() {
            dice.i64(0..=2_000)
        } else {
            dice.i64(0..=60_000)
        },
        worker: dice.usize(0..3),
        key: dice.usize(0..keys),
        payload: u8::from(reckless && dice.u8(0..3) == 0),
        deed,
        takes,
        derives: dice.u8(0..4) == 0,
        steps: [0, 0, 0, 1, 2][dice.usize(0..5)],
        books: match dice.u8(0..8) {
            0..2 => Books::Entry,
            2 => Books::Refused,
            3 => Books::Seasonal,
            _ => Books::Nothing,
        },
        claimless: dice.u8(0..4) == 0,
        deadline: match dice.u8(0..6) {
            0 => Some(dice.i64(0..=300)),
            1 => Some(dice.i64(600..=2 * lease)),
            _ => None,
        },
        dies_after: (dice.u8(0..6) == 0).then(|| dice.i64(0..=lease)),
        hangs_up_after: (dice.u8(0..8) == 0).then(|| dice.i64(0..=lease)),
        patience_with_steps: (dice.u8(0..4) == 0).then(|| dice.i64(1..=lease / 4)),
        redelivered: dice.u8(0..3) == 0,
    }
}
