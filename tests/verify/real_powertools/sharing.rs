//! A record that either side wrote is honoured by the other: completed, in progress, expired, failed.

use std::io::Error as HandlerError;
use std::time::Duration;

use serde_json::json;

use super::process::{Called, IN_PROGRESS, raised, returned};
use super::{Shared, after, charge};

on_both!(what_the_function_has_done_is_replayed_here);
async fn what_the_function_has_done_is_replayed_here(shared: Shared) {
    let mut function = shared.function().await;
    let results = [
        json!({"receipt": "r-1"}),
        json!(null),
        json!(0),
        json!([]),
        json!("é😀"),
        json!(0.1),
    ];
    for (order, result) in results.into_iter().enumerate() {
        let order = format!("o-{order}");
        function.run(&order, result.clone()).await;
        shared.replays(charge(order), None, result).await;
    }
}

on_both!(what_was_done_here_is_replayed_by_the_function);
async fn what_was_done_here_is_replayed_by_the_function(shared: Shared) {
    let mut function = shared.function().await;
    let whole = json!({"receipt": "é😀", "n": [1, 0.1]});
    // A result that is false in Python is `None` there, as one of its own is.
    for (order, result, seen) in [
        ("o-1", whole.clone(), whole),
        ("o-2", json!(null), json!(null)),
        ("o-3", json!(0), json!(null)),
        ("o-4", json!([]), json!(null)),
    ] {
        shared.done(charge(order), None, result).await;
        assert_eq!(function.charge(order).await, returned(seen));
    }
}

on_both!(while_the_function_runs_nothing_runs_here);
async fn while_the_function_runs_nothing_runs_here(shared: Shared) {
    let mut function = shared.function().await;
    assert_eq!(function.charge("o-1").await, Called::Running);

    // The 60 s that its invocation had, and the margin for its clock.
    let lease = shared.in_flight("o-1").await;
    assert!((30..=61).contains(&lease), "{lease}");

    function.return_(json!("receipt")).await;
    shared.replays(charge("o-1"), None, "receipt").await;
}

on_both!(while_it_runs_here_the_function_does_not);
async fn while_it_runs_here_the_function_does_not(shared: Shared) {
    let mut function = shared.function().await;
    let once = shared.engine();
    let meanwhile = once.run(charge("o-1"), None, |_| async {
        assert_eq!(function.charge("o-1").await, raised(IN_PROGRESS));
        Ok::<_, HandlerError>("receipt".to_owned())
    });
    meanwhile.await.unwrap();
    assert_eq!(function.charge("o-1").await, returned("receipt"));
}

on_both!(a_record_of_the_function_that_has_expired_is_fresh_here);
async fn a_record_of_the_function_that_has_expired_is_fresh_here(shared: Shared) {
    let once =
        shared.engine_with(|once| once.settings(|settings| settings.skew_margin = Duration::ZERO));
    let config = json!({"expires_after_seconds": 1});
    let mut function = shared.function().await.with("config", config);
    function.run("o-1", json!("old")).await;
    after(1_000).await;
    let again = once.run(charge("o-1"), None, |claim| async move {
        Ok::<_, HandlerError>(claim.attempt())
    });
    assert_eq!(again.await.unwrap().into_inner(), 1);
}

on_both!(a_record_from_here_that_has_expired_is_fresh_to_the_function);
async fn a_record_from_here_that_has_expired_is_fresh_to_the_function(shared: Shared) {
    let once = shared.engine_with(|once| once.retention(Duration::from_secs(1)));
    once.run(charge("o-1"), None, |_| async {
        Ok::<_, HandlerError>("old".to_owned())
    })
    .await
    .unwrap();
    let mut function = shared.function().await;
    // It compares whole seconds, and takes over in the second after.
    after(3_000).await;
    function.run("o-1", json!("new")).await;
}

on_both!(what_failed_in_the_function_runs_here);
async fn what_failed_in_the_function_runs_here(shared: Shared) {
    let mut function = shared.function().await;
    function.charge("o-1").await;
    assert_eq!(function.raise().await, raised("RuntimeError"));
    shared.done(charge("o-1"), None, "here").await;
}

on_both!(what_failed_here_runs_in_the_function);
async fn what_failed_here_runs_in_the_function(shared: Shared) {
    let failing = |_| async { Err::<String, _>(HandlerError::other("card declined")) };
    let once = shared.engine();
    once.run(charge("o-1"), None, failing).await.unwrap_err();
    // A lease of zero: to the function, a claim that ran out long ago.
    shared.function().await.run("o-1", json!("there")).await;
    shared.replays(charge("o-1"), None, "there").await;
}
