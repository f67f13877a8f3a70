//! Steps that may have happened, where an operator is to look.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_step_that_was_under_way_waits_for_an_operator_where_its_policy_says_so() {
    let bench = &bench();
    bench.die_in_the_step().await;
    for attempt in 2..4 {
        let stopped = bench.run(|claim| async move {
            assert_eq!(claim.attempt(), attempt);
            let step = Step::named("charge").on_crash(OnCrash::Interrupt);
            claim.step(step, |_| bench.effect()).await
        });
        let error = stopped.await.unwrap_err();
        assert_matches!(error, Error::Interrupted { .. });
    }
    assert_eq!(bench.fired(), 1);
    let record = bench.record().await;
    assert!(
        record.is_released(),
        "an operator's word is honoured at once"
    );
    assert!(record.fingerprint.is_some());
    assert_eq!(record.last_error.as_deref(), Some("interrupted step"));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_step_is_never_made_final_by_the_handlers_verdict() {
    let bench = &bench();
    bench.die_in_the_step().await;
    let handler = |claim: Claim| async move {
        let step = Step::named("charge").on_crash(OnCrash::Interrupt);
        claim.step(step, |_| bench.effect()).await
    };
    let stopped = bench
        .once
        .run_with(key(), payload(), handler, |_| Verdict::Fail)
        .await;
    assert_matches!(stopped, Err(Error::Interrupted { .. }));
    assert!(bench.record().await.is_released());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_releases_behind_an_interrupted_step_names_the_step_as_the_reason() {
    let bench = &bench();
    bench.die_in_the_step().await;
    let handler = |claim: Claim| async move {
        let step = Step::named("charge").on_crash(OnCrash::Interrupt);
        let stopped = claim.step(step, |_| bench.effect()).await;
        assert!(stopped.is_err());
        Ok::<_, Infallible>("500".to_owned())
    };
    let answered = bench
        .once
        .run_with(key(), payload(), handler, |_| Verdict::Release)
        .await;
    assert_matches!(answered, Ok(Outcome::Executed(_)));
    let record = bench.record().await;
    assert_eq!(record.last_error.as_deref(), Some("interrupted step"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_finds_out_by_itself_goes_on_after_an_interrupted_step() {
    let bench = &bench();
    bench.die_in_the_step().await;
    let outcome = bench.run(|claim| async move {
        let step = Step::named("charge").on_crash(OnCrash::Interrupt);
        match claim.step(step, |_| bench.effect()).await {
            Err(StepError::Interrupted { step, .. }) => {
                assert_eq!(step, "charge");
                Ok(41) // the provider's list of payments says that it happened
            }
            other => other,
        }
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Executed(41));
}

#[tokio::test(start_paused = true)]
async fn after_an_error_that_says_nothing_a_step_counts_as_interrupted_where_an_operator_is_to_look()
 {
    let bench = &bench();
    let step = || {
        Step::named("charge")
            .on_crash(OnCrash::Interrupt)
            .unsure_after(|error| *error == Provider::TimedOut)
    };
    let fails_with = |error: Provider| {
        bench.run(move |claim| async move {
            claim
                .step(step(), |_| async { Err::<usize, _>(error) })
                .await
        })
    };
    let declined = fails_with(Provider::Declined).await.unwrap_err();
    assert_matches!(
        declined,
        Error::Handler(StepError::Effect(Provider::Declined))
    );
    let entry = bench.record().await.journal.get("charge").cloned().unwrap();
    assert_eq!(entry.state, StepState::Failed);
    assert!(entry.last_error.unwrap().ends_with("Provider"), "its type");

    let timed_out = fails_with(Provider::TimedOut).await.unwrap_err();
    assert_matches!(
        timed_out,
        Error::Handler(StepError::Effect(Provider::TimedOut))
    );
    let stopped = fails_with(Provider::Declined).await.unwrap_err();
    assert_matches!(stopped, Error::Interrupted { .. });
    let entry = bench.record().await.journal.get("charge").cloned().unwrap();
    assert_eq!((entry.state, entry.tries), (StepState::Pending, 2));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_cut_off_inside_its_attempt_follows_its_policy() {
    let bench = &bench();
    let outcome = bench.run(|claim| async move {
        let forever = std::future::pending::<std::result::Result<usize, Provider>>;
        let cut = claim.step("charge", |_| forever());
        tokio::time::timeout(Duration::from_millis(5), cut)
            .await
            .expect_err("cut off");
        let step = Step::named("charge").on_crash(OnCrash::Interrupt);
        let stopped = claim.step(step, |_| bench.effect()).await;
        assert_matches!(stopped, Err(StepError::Interrupted { .. }));
        claim.step("charge", |_| bench.effect()).await
    });
    assert_eq!(outcome.await.unwrap(), Outcome::Executed(1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_succeeded_finds_no_step_interrupted() {
    let bench = &bench();
    bench.die_in_the_step().await;
    let stale = bench.run(|claim| async move {
        bench.clock.advance(LEASE * 2);
        bench.die_in_the_step().await;
        // A clock that goes wrong doesn't matter: the fence does.
        bench.clock.set(lambda_idempotency::EpochMillis(0));
        let log = claim.step("log", |_| bench.effect()).await;
        assert_matches!(log, Err(StepError::LeaseLost));
        let step = Step::named("charge").on_crash(OnCrash::Interrupt);
        claim.step(step, |_| bench.effect()).await
    });
    let error = stale.await.unwrap_err();
    assert_matches!(error, Error::LeaseLost);
}
