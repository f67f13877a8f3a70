//! A record that either side wrote is honoured by the other: completed, in progress, expired, failed.

use std::io::Error as HandlerError;
use std::time::Duration;

use lambda_idempotency::Error;
use serde_json::{Value, json};

use super::process::{Called, IN_PROGRESS, raised};
use super::{Shared, after, charge};
use crate::on_each_server;
use crate::support::Server;

on_each_server!(
    what_the_function_has_done_is_replayed_here,
    start_paused = false
);
async fn what_the_function_has_done_is_replayed_here(server: Server) {
    let shared = Shared::on(&server).await;
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
        let replayed = shared
            .engine()
            .run(charge(order.as_str()), None, |_| async {
                Err::<Value, _>(HandlerError::other("it ran"))
            })
            .await
            .unwrap();
        assert!(replayed.is_replayed());
        assert_eq!(replayed.into_inner(), result);
    }
}

on_each_server!(
    what_was_done_here_is_replayed_by_the_function,
    start_paused = false
);
async fn what_was_done_here_is_replayed_by_the_function(server: Server) {
    let shared = Shared::on(&server).await;
    let mut function = shared.function().await;
    let whole = json!({"receipt": "é😀", "n": [1, 0.1]});
    // A result that is false in Python is `None` there, as one of its own is.
    for (order, result, seen) in [
        ("o-1", whole.clone(), whole),
        ("o-2", json!(null), json!(null)),
        ("o-3", json!(0), json!(null)),
        ("o-4", json!([]), json!(null)),
    ] {
        let handler = |_| async { Ok::<_, HandlerError>(result.clone()) };
        shared
            .engine()
            .run(charge(order), None, handler)
            .await
            .unwrap();
        assert_eq!(function.charge(order).await, Called::Returned(seen));
    }
}

on_each_server!(
    while_the_function_runs_nothing_runs_here,
    start_paused = false
);
async fn while_the_function_runs_nothing_runs_here(server: Server) {
    let shared = Shared::on(&server).await;
    let mut function = shared.function().await;
    assert_eq!(function.charge("o-1").await, Called::Running);

    let handler = |_| async { Err::<String, _>(HandlerError::other("it ran")) };
    let refused = shared
        .engine()
        .run(charge("o-1"), None, handler)
        .await
        .unwrap_err();
    // The 60 s that its invocation had, and the margin for its clock.
    let Error::InFlight { lease, .. } = refused else {
        panic!("{refused}")
    };
    assert!((30..=61).contains(&lease.as_secs()), "{lease:?}");

    function.return_(json!("receipt")).await;
    let replayed = shared
        .engine()
        .run(charge("o-1"), None, handler)
        .await
        .unwrap();
    assert_eq!(replayed.into_inner(), "receipt");
}

on_each_server!(
    while_it_runs_here_the_function_does_not,
    start_paused = false
);
async fn while_it_runs_here_the_function_does_not(server: Server) {
    let shared = Shared::on(&server).await;
    let mut function = shared.function().await;
    let once = shared.engine();
    let meanwhile = once.run(charge("o-1"), None, |_| async {
        assert_eq!(function.charge("o-1").await, raised(IN_PROGRESS));
        Ok::<_, HandlerError>("receipt".to_owned())
    });
    meanwhile.await.unwrap();
    assert_eq!(
        function.charge("o-1").await,
        Called::Returned(json!("receipt"))
    );
}

on_each_server!(
    a_record_of_the_function_that_has_expired_is_fresh_here,
    start_paused = false
);
async fn a_record_of_the_function_that_has_expired_is_fresh_here(server: Server) {
    let shared = Shared::on(&server).await;
    let once =
        shared.engine_with(|once| once.settings(|settings| settings.skew_margin = Duration::ZERO));
    let mut function = shared
        .function()
        .await
        .with("config", json!({"expires_after_seconds": 1}));
    function.run("o-1", json!("old")).await;
    after(1_000).await;
    let again = once.run(charge("o-1"), None, |claim| async move {
        Ok::<_, HandlerError>(claim.attempt())
    });
    assert_eq!(again.await.unwrap().into_inner(), 1);
}

on_each_server!(
    a_record_from_here_that_has_expired_is_fresh_to_the_function,
    start_paused = false
);
async fn a_record_from_here_that_has_expired_is_fresh_to_the_function(server: Server) {
    let shared = Shared::on(&server).await;
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

on_each_server!(what_failed_in_the_function_runs_here, start_paused = false);
async fn what_failed_in_the_function_runs_here(server: Server) {
    let shared = Shared::on(&server).await;
    let mut function = shared.function().await;
    function.charge("o-1").await;
    assert_eq!(function.raise().await, raised("RuntimeError"));
    let once = shared.engine();
    let ran = once.run(charge("o-1"), None, |_| async {
        Ok::<_, HandlerError>("here".to_owned())
    });
    assert!(!ran.await.unwrap().is_replayed());
}

on_each_server!(what_failed_here_runs_in_the_function, start_paused = false);
async fn what_failed_here_runs_in_the_function(server: Server) {
    let shared = Shared::on(&server).await;
    let failing = |_| async { Err::<String, _>(HandlerError::other("card declined")) };
    shared
        .engine()
        .run(charge("o-1"), None, failing)
        .await
        .unwrap_err();
    // A lease of zero: to the function, a claim that ran out long ago.
    shared.function().await.run("o-1", json!("there")).await;
    let replayed = shared
        .engine()
        .run(charge("o-1"), None, failing)
        .await
        .unwrap();
    assert_eq!(replayed.into_inner(), "there");
}
