//! Attempts that are cut off or outlive their lease, and those that take over.

use super::*;
use crate::secrets::Log;

#[tokio::test(start_paused = true)]
async fn an_attempt_cut_off_holds_its_lease_and_is_then_taken_over() {
    let bench = bench();
    bench.crash().await;
    let Err(Error::InFlight { retry_after, lease }) = bench.run(1).await else {
        panic!("in flight")
    };
    assert_eq!(lease, LEASE + MARGIN);
    assert_eq!(
        retry_after,
        Duration::from_secs(30),
        "it may be done before"
    );

    bench.clock.advance(
        (LEASE + MARGIN)
            .checked_sub(Duration::from_millis(1))
            .unwrap(),
    );
    assert_matches!(bench.run(1).await, Err(Error::InFlight { .. }));
    bench.clock.advance(Duration::from_millis(1));
    let (log, _capture) = Log::capture();
    assert_eq!(value(attempt(&bench.once, key()).await), 2);
    // At a level that functions log at, unlike an ordinary claim.
    let log = log.text();
    let line = log.lines().find(|line| line.contains("\"taken_over\""));
    assert!(line.is_some_and(|line| line.contains(" INFO ")), "{log}");
}

#[tokio::test(start_paused = true)]
async fn attempts_that_keep_crashing_are_exhausted() {
    let bench = bench_with(|builder| builder.max_attempts(NonZeroU32::new(2).unwrap()));
    for _ in 0..2 {
        bench.crash().await;
        bench.clock.advance(LEASE + MARGIN);
    }
    assert_matches!(bench.run(1).await, Err(Error::Exhausted { attempts: 2 }));
}

#[tokio::test(start_paused = true)]
async fn a_stale_handler_gets_its_successors_outcome_and_stores_nothing() {
    let bench = bench();
    let stale = bench.once.run(key(), payload(), |_| async {
        bench.clock.advance(LEASE + MARGIN);
        assert_eq!(value(bench.run(2).await), 2);
        Ok::<_, Infallible>(1)
    });
    let outcome = stale.await.unwrap();
    assert!(outcome.is_replayed());
    assert_eq!(outcome.into_inner(), 2);
    assert_eq!(value(bench.run(3).await), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stale_handler_whose_successor_is_at_work_has_lost_its_lease() {
    let bench = bench();
    let stale = bench.once.run(key(), payload(), |_| async {
        bench.clock.advance(LEASE + MARGIN);
        bench.crash().await;
        Ok::<_, Infallible>(1)
    });
    assert_matches!(stale.await, Err(Error::LeaseLost));
    let record = bench.record().await;
    assert_eq!((record.status, record.attempt), (Status::InProgress, 2));
}

#[tokio::test(start_paused = true)]
async fn a_stale_failure_does_not_release_its_successor() {
    let bench = bench();
    let stale = bench.once.run(key(), payload(), |_| async {
        bench.clock.advance(LEASE + MARGIN);
        bench.crash().await;
        Err::<i32, _>(HandlerError::other("late"))
    });
    stale.await.unwrap_err();
    assert!(!bench.record().await.is_released());
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_until_the_lambda_deadline_plus_the_margin() {
    let bench = bench();
    let deadline = bench.clock.now() + Duration::from_secs(5);
    let once = bench.once.deadline(deadline.into());
    let run = once.run(key(), payload(), |claim| {
        assert_eq!(claim.deadline(), Some(deadline.into()));
        assert_eq!(claim.remaining(), Some(Duration::from_secs(5)));
        async { Ok::<_, Infallible>(bench.record().await.lease.unwrap()) }
            .map(|lease| lease.map(|lease| lease.0))
    });
    assert_eq!(value(run.await), (deadline + MARGIN).0);
}

#[tokio::test(start_paused = true)]
async fn with_no_time_left_the_handler_does_not_run_and_the_key_is_free() {
    let bench = bench();
    let past = bench.clock.now() + Duration::from_secs(5);
    bench.clock.advance(Duration::from_secs(30));
    let once = bench.once.deadline(past.into());
    let late = attempt(&once, key()).await;
    assert_matches!(late, Err(Error::TooLate));
    let record = bench.record().await;
    assert!(
        record.is_released(),
        "its claim had a lease, and was released"
    );
    assert_eq!(value(bench.run(2).await), 2);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_answered_when_its_time_is_over_gives_no_run() {
    let bench = bench();
    let second = Duration::from_secs(1);
    let late = Fault::ReplyDelayed(second);
    bench.store.inject(Call::Create, late);
    let meanwhile = async {
        tokio::time::sleep(second / 2).await;
        bench.clock.advance(LEASE);
    };
    let (begun, ()) = tokio::join!(bench.once.begin(key(), payload()), meanwhile);
    assert_matches!(begun, Err(Error::TooLate));
    assert!(bench.record().await.is_released());
}

#[tokio::test(start_paused = true)]
async fn a_record_in_progress_never_expires_before_its_lease() {
    let bench = bench_with(|builder| builder.retention(Duration::from_secs(1)));
    bench.crash().await;
    let record = bench.record().await;
    assert!(record.expiration.to_millis() >= record.lease.unwrap() + MARGIN);
}

#[tokio::test(start_paused = true)]
async fn derived_keys_are_equal_in_every_attempt_and_differ_by_effect() {
    let bench = bench();
    let keys = || async {
        let run = bench.once.run(key(), payload(), |claim| async move {
            Err::<(), _>(HandlerError::other(format!(
                "{} {}",
                claim.derive_key("stripe"),
                claim.derive_key("mail")
            )))
        });
        match run.await {
            Err(Error::Handler(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let first = keys().await;
    assert_eq!(first, keys().await);
    let (stripe, mail) = first.split_once(' ').unwrap();
    assert_ne!(stripe, mail);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_attempt_runs_again_when_its_pause_is_over_and_not_before() {
    const PAUSE: Duration = Duration::from_hours(1);
    const LEAST: Duration = Duration::from_millis(1);
    let bench = bench_with(|builder| builder.on_crash(OnCrash::RunAgainAfter(PAUSE)));
    let early = async |left: Duration| {
        let run = bench.run(0).await;
        assert_matches!(
            run,
            Err(Error::InFlight { lease, .. }) if lease == left,
            "not in {left:?}"
        );
    };
    bench.crash().await;
    let kept = LEASE + MARGIN + PAUSE + Duration::from_hours(7 * 24);
    let kept = (bench.clock.now() + kept).ceil_seconds();
    assert_eq!(bench.record().await.expiration, kept);
    early(LEASE + MARGIN).await;
    bench.clock.advance(LEASE + MARGIN);
    early(PAUSE).await;
    bench.clock.advance(PAUSE.checked_sub(LEAST).unwrap());
    early(LEAST).await;
    bench.clock.advance(LEAST);
    // A panic waits, too, and a failure doesn't.
    let panicking = bench.once.run(key(), payload(), |claim| async move {
        assert_eq!(claim.attempt(), 1, "on purpose: it is the second");
        Ok::<i32, Infallible>(1)
    });
    let panicked = AssertUnwindSafe(panicking).catch_unwind().await;
    assert!(panicked.is_err());
    bench.clock.advance(LEASE + MARGIN);
    early(PAUSE).await;
    bench.clock.advance(PAUSE);
    bench.fails().await;
    assert_eq!(value(attempt(&bench.once, key()).await), 4);
}
