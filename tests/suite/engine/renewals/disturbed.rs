//! Renewals beside late writes, a drain, a long step, and clocks that are put back or forward.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_late_changes_neither_a_successors_claim_nor_an_outcome() {
    for fails in [true, false] {
        let bench = &Bench::new();
        bench.store.inject(Call::Renew, Fault::Delayed(2 * TICK));
        let attempt = bench.once.run(key(), payload(), |_| async {
            tokio::time::sleep(TICK * 11 / 10).await;
            if fails {
                Err(HandlerError::other("no"))
            } else {
                Ok(1)
            }
        });
        assert_eq!(attempt.await.is_err(), fails);
        let next = Idempotency::builder(bench.store.clone())
            .namespace("engine")
            .lease(TICK)
            .clock(bench.clock.clone());
        let next = next.build().unwrap().begin(key(), payload()).await.unwrap();
        assert_eq!(matches!(next, Begun::Run(_)), fails);
        let record = bench.record().await;
        // The renewal arrives before the read.
        tokio::time::sleep(2 * TICK).await;
        assert_eq!(bench.record().await, record);
        assert_eq!(bench.store.met()[&(Call::Renew, "delayed")], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_draining_leaves_is_renewed_until_it_ends() {
    let bench = &Bench::new();
    let once = bench.once.clone();
    let run = tokio::spawn(async move {
        let slow = |_| async {
            tokio::time::sleep(LONGEST / 2).await;
            Ok::<_, Infallible>(1)
        };
        once.run_detached(key(), payload(), slow).await
    });
    tokio::task::yield_now().await;
    assert_eq!(bench.once.drain(2 * RENEWED).await, 1);
    in_flight_for(bench.elsewhere().await);
    let left = bench.left().await;
    assert!(
        left <= RENEWED && left + TICK + MARGIN > RENEWED,
        "{left:?}"
    );

    assert_eq!(bench.once.drain(LONGEST).await, 0);
    assert_eq!(run.await.unwrap().unwrap().into_inner(), 1);
    assert_eq!(bench.elsewhere().await.unwrap(), 1, "a replay");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_outlives_the_first_lease_is_confirmed_under_the_renewed_one() {
    let bench = &Bench::new();
    let run = bench.run(|claim| async move {
        let effect = |_| async {
            tokio::time::sleep(3 * RENEWED).await;
            in_flight_for(bench.elsewhere().await);
            Ok::<_, HandlerError>(7)
        };
        claim.step("charge", effect).await.unwrap()
    });
    assert_eq!(run.await.unwrap(), 7);
    assert_eq!(bench.elsewhere().await.unwrap(), 7, "a replay");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_put_back_or_forward_costs_no_outcome() {
    // A minute is longer than the lease: the handler waits for the next renewal.
    for step in [-3_600_000, -5_000, 5_000, 60_000] {
        let bench = &Bench::new();
        let run = bench.run(|claim| async move {
            bench.clock.step.store(step, Ordering::SeqCst);
            tokio::time::sleep(2 * RENEWED).await;
            assert!(!claim.is_over());
            1
        });
        assert_eq!(run.await.unwrap(), 1, "{step}");
        assert_eq!(bench.elsewhere().await.unwrap(), 1, "{step}: a replay");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_put_back_before_the_work_delays_no_renewal() {
    let bench =
        &Bench::with(|once| once.settings(|settings| settings.at_deadline = AtDeadline::GoOn));
    let deadline = bench.clock.now() + 2 * RENEWED;
    let once = bench.once.deadline(deadline.into());
    let Begun::Run(run) = once.begin(key(), payload()).await.unwrap() else {
        panic!("it is new");
    };
    bench.clock.step.store(-3_600_000, Ordering::SeqCst);
    let work = tokio::time::sleep(RENEWED + 5 * TICK / 2);
    run.while_renewed(Box::pin(work)).await.unwrap();
    let lease = bench.record().await.lease.unwrap();
    assert!(lease > deadline + MARGIN, "{lease:?}");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_put_back_while_the_claim_is_on_its_way_makes_no_lease_longer() {
    let bench = &Bench::new();
    bench
        .store
        .inject(Call::Create, Fault::ReplyDelayed(TICK / 2));
    let right = Paused {
        step: Arc::default(),
        ..bench.clock.clone()
    };
    let elsewhere = bench.another().clock(right).build().unwrap();
    let run = bench.run(|claim| async move {
        tokio::time::sleep(2 * RENEWED).await;
        assert!(!claim.is_over());
        1
    });
    let disturbing = async {
        tokio::time::sleep(TICK / 4).await;
        bench.clock.step.store(-3_600_000, Ordering::SeqCst);
        tokio::time::sleep(RENEWED + 2 * MARGIN).await;
        let second = elsewhere.run(key(), payload(), async |_| Ok::<_, HandlerError>(2));
        in_flight_for(second.await.map(Outcome::into_inner));
    };
    let (run, ()) = tokio::join!(run, disturbing);
    assert_eq!(run.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_put_forward_beyond_the_longest_duration_ends_the_handler() {
    let bench = &Bench::new();
    let run = bench.run(|_| async {
        bench.clock.step.store(3_600_000, Ordering::SeqCst);
        std::future::pending::<i32>().await
    });
    assert_matches!(run.await, Err(Error::TimedOut));
    assert_eq!(bench.elsewhere().await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_and_a_duration_without_end_overflow_nothing() {
    let endless = |once: Builder| {
        let once = once
            .renewed_lease(Duration::MAX)
            .settings(|settings| settings.max_duration = Duration::MAX);
        once.retention(Duration::MAX)
    };
    let bench = &Bench::with(endless);
    let run = bench.run(|claim| async move {
        tokio::time::sleep(LONGEST).await;
        assert!(!claim.is_over());
        in_flight_for(bench.elsewhere().await);
        1
    });
    assert_eq!(run.await.unwrap(), 1);
    assert_eq!(bench.elsewhere().await.unwrap(), 1, "a replay");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_put_back_and_right_again_costs_no_lease() {
    let bench = &Bench::new();
    let run = bench.run(|_| async {
        bench.clock.step.store(-3_600_000, Ordering::SeqCst);
        tokio::time::sleep(TICK * 3 / 2).await;
        bench.clock.step.store(0, Ordering::SeqCst);
        tokio::time::sleep(RENEWED).await;
        in_flight_for(bench.elsewhere().await);
        1
    });
    assert_eq!(run.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn where_a_clock_is_put_back_a_lease_lasts_as_long_as_by_the_right_clock_of_another() {
    for is_renewed in [true, false] {
        let bench = &Bench::new();
        if !is_renewed {
            for _ in 0..100 {
                bench.store.inject(Call::Renew, Fault::Delayed(LONGEST));
            }
        }
        let right = Paused {
            step: Arc::default(),
            ..bench.clock.clone()
        };
        let elsewhere = bench.another().clock(right).build().unwrap();
        let run = bench.run(|claim| async move {
            bench.clock.step.store(-3_600_000, Ordering::SeqCst);
            tokio::time::sleep(2 * RENEWED).await;
            assert!(!claim.is_over());
            1
        });
        let looking = async {
            tokio::time::sleep(RENEWED + 2 * MARGIN).await;
            attempt(&elsewhere, key()).await
        };
        let (run, looked) = tokio::join!(run, looking);
        if is_renewed {
            assert_eq!(run.unwrap(), 1);
            assert_matches!(looked, Err(Error::InFlight { .. }));
        } else {
            assert_matches!(run, Err(Error::TimedOut));
            assert_eq!(looked.unwrap(), Outcome::Executed(2));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_put_back_before_a_claim_meets_itself_makes_its_lease_no_longer() {
    let bench = &Bench::new();
    for fault in [Fault::Throttled, Fault::Resent] {
        bench.store.inject(Call::Create, fault);
    }
    for _ in 0..100 {
        bench.store.inject(Call::Renew, Fault::Delayed(LONGEST));
    }
    let run = bench.run(|_| async {
        tokio::time::sleep(2 * RENEWED).await;
        1
    });
    // Between the two sends.
    let disturbing = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        bench.clock.step.store(-3_600_000, Ordering::SeqCst);
    };
    let (run, ()) = tokio::join!(run, disturbing);
    assert_matches!(run, Err(Error::TimedOut));
}
