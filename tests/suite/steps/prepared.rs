//! Steps whose handler says when the effect fires: an attempt that dies before leaves nothing that an operator must look at.

use super::*;

fn step() -> Step<Provider> {
    Step::named("charge").on_crash(OnCrash::Interrupt)
}

/// An attempt that dies before or behind the word that the effect fires.
async fn die(bench: &Bench, has_fired: bool) {
    let attempt = bench.run(|claim| async move {
        let effect = async |step: PreparedStep<Provider>| {
            if has_fired {
                step.firing().await?;
                bench.effect().await?;
            }
            std::future::pending::<Result<usize>>().await
        };
        claim.prepared_step(step(), effect).await
    });
    kill(attempt).await;
    bench.clock.advance(LEASE * 2);
}

async fn fires(bench: &Bench) -> std::result::Result<Outcome<usize>, Error<StepError<Provider>>> {
    let attempt = bench.run(|claim| async move {
        let effect = async |step: PreparedStep<Provider>| {
            step.firing().await?;
            Ok(bench.effect().await?)
        };
        claim.prepared_step(step(), effect).await
    });
    attempt.await
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_dies_before_its_effect_fires_is_repeated_and_one_that_dies_behind_waits() {
    for has_fired in [false, true] {
        let bench = bench();
        die(&bench, has_fired).await;
        let next = fires(&bench).await;
        if has_fired {
            assert_matches!(next, Err(Error::Interrupted { .. }));
        } else {
            assert_matches!(next, Ok(Outcome::Executed(1)));
        }
        assert_eq!(bench.fired(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_prepared_step_that_is_confirmed_is_not_prepared_again() {
    let bench = &bench();
    let failed = bench.run(|claim| async move {
        let effect = async |step: PreparedStep<Provider>| {
            step.firing().await?;
            step.firing().await?;
            Ok(bench.effect().await?)
        };
        claim.prepared_step(step(), effect).await?;
        Err::<usize, _>(StepError::Effect(Provider::TimedOut))
    });
    failed.await.unwrap_err();
    let next = bench.run(|claim| async move {
        let never = async |_: PreparedStep<Provider>| panic!("it is confirmed");
        claim.prepared_step(step(), never).await
    });
    assert_eq!(next.await.unwrap(), Outcome::Executed(1));
}

#[tokio::test(start_paused = true)]
async fn what_fails_before_the_effect_leaves_no_note_and_what_fails_behind_it_one() {
    for has_fired in [false, true] {
        let bench = &bench();
        let failed = bench.run(|claim| async move {
            let effect = async |step: PreparedStep<Provider>| {
                if has_fired {
                    step.firing().await?;
                }
                Err::<usize, _>(Provider::Declined.into())
            };
            claim.prepared_step(step(), effect).await
        });
        let error = failed.await.unwrap_err();
        assert_matches!(error, Error::Handler(StepError::Effect(Provider::Declined)));
        let noted = bench.record().await.journal.get("charge").cloned();
        let noted = noted.map(|entry| entry.state);
        assert_eq!(noted, has_fired.then_some(StepState::Failed));
        assert_matches!(fires(bench).await, Ok(Outcome::Executed(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_does_not_fire_for_an_attempt_that_was_taken_over() {
    let bench = &bench();
    let late = bench.run(|claim| async move {
        let effect = async |step: PreparedStep<Provider>| {
            bench.clock.advance(LEASE * 2);
            assert_matches!(fires(bench).await, Ok(Outcome::Executed(1)));
            step.firing().await?;
            Ok(bench.effect().await?)
        };
        claim.prepared_step(step(), effect).await
    });
    late.await.unwrap_err();
    assert_eq!(bench.fired(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_used_and_one_that_was_used_are_refused() {
    let bench = &bench();
    let run = bench.run(|claim| async move {
        let effect = async |_: PreparedStep<Provider>| Ok(1);
        let odd = claim.prepared_step("a/b", effect).await;
        assert_matches!(odd, Err(StepError::Name { .. }));
        claim.prepared_step("charge", effect).await?;
        let twice = claim.prepared_step("charge", effect).await;
        assert_matches!(twice, Err(StepError::Repeated { .. }));
        Ok(1)
    });
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn steps_that_are_prepared_side_by_side_are_no_more_than_the_journal_takes() {
    let bench = &bench();
    let gate = &tokio::sync::Semaphore::new(0);
    let run = bench.run(|claim| async move {
        let steps = (0..51).map(|number| {
            let claim = claim.clone();
            async move {
                let effect = async |step: PreparedStep<Provider>| {
                    let _ = gate.acquire().await;
                    step.firing().await?;
                    Ok(1_usize)
                };
                let prepared = claim.prepared_step(format!("step-{number}"), effect);
                let done = prepared.await;
                if matches!(done, Err(StepError::Full { .. })) {
                    gate.add_permits(51);
                }
                done
            }
        });
        let done = futures_util::future::join_all(steps).await;
        let (done, full): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
        // Each may have the largest result.
        assert_eq!((done.len(), full.len()), (15, 36));
        Ok(done.len())
    });
    let ended = tokio::time::timeout(LEASE, Box::pin(run)).await;
    assert_eq!(ended.unwrap().unwrap(), Outcome::Executed(15));
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_was_spawned_does_not_fire_behind_its_dropped_run() {
    let bench = bench();
    let kept = std::sync::Mutex::new(None);
    let attempt = bench.run(|claim| {
        let kept = &kept;
        async move {
            let effect = async |step: PreparedStep<Provider>| {
                *kept.lock().unwrap() = Some(step);
                std::future::pending::<Result<usize>>().await
            };
            claim.prepared_step(step(), effect).await
        }
    });
    let dropped = tokio::time::timeout(LEASE / 2, attempt).await;
    dropped.unwrap_err();
    let prepared = kept.lock().unwrap().take().unwrap();
    let told = prepared.firing().await;
    assert_matches!(told, Err(StepError::LeaseLost));
}
