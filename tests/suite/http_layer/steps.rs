//! Steps of requests: a retry goes on where the last attempt ended, and an interrupted step is a conflict.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lambda_idempotency::{Claim, OnCrash, Step, StepError};

use super::api::{Api, Door, Failure, answer};
use crate::on_each_server;
use crate::support::Server;

on_each_server!(a_retry_repeats_no_confirmed_step);
async fn a_retry_repeats_no_confirmed_step(server: Server) {
    let charges = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&charges);
    let api = Api::new(&server, move |run, request: lambda_http::Request| {
        let charges = Arc::clone(&counter);
        async move {
            let claim = request.extensions().get::<Claim>().unwrap();
            let receipt = claim
                .step("charge", |_| async move {
                    Ok::<_, io::Error>(charges.fetch_add(1, Ordering::SeqCst) + 1)
                })
                .await?;
            // A server error releases the claim.
            Ok::<_, Failure>(answer(
                if run == 1 { 503 } else { 201 },
                format!("receipt {receipt}"),
            ))
        }
    })
    .await;
    let call = Door::Http.post("k-1").json("{}");
    assert_eq!(api.send(&call).await.status, 503);
    let created = api.send(&call).await;
    assert_eq!(
        (created.status.as_u16(), created.text()),
        (201, "receipt 1")
    );
    assert_eq!(charges.load(Ordering::SeqCst), 1);
}

on_each_server!(an_interrupted_step_is_a_conflict_that_no_retry_mends);
async fn an_interrupted_step_is_a_conflict_that_no_retry_mends(server: Server) {
    let api = Api::new(&server, |_, request: lambda_http::Request| async move {
        let claim = request.extensions().get::<Claim>().unwrap();
        let step = Step::named("charge")
            .on_crash(OnCrash::Interrupt)
            .unsure_after(|_| true);
        let never = || async { Err::<(), _>(io::Error::other("timed out")) };
        claim
            .step(step, |_| never())
            .await
            .map_err(|error| match error {
                StepError::Effect(error) => Failure::from(error),
                other => other.into(),
            })?;
        Ok::<_, Failure>(answer(201, "charged"))
    })
    .await;
    let call = Door::Http.post("k-1").json("{}");
    let failed = api.try_send(&call).await.unwrap_err();
    assert_eq!(failed.to_string(), "timed out");
    for _ in 0..2 {
        let refused = api.send(&call).await;
        refused.assert_problem(409, "interrupted");
        assert_eq!(refused.retry_after(), None);
    }
}

on_each_server!(a_saga_that_was_undone_is_a_failure_that_each_retry_gets);
async fn a_saga_that_was_undone_is_a_failure_that_each_retry_gets(server: Server) {
    // An error of the handler, and an answer that isn't kept.
    for answers in [false, true] {
        let checkout = move |_, request: lambda_http::Request| async move {
            let claim = request.extensions().get::<Claim>().unwrap();
            let mut saga = claim.saga()?.permanent(|_: &io::Error| true);
            let undo = |_, _: u32| async { Ok::<_, io::Error>(()) };
            let reserve = |_| async { Ok::<_, io::Error>(17) };
            saga.step("reserve", reserve, undo).await?;
            let declined = |_| async { Err::<u32, _>(io::Error::other("declined")) };
            match saga.step("charge", declined, undo).await {
                Err(_) if answers => Ok(answer(503, "declined")),
                Err(error) => Err(Failure::from(error)),
                Ok(_) => Ok(answer(201, "charged")),
            }
        };
        let api = Api::new(&server, checkout).await;
        let call = Door::Http.post("k-1").json("{}");
        match api.try_send(&call).await {
            Ok(first) => assert_eq!((first.status.as_u16(), answers), (503, true)),
            Err(error) => assert!(!answers && error.to_string().contains("undone: reserve")),
        }
        for _ in 0..2 {
            let refused = api.send(&call).await;
            refused.assert_problem(500, "failed");
            assert_eq!(refused.header("idempotency-status"), Some("final"));
            assert_eq!(refused.retry_after(), None);
        }
        assert_eq!(api.runs(), 1);
    }
}
