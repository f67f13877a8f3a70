//! The function without AWS: a store in memory, and payouts that are remembered.

use std::sync::{Arc, Mutex};

use lambda_idempotency::Idempotency;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock, TestError, TestInvocation};
use lambda_runtime::Error;
use tower::Service;

use crate::settlements::{Payouts, Settlement, function};

/// Keeps the ids of the payouts, and refuses a settlement of zero.
#[derive(Clone, Default)]
struct Paid(Arc<Mutex<Vec<String>>>);

impl Payouts for Paid {
    async fn pay(&self, payout_id: String, settlement: Settlement) -> Result<(), Error> {
        if settlement.amount == 0 {
            return Err("a settlement of zero".into());
        }
        self.0.lock().unwrap().push(payout_id);
        Ok(())
    }
}

struct Caller {
    store: FaultyStore,
    clock: ManualClock,
    once: Idempotency,
    payouts: Paid,
}

impl Caller {
    fn new() -> Result<Self, Error> {
        let store = FaultyStore::new(MemoryStore::new());
        let clock = ManualClock::default();
        let once = Idempotency::builder(store.clone())
            .namespace(crate::NAMESPACE)
            .clock(clock.clone())
            .build()?;
        let payouts = Paid::default();
        Ok(Self {
            store,
            clock,
            once,
            payouts,
        })
    }

    /// Invokes the function; its answer.
    async fn invoke(&self, event: TestInvocation) -> Result<String, Error> {
        let mut function = function(self.once.clone(), self.payouts.clone());
        let answer = function.call(event.event()).await;
        let answer = answer.map_err(|error| error.to_string())?;
        Ok(answer.get().to_owned())
    }

    fn payouts(&self) -> Vec<String> {
        self.payouts.0.lock().unwrap().clone()
    }
}

/// An event of the settlement `s-1`.
fn settlement(amount: u64) -> Result<TestInvocation, TestError> {
    let settlement_id = "s-1".to_owned();
    TestInvocation::json(&Settlement {
        settlement_id,
        amount,
    })
}

#[tokio::test]
async fn a_repeated_event_gets_the_first_answer() -> Result<(), Error> {
    let caller = Caller::new()?;

    let first = caller.invoke(settlement(1250)?).await?;
    assert_eq!(caller.invoke(settlement(1250)?).await?, first);

    assert_eq!(caller.payouts().len(), 1);
    Ok(())
}

#[tokio::test]
async fn the_same_settlement_with_another_amount_is_refused() -> Result<(), Error> {
    let caller = Caller::new()?;

    caller.invoke(settlement(1250)?).await?;
    assert!(caller.invoke(settlement(99)?).await.is_err());

    assert_eq!(caller.payouts().len(), 1);
    Ok(())
}

#[tokio::test]
async fn an_attempt_after_a_crash_writes_the_same_payout() -> Result<(), Error> {
    let caller = Caller::new()?;

    // The process dies when the payout is written, before the outcome is stored.
    let dies = caller.invoke(settlement(1250)?);
    let crash = caller.store.crash_before(Call::Complete);
    crash.cut_off(dies).await?;
    caller.clock.pass_lease(&caller.once);
    caller.invoke(settlement(1250)?).await?;

    let payouts = caller.payouts();
    assert_eq!(payouts.len(), 2);
    assert_eq!(payouts[0], payouts[1]);
    Ok(())
}
