//! Scopes: the workers that there are, and the faults that may happen.

use crate::values::Tick;
use crate::world::{Budget, Phase, WORKERS, Worker, World};

/// The bounds of a check.
#[derive(Clone, Debug)]
pub struct Scope {
    pub name: String,
    pub workers: Vec<Spec>,
    pub budget: Budget,
    /// Whether handlers may fail.
    pub failures: bool,
    /// Whether handlers may be ended at their deadline. Where they go on instead, their leases are renewed, and they are ended with a lease
    /// that could not be.
    pub ends: bool,
    /// Whether the workers of a process send their statements in groups.
    pub grouped: bool,
    /// The number of steps of a handler.
    pub steps: u8,
    pub provider: Provider,
    /// The time that an attempt may run, without the margin: in the first tick, unless leases are renewed.
    pub lease: Tick,
    /// The time that an outcome is kept.
    pub retention: Tick,
}

/// A worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    pub key: usize,
    /// Its clock, in ticks beside the true time.
    pub skew: Tick,
    /// The payload of its deliveries.
    pub payload: u8,
    pub deliveries: u8,
    /// Workers of one process die together.
    pub process: usize,
    pub form: Form,
}

/// The kind of a handler's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Outside.
    Claimed,
    /// A business write that commits with the record.
    Transaction,
    /// The same, without a claim before it.
    Claimless,
}

/// The provider that brings a step's effect about, and the policy for a step that may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// It answers the same key with the same effect; the step fires again.
    HonoursKeys,
    /// It doesn't; the step fires again all the same.
    NoKeys,
    /// It doesn't; an operator has to look.
    NoKeysInterrupt,
}

/// Within the margin, and beyond it.
pub const NEAR: [Tick; 3] = [0, 0, 1];
pub const FAR: [Tick; 3] = [0, 0, 2];

impl World {
    pub fn new(scope: &Scope) -> Self {
        let mut workers = [Worker::default(); WORKERS];
        for (worker, spec) in workers.iter_mut().zip(&scope.workers) {
            worker.deliveries = spec.deliveries;
            worker.phase = Phase::Idle;
        }
        Self {
            workers,
            keys: <_>::default(),
            late: Vec::new(),
            budget: scope.budget,
            broken: None,
            names: 0,
            labels: crate::labels::Labels::new(),
        }
    }
}

impl Scope {
    /// One key, three workers with one delivery each, and nothing that goes wrong but handlers.
    pub fn of(name: impl Into<String>) -> Self {
        let scope = Self {
            name: name.into(),
            workers: Vec::new(),
            budget: Budget::default(),
            failures: true,
            ends: false,
            grouped: false,
            steps: 0,
            provider: Provider::HonoursKeys,
            lease: 1,
            retention: 3,
        };
        scope.clocks(&NEAR)
    }

    /// Returns whether a handler is ended with its lease: where that is renewed, or ends with a deadline.
    pub fn holds(&self) -> bool {
        self.ends || self.budget.renewals > 0
    }

    pub fn keys(&self) -> usize {
        self.workers.iter().map(|spec| spec.key).max().unwrap_or(0) + 1
    }

    /// A worker for each clock.
    pub fn clocks(mut self, skews: &[Tick]) -> Self {
        let worker = |(process, &skew): (usize, &Tick)| Spec {
            key: 0,
            skew,
            payload: 0,
            deliveries: 1,
            process,
            form: Form::Claimed,
        };
        self.workers = skews.iter().enumerate().map(worker).collect();
        self
    }

    pub fn form(mut self, form: Form) -> Self {
        for spec in &mut self.workers {
            spec.form = form;
        }
        self
    }

    /// The first worker gets two deliveries.
    pub fn retries(mut self) -> Self {
        self.workers[0].deliveries = 2;
        self
    }

    /// Each worker becomes a process that serves two keys.
    pub fn in_groups(mut self) -> Self {
        let lanes = |spec: &Spec| [0, 1].map(|key| Spec { key, ..*spec });
        self.workers = self.workers.iter().flat_map(lanes).collect();
        self.grouped = true;
        self
    }

    pub fn steps(mut self, steps: u8, provider: Provider) -> Self {
        (self.steps, self.provider) = (steps, provider);
        self
    }

    /// Leases are long enough to be renewed before their end.
    pub fn renewing(mut self) -> Self {
        (self.lease, self.retention) = (2, 4);
        self
    }

    /// The last worker's deliveries carry another payload.
    pub fn another_payload(mut self) -> Self {
        if let Some(spec) = self.workers.last_mut() {
            spec.payload = 1;
        }
        self
    }

    /// Handlers may be ended at their deadline.
    pub fn ending(mut self) -> Self {
        self.ends = true;
        self
    }

    /// Handlers succeed.
    pub fn no_failures(mut self) -> Self {
        self.failures = false;
        self
    }

    pub fn faults(mut self, change: impl FnOnce(&mut Budget)) -> Self {
        change(&mut self.budget);
        self
    }
}
