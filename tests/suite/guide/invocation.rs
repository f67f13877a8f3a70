use lambda_idempotency::invoke::{Invocation, InvokeError, InvokeLayer};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, ManualClock, TestClaim, TestInvocation};
use lambda_idempotency::{Idempotency, Key};
use lambda_runtime::{Diagnostic, Error, LambdaEvent};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tower::{Service, ServiceExt};

// The function, in your `src/`. Its `main` ends with `serve(once).await`.

async fn serve(once: Idempotency) -> Result<(), Error> {
    lambda_runtime::run(function(once)).await
}

#[derive(Deserialize, Serialize)]
struct Settlement {
    settlement_id: String,
    amount: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the amount is zero")]
struct Nothing;

/// The caller gets these as `errorType` and `errorMessage`.
impl From<Nothing> for Diagnostic {
    fn from(error: Nothing) -> Self {
        Self {
            error_type: "Settlements.Nothing".to_owned(),
            error_message: error.to_string(),
        }
    }
}

async fn settle(event: Invocation<Settlement>) -> Result<String, Nothing> {
    match event.payload.amount {
        0 => Err(Nothing),
        _ => Ok(event.claim.derive_key("bank")), // the call to your bank
    }
}

fn function(
    once: Idempotency,
) -> impl Service<LambdaEvent<Box<RawValue>>, Response = Box<RawValue>, Error = InvokeError<Nothing>>
{
    InvokeLayer::new(once)
        .operation("settle")
        .key(|settlement: &Settlement| settlement.settlement_id.clone())
        .permanent(|_| true)
        .handler(settle)
}

// The tests.

fn settlement(amount: u64) -> Result<TestInvocation, Error> {
    let settlement_id = "s-1".to_owned();
    let settlement = Settlement {
        settlement_id,
        amount,
    };
    Ok(TestInvocation::json(&settlement)?)
}

/// Invokes a new environment of the function; its answer, or the `errorType` that its caller gets.
async fn invoke(once: &Idempotency, event: TestInvocation) -> Result<String, Option<&'static str>> {
    let answer = function(once.clone()).oneshot(event.event()).await;
    let answer = answer.map_err(|error| error.error_type())?;
    Ok(answer.get().to_owned())
}

#[tokio::test]
async fn the_handler_pays_under_the_key_of_its_claim() -> Result<(), Error> {
    let claim = TestClaim::new(Key::new("settle", "s-1")).claim().await?;
    let expected = claim.derive_key("bank");

    let event = settlement(1250)?.with_claim(claim)?;

    assert_eq!(settle(event).await?, expected);
    Ok(())
}

#[tokio::test]
async fn a_retry_gets_the_first_answer_and_another_amount_a_mismatch() -> Result<(), Error> {
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("settlements")
        .build()?;

    let first = invoke(&once, settlement(1250)?).await;
    assert!(first.is_ok());
    assert_eq!(invoke(&once, settlement(1250)?).await, first);

    let mismatch = Err(Some("Idempotency.Mismatch"));
    assert_eq!(invoke(&once, settlement(99)?).await, mismatch);
    Ok(())
}

#[tokio::test]
async fn a_failure_for_good_is_kept() -> Result<(), Error> {
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("settlements")
        .build()?;

    assert_eq!(invoke(&once, settlement(0)?).await, Err(None)); // the handler's own error
    let again = invoke(&once, settlement(0)?).await;
    assert_eq!(again, Err(Some("Idempotency.Failed")));
    Ok(())
}

#[tokio::test]
async fn after_a_crash_a_retry_pays_under_the_same_key() -> Result<(), Error> {
    let clock = ManualClock::default();
    let store = FaultyStore::new(MemoryStore::new());
    let once = Idempotency::builder(store.clone())
        .namespace("settlements")
        .clock(clock.clone())
        .build()?;

    // The bank has paid, and the process dies before the answer is stored.
    let dies = invoke(&once, settlement(1250)?);
    store.crash_before(Call::Complete).cut_off(dies).await?;
    let in_flight = Err(Some("Idempotency.InFlight"));
    assert_eq!(invoke(&once, settlement(1250)?).await, in_flight);

    clock.pass_lease(&once);
    let claim = TestClaim::new(Key::new("settle", "s-1")).namespace("settlements");
    let key = claim.claim().await?.derive_key("bank");
    let paid = invoke(&once, settlement(1250)?).await;
    assert_eq!(paid, Ok(format!("\"{key}\"")));
    Ok(())
}
