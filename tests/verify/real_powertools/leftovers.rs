//! Records that a crash of either side leaves behind and the other takes over, and the writes of a stale handler then.

use std::io::Error as HandlerError;
use std::sync::Arc;
use std::time::Duration;

use lambda_idempotency::{Error, Idempotency, StepError};
use serde_json::json;
use tokio::sync::Notify;

use super::process::{Called, IN_PROGRESS, raised, returned};
use super::{Shared, after, charge};

on_both!(what_the_function_left_behind_is_taken_over_when_its_time_and_the_margin_are_over);
async fn what_the_function_left_behind_is_taken_over_when_its_time_and_the_margin_are_over(
    shared: Shared,
) {
    let once = shared.engine_with(|once| {
        once.settings(|settings| settings.skew_margin = Duration::from_hours(1))
    });
    let mut function = shared.function().await.with("remaining", 600);
    function.charge("o-1").await;
    drop(function);

    let handler =
        |claim: lambda_idempotency::Claim| async move { Ok::<_, HandlerError>(claim.attempt()) };
    shared.lease_ended(Duration::from_mins(30)).await;
    // Powertools adds no margin to its own.
    let waits = once.run(charge("o-1"), None, handler).await;
    assert!(matches!(waits, Err(Error::InFlight { .. })), "{waits:?}");
    shared.lease_ended(Duration::from_hours(2)).await;
    let ran = once.run(charge("o-1"), None, handler).await.unwrap();
    assert_eq!((ran.is_replayed(), ran.into_inner()), (false, 2));
}

on_both!(what_was_left_behind_here_is_taken_over_by_the_function);
async fn what_was_left_behind_here_is_taken_over_by_the_function(shared: Shared) {
    let once = shared.engine();
    let mut function = shared.function().await;
    let begun = Arc::new(Notify::new());
    let working = Arc::clone(&begun);
    let hangs = once.run(charge("o-1"), None, |claim| async move {
        claim
            .step("reserve", |_| async { Ok::<_, HandlerError>(()) })
            .await?;
        working.notify_one();
        std::future::pending::<Result<(), StepError<HandlerError>>>().await
    });
    tokio::select! {
        ended = hangs => panic!("{ended:?}"),
        () = begun.notified() => {}
    }
    assert_eq!(function.charge("o-1").await, raised(IN_PROGRESS));
    shared.lease_ended(Duration::from_hours(1)).await;
    assert_eq!(function.charge("o-1").await, Called::Running);
    // Its own attributes alone: owner, attempt and the journal of steps are gone.
    let mut left: Vec<_> = shared.records().await.remove(0).into_keys().collect();
    left.sort();
    assert_eq!(
        left,
        ["expiration", "id", "in_progress_expiration", "status"]
    );
    function.return_(json!("there")).await;
}

on_both!(a_handler_here_that_the_function_took_over_changes_nothing);
async fn a_handler_here_that_the_function_took_over_changes_nothing(shared: Shared) {
    let once = shared.engine();
    let mut function = shared.function().await;
    let stale = once.run(charge("o-1"), None, |_| async {
        shared.lease_ended(Duration::from_hours(1)).await;
        assert_eq!(function.charge("o-1").await, Called::Running);
        Ok::<_, HandlerError>("stale".to_owned())
    });
    let lost = stale.await;
    assert!(matches!(lost, Err(Error::LeaseLost)), "{lost:?}");
    function.return_(json!("successor")).await;
    assert_eq!(function.charge("o-1").await, returned("successor"));
}

/// Claims a key that a stale function still works on; it has succeeded when this returns.
async fn take_over(once: &Idempotency) {
    let successor = once.run(charge("o-1"), None, |_| async {
        Ok::<_, HandlerError>("successor".to_owned())
    });
    assert!(!successor.await.unwrap().is_replayed());
}

on_both!(a_stale_function_overwrites_and_deletes_what_its_successor_here_wrote);
/// A limit of the shared table: the function completes and deletes without a condition.
async fn a_stale_function_overwrites_and_deletes_what_its_successor_here_wrote(shared: Shared) {
    for (fails, left) in [(false, 1), (true, 0)] {
        let shared = Shared::on(&shared.server).await;
        let once = shared
            .engine_with(|once| once.settings(|settings| settings.skew_margin = Duration::ZERO));
        let mut stale = shared.function().await.with("remaining", 100);
        stale.charge("o-1").await;
        after(100).await;
        take_over(&once).await;
        if fails {
            stale.raise().await;
        } else {
            stale.return_(json!("stale")).await;
            shared.replays(charge("o-1"), None, "stale").await;
        }
        assert_eq!(shared.records().await.len(), left);
    }
}
