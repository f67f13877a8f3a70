//! A handler that still runs at the deadline of its invocation: it goes on under a lease that is renewed, or is ended.

use lambda_idempotency::AtDeadline;

use super::*;
use crate::support::alone;

/// The time that an invocation has, and that its handler takes.
const TIME: Duration = Duration::from_secs(2);
const WORK: Duration = Duration::from_secs(5);

/// The longest lease after a deadline.
const BEYOND: Duration = Duration::from_mins(1);

fn bench(policy: AtDeadline) -> Bench {
    bench_with(|once| once.settings(|settings| settings.at_deadline = policy))
}

/// An engine without a renewed lease.
fn bench_with(settings: impl FnOnce(Builder) -> Builder) -> Bench {
    let mut bench = Bench::new();
    bench.once = settings(bench.another()).build().unwrap();
    bench
}

impl Bench {
    /// The engine of an invocation that begins now.
    fn invocation(&self) -> Idempotency {
        self.once.deadline((self.clock.now() + TIME).into())
    }

    /// Runs the slow handler in such an invocation.
    async fn slow(&self, effects: &AtomicU32) -> Result<Outcome<u32>, Error<HandlerError>> {
        let handler = |_| slow(effects);
        self.invocation().run(key(), payload(), handler).await
    }
}

/// A handler that takes its time, and then has its effect.
async fn slow(effects: &AtomicU32) -> Result<u32, HandlerError> {
    tokio::time::sleep(WORK).await;
    Ok(effects.fetch_add(1, Ordering::SeqCst) + 1)
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_outlives_its_deadline_has_its_effect_once() {
    // In this process, which is not in Lambda, by default.
    let bench = &bench_with(|once| once);
    let effects = &AtomicU32::new(0);
    let duplicate = async {
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        bench.slow(effects).await
    };
    let (first, duplicate) = tokio::join!(bench.slow(effects), duplicate);
    assert_eq!(first.unwrap().into_inner(), 1);
    assert_matches!(duplicate, Err(Error::InFlight { .. }));
    assert!(bench.slow(effects).await.unwrap().is_replayed());
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_ended_at_its_deadline_leaves_its_key_to_a_retry() {
    let bench = &bench(AtDeadline::End);
    let effects = &AtomicU32::new(0);
    let began = bench.clock.now();
    let run = bench.slow(effects);
    let ended = run.await.unwrap_err();
    assert_matches!(ended, Error::TimedOut);
    let took = bench.clock.now().saturating_since(began);
    assert!(took < TIME && took > TIME * 9 / 10, "{took:?}");
    assert_eq!(
        bench.record().await.last_error.as_deref(),
        Some("timed out")
    );
    assert_eq!(bench.elsewhere().await.unwrap(), 2, "it runs at once");
    assert_eq!(effects.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_behind_a_handler_that_panicked_does_not_hold_the_panic_up() {
    let bench = &bench(AtDeadline::End);
    bench.store.inject(Call::Release, Fault::Delayed(LONGEST));
    let panics = |_| async {
        // Shortly before it is ended.
        tokio::time::sleep(TIME * 15 / 16).await;
        panic!("injected")
    };
    let once = bench.invocation();
    let run = once.run::<(), HandlerError, _, _, _>(key(), payload(), panics);
    let told = tokio::time::timeout(TIME, AssertUnwindSafe(run).catch_unwind());
    assert!(told.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_ended_handler_waits_for_an_operator_where_the_policy_says_so() {
    let bench = &bench_with(|once| {
        once.settings(|settings| settings.at_deadline = AtDeadline::End)
            .on_crash(OnCrash::Interrupt)
    });
    let effects = &AtomicU32::new(0);
    let run = || bench.slow(effects);
    assert_matches!(run().await, Err(Error::TimedOut));
    assert_matches!(run().await, Err(Error::InFlight { .. }));
    tokio::time::sleep(TIME).await;
    assert_matches!(run().await, Err(Error::Interrupted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_after_the_deadline_blocks_its_key_for_a_minute_at_most() {
    let bench = &bench(AtDeadline::GoOn);
    let begun = crate::support::Begun::default();
    let once = bench.invocation();
    let attempt = once.run(key(), payload(), |_| async {
        tokio::time::sleep(5 * BEYOND).await;
        Ok::<_, HandlerError>(begun.then_never::<i32>().await)
    });
    begun.cut_off(attempt).await;
    let wait = in_flight_for(bench.elsewhere().await);
    assert!(wait <= BEYOND + MARGIN, "{wait:?}");
    tokio::time::sleep(wait).await;
    assert_eq!(bench.elsewhere().await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_for_the_longest_duration_after_the_deadline_and_no_longer() {
    let bench = &bench_with(|once| {
        once.settings(|settings| {
            settings.at_deadline = AtDeadline::GoOn;
            settings.max_duration = LONGEST;
        })
    });
    let deadline = bench.clock.now() + TIME;
    let once = bench.once.deadline(deadline.into());
    let seen = &OnceLock::new();
    let run = once.run(key(), payload(), |claim| {
        seen.set(claim).unwrap();
        std::future::pending::<Result<i32, HandlerError>>()
    });
    assert_matches!(run.await, Err(Error::TimedOut));
    let claim = seen.get().unwrap();
    assert_eq!(claim.deadline(), Some(deadline.into()));
    assert_eq!(claim.now(), deadline + LONGEST);
    assert_eq!(claim.remaining(), Some(Duration::ZERO));
    assert_eq!(claim.lease_end(), Some((deadline + LONGEST).into()));
    assert_eq!(bench.elsewhere().await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_done_long_before_its_deadline_is_never_renewed() {
    let bench = &bench(AtDeadline::GoOn);
    for time in [TIME, Duration::from_mins(15), Duration::from_mins(90)] {
        let once = bench.once.deadline((bench.clock.now() + time).into());
        let key = Key::new("charge", format!("{time:?}"));
        let lease = bench.clock.now() + time + MARGIN;
        let run = once.run(key.clone(), payload(), |_| async {
            tokio::time::sleep(time / 2).await;
            let id = bench.once.record_id(&key).unwrap();
            let found = bench.store.load(&id, Instant::now() + LEASE).await.unwrap();
            let record = found.unwrap().content.unwrap();
            assert_eq!(record.lease, Some(lease));
            Ok::<_, HandlerError>(1)
        });
        assert_eq!(run.await.unwrap().into_inner(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_renewal_before_the_deadline_is_sent_again() {
    let bench = &bench(AtDeadline::GoOn);
    bench.store.inject(Call::Renew, Fault::RequestLost);
    bench.store.inject(Call::Renew, Fault::ReplyLost);
    let effects = &AtomicU32::new(0);
    let run = bench.slow(effects);
    let looking = async {
        tokio::time::sleep(TIME + MARGIN).await;
        in_flight_for(bench.elsewhere().await);
    };
    let (run, ()) = tokio::join!(run, looking);
    assert_eq!(run.unwrap().into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_before_the_deadline_that_has_no_answer_in_time_is_sent_again() {
    let bench = &bench(AtDeadline::GoOn);
    bench.store.inject(Call::Renew, Fault::Delayed(LONGEST));
    let effects = &AtomicU32::new(0);
    let duplicate = async {
        tokio::time::sleep(TIME + MARGIN).await;
        bench.slow(effects).await
    };
    let (first, duplicate) = tokio::join!(bench.slow(effects), duplicate);
    assert_matches!(duplicate, Err(Error::InFlight { .. }));
    assert_eq!(first.unwrap().into_inner(), 1);
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_lease_ends_unrenewed_is_ended_before_another_may_begin() {
    let (log, _capture) = Log::capture();
    let bench = &bench(AtDeadline::GoOn);
    for _ in 0..100 {
        bench.store.inject(Call::Renew, Fault::RequestLost);
    }
    let effects = &AtomicU32::new(0);
    let began = bench.clock.now();
    let ended = bench.slow(effects).await;
    assert_matches!(ended, Err(Error::TimedOut));
    let took = bench.clock.now().saturating_since(began);
    assert!(took >= TIME && took < TIME + MARGIN, "{took:?}");
    assert_eq!(bench.elsewhere().await.unwrap(), 2);
    assert_eq!(effects.load(Ordering::SeqCst), 0);
    for event in ["renewal_failed", "timed_out"] {
        assert!(log.text().contains(event), "{event}");
    }
}

#[tokio::test(start_paused = true)]
async fn beside_a_handler_that_blocks_the_thread_none_has_an_effect_beyond_its_lease() {
    for (policy, is_taken_over) in [
        (AtDeadline::GoOn, true),
        (AtDeadline::GoOn, false),
        (AtDeadline::End, true),
        (AtDeadline::End, false),
    ] {
        let (log, _capture) = Log::capture();
        let bench = &bench(policy);
        let effects = &AtomicU32::new(0);
        let once = bench.invocation();
        let neighbour = once.run(key(), payload(), |_| async {
            tokio::time::sleep(TIME * 3 / 4).await;
            Ok::<_, HandlerError>(effects.fetch_add(1, Ordering::SeqCst) + 1)
        });
        let blocking = async {
            tokio::time::sleep(TIME / 2).await;
            tokio::time::advance(TIME * 2).now_or_never();
            if is_taken_over {
                let elsewhere = bench.elsewhere().now_or_never();
                assert_eq!(elsewhere.unwrap().unwrap(), 2);
            }
        };
        let (ended, ()) = tokio::join!(neighbour, blocking);
        let logged = match (policy, is_taken_over) {
            (AtDeadline::GoOn, false) => {
                assert_eq!(ended.unwrap().into_inner(), 1);
                "renewal_late"
            }
            (AtDeadline::GoOn, true) => {
                assert_matches!(ended, Err(Error::LeaseLost));
                "lease_lost"
            }
            _ => {
                assert_matches!(ended, Err(Error::TimedOut));
                "timed_out"
            }
        };
        assert!(log.text().contains(logged), "{logged}: {}", log.text());
        let expected = u32::from(logged == "renewal_late");
        assert_eq!(effects.load(Ordering::SeqCst), expected, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_returns_after_its_deadline_is_logged_once() {
    let (log, _capture) = Log::capture();
    let bench = &bench(AtDeadline::GoOn);
    let effects = &AtomicU32::new(0);
    let late = bench.slow(effects);
    assert_eq!(late.await.unwrap().into_inner(), 1);
    let once = bench.invocation();
    let early = once.run(Key::new("charge", "order-2"), None, |_| async {
        Ok::<_, HandlerError>(1)
    });
    assert_eq!(early.await.unwrap().into_inner(), 1);
    let text = log.text();
    let logged: Vec<_> = text
        .lines()
        .filter(|line| line.contains("deadline_outlived"))
        .collect();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(
        logged[0].contains("WARN") && logged[0].contains("late_ms=3000"),
        "{logged:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_returns_in_the_very_millisecond_of_its_deadline_is_late() {
    for (time, is_late) in [
        (TIME.saturating_sub(Duration::from_millis(1)), false),
        (TIME, true),
    ] {
        let (log, _capture) = Log::capture();
        let bench = &bench(AtDeadline::GoOn);
        let once = bench.invocation();
        let run = once.run(key(), payload(), |_| async {
            tokio::time::sleep(time).await;
            Ok::<_, HandlerError>(1)
        });
        assert_eq!(run.await.unwrap().into_inner(), 1);
        let logged = log.text().contains("deadline_outlived");
        assert_eq!(logged, is_late, "{time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_after_its_deadline_leaves_its_key_to_a_retry() {
    let bench = &bench(AtDeadline::GoOn);
    let once = bench.invocation();
    let run = once.run(key(), payload(), |_| async {
        tokio::time::sleep(WORK).await;
        Err::<i32, _>(HandlerError::other("no"))
    });
    assert_matches!(run.await, Err(Error::Handler(_)));
    assert_eq!(bench.elsewhere().await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_nothing_protects_is_not_ended() {
    for observed in [true, false] {
        let bench = &bench_with(|once| {
            let once = once.settings(|settings| settings.at_deadline = AtDeadline::End);
            if observed {
                once.observe(true)
            } else {
                once.disabled(true)
            }
        });
        let effects = &AtomicU32::new(0);
        let run = bench.slow(effects);
        assert_eq!(run.await.unwrap(), Outcome::Unprotected(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_outlives_its_caller_where_nothing_ends_with_the_deadline() {
    for policy in [AtDeadline::GoOn, AtDeadline::End] {
        let bench = &bench(policy);
        let effects = Arc::new(AtomicU32::new(0));
        let ran = Arc::clone(&effects);
        let once = bench.invocation();
        let run = once.run_detached(key(), payload(), |_| async move { slow(&ran).await });
        let gone = tokio::time::timeout(TIME / 2, run).await;
        assert!(gone.is_err(), "the caller is gone");
        assert_eq!(bench.once.drain(WORK).await, 0);
        let expected = u32::from(policy == AtDeadline::GoOn);
        assert_eq!(effects.load(Ordering::SeqCst), expected, "{policy:?}");
    }
}

const HOSTS: &str = concat!(
    module_path!(),
    "::the_default_follows_from_where_the_process_runs"
);

#[tokio::test(start_paused = true)]
async fn the_default_follows_from_where_the_process_runs() {
    if alone::child().is_some() {
        let (log, _capture) = Log::capture();
        let builder = Idempotency::builder(MemoryStore::new());
        let warned = log.text().matches(r#"event="concurrency_unknown""#).count();
        println!("\n{builder:?}\nwarned: {warned}");
        return;
    }
    let api = ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001");
    let several = |number| ("AWS_LAMBDA_MAX_CONCURRENCY", number);
    for (variables, policy, lease, warned) in [
        (&[][..], "GoOn", 900, 0),
        (&[api], "End", 900, 0),
        (&[api, several("8")], "GoOn", 5_400, 0),
        (&[api, several("1")], "GoOn", 5_400, 0),
        (&[api, several("many")], "GoOn", 5_400, 1),
        (&[api, several("")], "GoOn", 5_400, 1),
    ] {
        let output = alone::run(HOSTS, "default", variables);
        let printed = String::from_utf8(output.stdout).unwrap();
        for said in [
            format!("at_deadline: {policy}"),
            format!(" lease: {lease}s"),
            format!("warned: {warned}\n"),
        ] {
            assert!(printed.contains(&said), "{variables:?}: {said}: {printed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_ended_or_failed_handler_has_spawned_is_told_before_a_retry_runs() {
    for is_ended in [true, false] {
        let bench = &bench(AtDeadline::End);
        let kept = &OnceLock::new();
        let handler = |claim: Claim| async move {
            kept.set(claim).unwrap();
            if is_ended {
                std::future::pending::<()>().await;
            }
            Err::<u32, _>(HandlerError::other("down"))
        };
        match bench.invocation().run(key(), payload(), handler).await {
            Err(Error::TimedOut) => assert!(is_ended),
            Err(Error::Handler(_)) => assert!(!is_ended),
            other => panic!("{other:?}"),
        }
        let claim = kept.get().unwrap();
        assert!(claim.is_over());
        claim.over().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_superseded_handler_has_spawned_is_told() {
    let bench = &bench(AtDeadline::End);
    let kept = &OnceLock::new();
    let run = bench.once.run(key(), payload(), |claim| async {
        kept.set(claim).unwrap();
        // Another attempt takes over while the clock is put forward. Put back, it doesn't end this claim.
        bench.clock.step.store(3_600_000, Ordering::SeqCst);
        let elsewhere = bench.elsewhere().await;
        bench.clock.step.store(0, Ordering::SeqCst);
        elsewhere
    });
    assert!(run.await.unwrap().is_replayed());
    assert!(kept.get().unwrap().is_over());
}
