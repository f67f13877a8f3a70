//! Requests that meet one another.

use super::*;
use crate::secrets::Log;

#[tokio::test(start_paused = true)]
async fn of_64_requests_at_once_one_runs() {
    let bench = bench();
    let runs = AtomicUsize::new(0);
    let requests = (0..64).map(|_| {
        bench.once.run(key(), payload(), |_| async {
            runs.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(1)
        })
    });
    let outcomes = join_all(requests).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let refused = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Err(Error::InFlight { .. })));
    assert_eq!(refused.count(), 63);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_duplicate_leaves_time_for_its_last_look_and_its_own_reply() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_mins(1))));
    bench.crash().await;
    let soon = bench.clock.now() + Duration::from_millis(800);
    let before = Instant::now();
    let waiting = bench.once.deadline(soon.into());
    let refused = attempt(&waiting, key()).await;
    assert_matches!(refused, Err(Error::InFlight { .. }));
    assert_eq!(before.elapsed(), Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_duplicate_changes_nothing() {
    let bench = bench();
    bench.crash().await;
    let in_progress = bench.found().await;
    bench.run(1).await.unwrap_err();
    assert_matches!(bench.other().await, Err(Error::Mismatch));
    assert_eq!(bench.found().await, in_progress);

    bench.clock.advance(LEASE + MARGIN);
    bench.run(1).await.unwrap();
    let completed = bench.found().await;
    bench.run(2).await.unwrap();
    assert_eq!(bench.found().await, completed);
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_refusal_has_the_attempt_that_was_met_its_age_and_its_lease() {
    let bench = bench();
    bench.crash().await;
    bench.clock.advance(Duration::from_secs(7));
    let (log, _capture) = Log::capture();
    bench.run(1).await.unwrap_err();
    let log = log.text();
    let line = log.lines().find(|line| line.contains("in_flight")).unwrap();
    let lease_ms = (LEASE + MARGIN).as_millis() - 7_000;
    for field in ["attempt=1", "age_ms=7000", &format!("lease_ms={lease_ms}")] {
        assert!(line.contains(field), "{field}: {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_limit_is_no_panic() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::MAX)));
    assert_eq!(value(bench.run(1).await), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_duplicate_gets_the_outcome() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_secs(5))));
    let first = bench.once.run(key(), payload(), |_| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok::<_, Infallible>(1)
    });
    let (first, second) = tokio::join!(first, bench.run(2));
    assert_eq!(value(first), 1);
    assert!(second.unwrap().is_replayed());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_duplicate_runs_when_the_first_fails() {
    let bench = bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_secs(5))));
    let first = bench.once.run(key(), payload(), |_| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Err::<i32, _>(HandlerError::other("down"))
    });
    let (first, second) = tokio::join!(first, bench.run(2));
    first.unwrap_err();
    assert_eq!(second.unwrap(), Outcome::Executed(2));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_duplicate_gives_up_at_its_limit() {
    let bench =
        bench_with(|builder| builder.in_flight(InFlight::WaitUpTo(Duration::from_millis(60))));
    bench.crash().await;
    let before = Instant::now();
    assert_matches!(bench.run(1).await, Err(Error::InFlight { .. }));
    assert!(before.elapsed() >= Duration::from_millis(60));
}
