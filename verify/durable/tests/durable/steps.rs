//! Idempotent calls inside durable steps.

use aws_durable_execution_sdk::test_util::{LocalRunner, TestResult};
use lambda_idempotency::Idempotency;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock};

use crate::Gateway;
use crate::order::{self, Order};

/// A durable function, on a table that outlives its executions.
struct Function {
    clock: ManualClock,
    table: FaultyStore,
    once: Idempotency,
    gateway: Gateway,
}

impl Function {
    fn new() -> Self {
        Self::with(false)
    }

    /// `is_disabled` leaves the library out.
    fn with(is_disabled: bool) -> Self {
        let (clock, table) = (ManualClock::default(), FaultyStore::new(MemoryStore::new()));
        let builder = Idempotency::builder(table.clone()).namespace("orders");
        let once = builder.clock(clock.clone()).disabled(is_disabled);
        let once = once.build().unwrap();
        Self {
            clock,
            table,
            once,
            gateway: Gateway::default(),
        }
    }

    async fn execute(&self, runner: LocalRunner, amount: u64) -> TestResult<String> {
        let (once, gateway) = (self.once.clone(), self.gateway.clone());
        let handler =
            move |order: Order, ctx| order::serve(once.clone(), gateway.clone(), order, ctx);
        let id = "o-1".to_owned();
        runner.run(handler, Order { id, amount }).await
    }
}

#[tokio::test]
async fn an_execution_suspends_behind_its_claim_and_ends_in_another_invocation() {
    let function = Function::new();
    let done = function.execute(LocalRunner::new(), 5).await;
    assert_eq!(
        done.output().unwrap(),
        "payment 1 of 5 confirmed",
        "{done:?}"
    );
    assert!(done.invocation_count() >= 2, "{done:?}");
}

/// An event source mapping starts an execution for each retry.
#[tokio::test]
async fn a_second_execution_of_the_same_order_gets_the_outcome_of_the_first() {
    let function = Function::new();
    for _ in 0..2 {
        let done = function.execute(LocalRunner::new(), 5).await;
        assert_eq!(
            done.output().unwrap(),
            "payment 1 of 5 confirmed",
            "{done:?}"
        );
    }
    assert_eq!(function.gateway.charges(), 1);
    // The same order with another amount is refused.
    let other = function.execute(LocalRunner::new(), 6).await;
    assert!(other.is_failure(), "{other:?}");
    assert_eq!(function.gateway.charges(), 1);
}

/// A step runs at least once: its body returned, and its result was not recorded.
#[tokio::test]
async fn a_step_whose_checkpoint_is_lost_runs_again_without_a_second_effect() {
    for (is_disabled, charges) in [(false, 1), (true, 2)] {
        let function = Function::with(is_disabled);
        let runner = LocalRunner::new().fail_checkpoints_after_retryable(1, 1);
        let done = function.execute(runner, 5).await;
        let wanted = format!("payment {charges} of 5 confirmed");
        assert_eq!(*done.output().unwrap(), wanted, "{done:?}");
        assert!(done.invocation_count() >= 3, "{done:?}");
        assert_eq!(function.gateway.charges(), charges);
    }
}

/// The provider here recognises nothing. One that honours keys would: they are equal.
#[tokio::test]
async fn after_a_crash_between_effect_and_outcome_the_effect_is_repeated_with_the_same_key() {
    let function = Function::new();
    let crash = function.table.crash_before(Call::Complete);
    crash
        .cut_off(function.execute(LocalRunner::new(), 5))
        .await
        .unwrap();
    function.clock.pass_lease(&function.once);
    let done = function.execute(LocalRunner::new(), 5).await;
    assert!(done.is_success(), "{done:?}");
    assert_eq!(
        (function.gateway.charges(), function.gateway.keys().len()),
        (2, 1)
    );
}
