//! The output of a step about its result, and about the error that its effect ended with.

use std::time::Duration;

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, Fault, FaultyStore, ManualClock};
use lambda_idempotency::{Error, Idempotency, Key, OnCrash, Step, StepError, Unrecorded};

use super::canary::{Canary, Seen, with_secrets};
use super::engine::Quoting;
use crate::support::crash::kill;

type Result<T> = std::result::Result<T, StepError<Quoting>>;

/// Shows a step's error, except for the effect's own.
fn show<T>(seen: &mut Seen, result: Result<T>) {
    match result {
        Ok(_) | Err(StepError::Effect(_)) => {}
        Err(error) => {
            seen.debug(&error);
            seen.text(&error);
        }
    }
}

async fn scenario(canary: &Canary) -> Seen {
    let mut seen = Seen::of(canary);
    let secret = &canary.text();
    let (store, clock) = (FaultyStore::new(MemoryStore::new()), ManualClock::default());
    let builder = Idempotency::builder(store.clone())
        .namespace("secrets")
        .clock(clock.clone());
    let once = builder
        .lease(Duration::from_mins(1))
        .settings(|settings| settings.unrecorded = Unrecorded::Fail)
        .build()
        .unwrap();
    let key = || Key::new("order", secret.as_str());
    let effect = async |_: String| Ok::<_, Quoting>(secret.clone());

    let first = once.run(key(), None, async |claim| {
        claim.step("kept", effect).await?;
        show(&mut seen, claim.step("kept", effect).await);
        show(&mut seen, claim.step("a b", effect).await);
        let large = async |_: String| Ok::<_, Quoting>(secret.repeat(2_000));
        claim.step("large", large).await?;
        store.inject(Call::Amend, Fault::Throttled);
        claim
            .step("failed", async |_: String| {
                Err::<String, _>(Quoting(secret.clone()))
            })
            .await
    });
    first.await.unwrap_err();
    let second = once.run(key(), None, async |claim| {
        show(
            &mut seen,
            claim
                .step("kept", async |_: String| Ok::<u32, Quoting>(1))
                .await,
        );
        show(&mut seen, claim.step("large", effect).await);
        seen.debug(&Step::<Quoting>::named("kept").unsure_after(|_| true));
        for _ in 0..50 {
            store.inject(Call::Amend, Fault::RequestLost);
        }
        show(&mut seen, claim.step("lost", effect).await);
        store.calm();
        Err::<String, _>(StepError::Effect(Quoting(secret.clone())))
    });
    second.await.unwrap_err();
    // The throttled request would hold the next claim up until it is forgotten.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let interrupted = Step::named("interrupted").on_crash(OnCrash::Interrupt);
    let hanging = once.run(key(), None, async |claim| {
        claim
            .step(Step::<Quoting>::named("interrupted"), async |_: String| {
                std::future::pending::<std::result::Result<String, Quoting>>().await
            })
            .await
    });
    kill(hanging).await;
    clock.advance(Duration::from_hours(1));
    let third = once.run(key(), None, async |claim| {
        let result = claim.step(interrupted, effect).await;
        assert_matches!(result, Err(StepError::Interrupted { .. }));
        show(&mut seen, result);
        Err::<String, _>(StepError::Effect(Quoting(secret.clone())))
    });
    let error: Error<StepError<Quoting>> = third.await.unwrap_err();
    assert_matches!(error, Error::Interrupted { .. });
    seen.error(error);
    seen.debug(&store);
    seen
}

#[test]
fn no_step_tells_a_secret() {
    let events = "step_begun step_skipped step_failed step_omitted";
    with_secrets(scenario, |seen| seen.assert_silent(events));
}
