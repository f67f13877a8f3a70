//! The three ways in: the engine itself, a batch of messages, a request over HTTP.

use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::{Duration, UNIX_EPOCH};

use futures_util::FutureExt;
use lambda_idempotency::store::transaction::Write;
use lambda_idempotency::{
    AtDeadline, Claim, EpochMillis, Error, Fingerprint, Idempotency, Key, Outcome, Verdict,
};

use crate::process::Process;
use crate::scenario::{Books, Deed, Delivery, Door};
use crate::watched::Booking;
use crate::world::{Effect, End, Execution, Ledger, SkewedClock, What, millis};

pub mod http;
pub mod sqs;

/// The handler's own error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Passing,
    Permanent,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Trouble {}

/// The panic of a handler, which is not worth a backtrace.
pub struct OnPurpose;

/// A worker: its door, clock, engines and process, and the ledger that it writes.
#[derive(Clone, Debug)]
pub struct Worker {
    pub door: Door,
    pub clock: SkewedClock,
    /// Whether its process dies where its delivery is cut off.
    pub dies: bool,
    pub at_deadline: AtDeadline,
    pub once: Idempotency,
    /// The same engine in the claimless form, which needs a retention of an hour.
    pub claimless: Idempotency,
    pub process: Process,
    pub ledger: Ledger,
}

/// The operation's name.
pub const OPERATION: &str = "charge";

pub fn token(key: usize) -> String {
    format!("k-{key}")
}

pub fn payload(delivery: &Delivery) -> String {
    format!(
        r#"{{"key": "{}", "amount": {}}}"#,
        token(delivery.key),
        delivery.payload
    )
}

impl Worker {
    /// Runs the handler, as long as its process lives.
    pub async fn handle(
        self,
        number: usize,
        delivery: Delivery,
        claim: Claim,
    ) -> Result<usize, Trouble> {
        let process = self.process.clone();
        process.alive(self.work(number, delivery, claim)).await
    }

    /// It takes its time, and then does its deed.
    async fn work(self, number: usize, delivery: Delivery, claim: Claim) -> Result<usize, Trouble> {
        if delivery.derives {
            claim.derive_key("gateway");
        }
        let until = claim
            .lease_end()
            .map_or(i64::MAX, |end| EpochMillis::from(end).0);
        let value = self.ledger.begin(|value| Execution {
            value,
            delivery: number,
            key: delivery.key,
            attempt: claim.attempt(),
            began: self.clock.world.now(),
            claimless: self.claimless(&delivery),
            may_run_until: until.saturating_sub(self.clock.skew),
            claimed_until: until,
            steps: Vec::new(),
            ended: None,
            ended_in_time: false,
        });
        for step in 0..delivery.steps {
            let Some(effect) = self.step(&claim, &delivery, value, step).await else {
                self.ledger
                    .end(value, self.clock.world.now(), End::Failed, claim.is_over());
                return Err(Trouble::Passing);
            };
            self.ledger.step(value, effect);
        }
        if delivery.books != Books::Nothing {
            let books = delivery.books;
            let booking = Write::new(Booking { value, books });
            claim.write(booking).expect("a store with transactions");
        }
        tokio::time::sleep(millis(delivery.takes)).await;
        let (end, result) = match delivery.deed {
            Deed::Succeed => (End::Succeeded, Ok(value)),
            Deed::Fail => (End::Failed, Err(Trouble::Passing)),
            Deed::FailForGood => (End::Failed, Err(Trouble::Permanent)),
            Deed::Panic => (End::Panicked, Ok(value)),
        };
        self.ledger
            .end(value, self.clock.world.now(), end, claim.is_over());
        if end == End::Panicked {
            resume_unwind(Box::new(OnPurpose));
        }
        result
    }

    /// Takes a step, and returns its result. A handler that runs out of patience drops the step's future wherever it is, and tries once
    /// more.
    async fn step(
        &self,
        claim: &Claim,
        delivery: &Delivery,
        value: usize,
        step: usize,
    ) -> Option<usize> {
        let run = || {
            let effect = |derived| self.clone().effect(*delivery, value, step, derived);
            claim.step(format!("step-{step}"), effect)
        };
        if let Some(patience) = delivery.patience_with_steps
            && let Ok(given) = tokio::time::timeout(millis(patience), run()).await
        {
            return given.ok();
        }
        run().await.ok()
    }

    async fn effect(
        self,
        delivery: Delivery,
        value: usize,
        step: usize,
        derived: String,
    ) -> Result<usize, Trouble> {
        let number = self.ledger.fire(Effect {
            value,
            key: delivery.key,
            step,
            at: self.clock.world.now(),
            derived,
        });
        tokio::time::sleep(millis(delivery.takes / 4)).await;
        Ok(number)
    }

    /// Returns the time on the clock of its machine when so many milliseconds have passed.
    pub fn deadline(&self, left: i64) -> u64 {
        u64::try_from(self.clock.world.now() + self.clock.skew + left).expect("after 1970")
    }

    /// Steps need a claim, and the layers make one.
    fn claimless(&self, delivery: &Delivery) -> bool {
        self.door == Door::Engine && delivery.claimless && delivery.steps == 0
    }

    /// Straight through the engine.
    pub async fn run(self, number: usize, delivery: Delivery) -> What {
        let once = if self.claimless(&delivery) {
            &self.claimless
        } else {
            &self.once
        };
        let once = match delivery.deadline {
            Some(left) => {
                let end = UNIX_EPOCH + Duration::from_millis(self.deadline(left));
                once.deadline(end)
            }
            None => once.clone(),
        };
        let verdict = |result: &Result<usize, Trouble>| match result {
            Err(Trouble::Permanent) => Verdict::Fail,
            other => other.into(),
        };
        let fingerprint = Fingerprint::json(payload(&delivery).as_bytes());
        let handler = |claim| self.clone().handle(number, delivery, claim);
        let run = once.run_with(
            Key::new(OPERATION, token(delivery.key)),
            fingerprint,
            handler,
            verdict,
        );
        match AssertUnwindSafe(run).catch_unwind().await {
            Ok(Ok(Outcome::Executed(value))) => What::Executed(value),
            Ok(Ok(Outcome::Replayed(value, _))) => What::Replayed(value),
            Ok(Ok(Outcome::Unrecorded(value))) => What::Unrecorded(value),
            Ok(Ok(_)) => What::Refused("an outcome of another kind"),
            Ok(Err(error)) => What::Refused(Error::code(&error)),
            Err(_) => What::Panicked,
        }
    }
}
