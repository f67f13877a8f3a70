//! Runs whose futures are dropped while their process lives on.

use std::ops::Deref;

use lambda_idempotency::{Begun, Disposition, OnStoreUnavailable, Run};

use super::*;
use crate::secrets::Log;
use crate::support::Begun as Started;
use crate::support::crash::drop_when;

/// Two engines on one table, as two processes have them.
struct Pair {
    bench: Bench,
    other: Idempotency,
}

impl Deref for Pair {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

fn pair(settings: impl Fn(Builder) -> Builder) -> Pair {
    let bench = bench_with(&settings);
    let other = settings(builder(&bench.store, &bench.clock));
    let other = other.build().unwrap();
    Pair { bench, other }
}

fn another() -> Key {
    Key::new("charge", "order-2")
}

impl Pair {
    /// Drops a run while its handler runs.
    async fn hang_up(&self, key: Key) {
        let started = Started::default();
        let run = self.once.run(key, payload(), |_| {
            started.then_never::<Result<i32, Infallible>>()
        });
        started.hang_up(run).await;
    }

    /// Drops a run whose handler has returned, while its engine waits for the next try of a call that met this fault.
    async fn hang_up_after(&self, call: Call, fault: Fault, result: Result<String, &'static str>) {
        self.store.inject(call, fault);
        let verdict = |result: &Result<String, &'static str>| match result {
            Err("permanently") => Verdict::Fail,
            other => other.into(),
        };
        let run = self
            .once
            .run_with(key(), payload(), |_| async { result }, verdict);
        drop_when(tokio::time::sleep(Duration::from_millis(1)), run).await;
        assert_eq!(self.store.met()[&(call, &*fault.to_string())], 1);
    }
}

/// A call whose claim doesn't reach the store, nor any release.
async fn unreached(pair: &Pair) -> Result<Outcome<u32>, Error<Infallible>> {
    for _ in 0..100 {
        for call in [Call::Create, Call::Release] {
            pair.store.inject(call, Fault::RequestLost);
        }
    }
    let outcome = attempt(&pair.once, key()).await;
    pair.store.calm();
    outcome
}

async fn text(once: &Idempotency) -> Result<Outcome<String>, Error<Infallible>> {
    once.run(key(), payload(), |_| async { Ok("second".to_owned()) })
        .await
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_dropped_is_released_by_the_next_call() {
    let pair = pair(|builder| builder);
    let (log, _capture) = Log::capture();
    pair.hang_up(key()).await;
    assert!(
        !pair.record().await.is_released(),
        "nothing is sent without a call"
    );
    assert!(!log.text().contains("\"released\""), "{}", log.text());
    // Of any key, by any clone, in another form.
    let once = pair
        .once
        .clone()
        .deadline((pair.clock.now() + LEASE).into());
    attempt(&once, another()).await.unwrap();
    let record = pair.record().await;
    assert!(record.is_released());
    assert_eq!(record.last_error.as_deref(), Some("dropped"));
    assert_eq!(record.fingerprint, Some(payload()), "an effect may exist");
    assert!(log.text().contains("\"released\""), "{}", log.text());
    assert_eq!(value(attempt(&pair.other, key()).await), 2);
}

#[tokio::test(start_paused = true)]
async fn the_next_call_of_a_dropped_runs_key_runs_at_once() {
    let pair = pair(|builder| builder);
    for expected in 1..=3 {
        let held = pair.once.run(key(), payload(), |claim| async move {
            assert_eq!(claim.attempt(), expected);
            std::future::pending::<Result<u32, Infallible>>().await
        });
        drop_when(tokio::time::sleep(Duration::from_millis(5)), held).await;
    }
    assert_eq!(value(attempt(&pair.once, key()).await), 4);
}

/// The run is dropped while its handler runs, or while its outcome is sent.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_sends_the_ending_of_a_run_that_is_dropped_meanwhile() {
    for is_done in [false, true] {
        let limit = InFlight::WaitUpTo(Duration::from_secs(10));
        let pair = pair(|builder| builder.in_flight(limit));
        if is_done {
            let late = Fault::Delayed(Duration::from_secs(5));
            pair.store.inject(Call::Complete, late);
        }
        let first = pair.once.run(key(), payload(), |_| async move {
            if !is_done {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(1)
        });
        let dropped = drop_when(tokio::time::sleep(Duration::from_secs(1)), first);
        let second = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            tokio::time::timeout(Duration::from_secs(3), attempt(&pair.once, key())).await
        };
        let ((), second) = tokio::join!(dropped, second);
        let second = second.expect("it doesn't wait for the lease");
        assert_eq!(value(second), if is_done { 1 } else { 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_closure_is_released_where_it_is_dropped_or_panics() {
    let pair = pair(|builder| builder);
    drop(pair.once.begin(key(), payload()).await.unwrap());
    let Begun::Run(run) = pair.once.begin(key(), payload()).await.unwrap() else {
        panic!("it was released")
    };
    assert_eq!(run.claim().attempt(), 2);
    let never_polled = run.end(Disposition::Release(None));
    drop(never_polled);
    assert_eq!(value(attempt(&pair.once, key()).await), 3);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_releases_nothing() {
    let pair = pair(|builder| builder);
    pair.crash().await;
    attempt(&pair.once, another()).await.unwrap();
    assert_matches!(
        attempt(&pair.once, key()).await,
        Err(Error::InFlight { .. })
    );
}

#[tokio::test(start_paused = true)]
async fn where_an_operator_must_look_a_dropped_handler_leaves_its_lease() {
    let pair = pair(|builder| builder.on_crash(OnCrash::Interrupt));
    pair.hang_up(key()).await;
    attempt(&pair.once, another()).await.unwrap();
    assert_matches!(
        attempt(&pair.once, key()).await,
        Err(Error::InFlight { .. })
    );
    pair.clock.advance(LEASE + MARGIN);
    assert_matches!(
        attempt(&pair.once, key()).await,
        Err(Error::Interrupted { .. })
    );
}

#[tokio::test(start_paused = true)]
async fn an_outcome_whose_completion_was_dropped_is_stored_by_the_next_call_under_each_policy() {
    for policy in [OnCrash::RunAgain, OnCrash::Interrupt] {
        let pair = pair(|builder| builder.on_crash(policy));
        pair.hang_up_after(Call::Complete, Fault::RequestLost, Ok("first".to_owned()))
            .await;
        let next = text(&pair.once).await.unwrap();
        assert!(next.is_replayed(), "{policy:?}");
        assert_eq!(next.into_inner(), "first");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_whose_completion_applied_unheard_stands() {
    let pair = pair(|builder| builder);
    pair.hang_up_after(Call::Complete, Fault::ReplyLost, Ok("first".to_owned()))
        .await;
    let before = pair.record().await;
    assert_eq!(text(&pair.once).await.unwrap().into_inner(), "first");
    assert_eq!(pair.record().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_large_outcome_that_was_dropped_on_its_way_is_kept_by_the_next_call() {
    let pair = pair(|builder| builder.settings(|settings| settings.inline_limit = 10));
    let large: String = (0..5_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_769) >> 8).to_string())
        .collect();
    pair.hang_up_after(Call::Keep, Fault::RequestLost, Ok(large.clone()))
        .await;
    let next = text(&pair.once).await.unwrap();
    assert!(next.is_replayed());
    assert_eq!(next.into_inner(), large);
}

#[tokio::test(start_paused = true)]
async fn a_large_outcome_that_finds_no_place_keeps_no_completion_back() {
    let pair = pair(|builder| builder.settings(|settings| settings.inline_limit = 10));
    let large: String = (0..5_000_u32).map(|n| (n ^ 0x5a5).to_string()).collect();
    pair.hang_up_after(Call::Keep, Fault::RequestLost, Ok(large))
        .await;
    for _ in 0..1_000 {
        pair.store.inject(Call::Keep, Fault::RequestLost);
    }
    attempt(&pair.once, another()).await.unwrap();
    let record = pair.record().await;
    assert_eq!(record.status, Status::Completed, "{record:?}");
    pair.clock.advance(LEASE + MARGIN);
    let again = attempt(&pair.other, key()).await;
    assert_matches!(
        again,
        Ok(Outcome::Replayed(..)) | Err(Error::OutcomeOmitted { .. })
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_that_was_dropped_is_stored_by_the_next_call() {
    let pair = pair(|builder| builder);
    pair.hang_up_after(Call::Complete, Fault::RequestLost, Err("permanently"))
        .await;
    let Err(Error::Failed(failure)) = text(&pair.once).await else {
        panic!("the failure is replayed")
    };
    assert_eq!(failure.message, "permanently");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_dropped_is_sent_by_the_next_call_under_each_policy() {
    for policy in [OnCrash::RunAgain, OnCrash::Interrupt] {
        let pair = pair(|builder| builder.on_crash(policy));
        pair.hang_up_after(Call::Release, Fault::Throttled, Err("for now"))
            .await;
        assert_eq!(value(attempt(&pair.once, key()).await), 2, "{policy:?}");
        assert_eq!(pair.record().await.last_error.as_deref(), Some("&str"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_is_sent_by_the_next_call() {
    for fault in [Fault::RequestLost, Fault::ReplyLost] {
        let pair = pair(|builder| builder);
        pair.store.inject(Call::Release, fault);
        pair.fails().await;
        attempt(&pair.once, another()).await.unwrap();
        assert!(pair.record().await.is_released(), "{fault}");
        assert_eq!(value(attempt(&pair.other, key()).await), 2, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_without_an_answer_is_sent_by_the_next_call() {
    let pair = pair(|builder| builder);
    for _ in 0..1_000 {
        pair.store.inject(Call::Complete, Fault::RequestLost);
    }
    let first = attempt(&pair.once, key()).await;
    assert_eq!(first.unwrap(), Outcome::Unrecorded(1));
    pair.store.calm();
    attempt(&pair.once, another()).await.unwrap();
    let again = attempt(&pair.other, key()).await.unwrap();
    assert!(again.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_a_run_of_this_process_holds_does_not_fail_open() {
    let open = || {
        pair(|builder| {
            builder
                .on_store_unavailable(OnStoreUnavailable::FailOpen)
                .on_crash(OnCrash::Interrupt)
        })
    };
    let unprotected = Outcome::Unprotected(1);
    let pair = open();
    let run = pair.once.run(key(), payload(), |_| async {
        Ok::<_, Infallible>(unreached(&pair).await.is_err())
    });
    assert!(value(run.await), "while it runs");
    assert_eq!(unreached(&pair).await.unwrap(), unprotected, "it has ended");

    let pair = open();
    pair.hang_up(key()).await;
    unreached(&pair).await.expect_err("it was dropped");
    pair.clock.advance(LEASE + MARGIN);
    let over = unreached(&pair).await.unwrap();
    assert_eq!(over, unprotected, "its lease is over");

    let pair = open();
    pair.hang_up_after(Call::Complete, Fault::RequestLost, Ok("first".to_owned()))
        .await;
    unreached(&pair).await.expect_err("it is stored just now");
    assert!(text(&pair.once).await.unwrap().is_replayed());
    assert_eq!(unreached(&pair).await.unwrap(), unprotected, "it is stored");

    let pair = open();
    let Begun::Run(run) = pair.once.begin(key(), payload()).await.unwrap() else {
        panic!("it is new")
    };
    pair.store.inject(Call::Release, Fault::RequestLost);
    let not_started = Disposition::Release(Some("not started".into()));
    run.end(not_started).await.unwrap();
    assert_eq!(unreached(&pair).await.unwrap(), unprotected, "nothing ran");
}

#[tokio::test(start_paused = true)]
async fn draining_sends_the_endings_that_are_left_and_counts_those_without_an_answer() {
    let pair = pair(|builder| builder);
    pair.hang_up(key()).await;
    for _ in 0..1_000 {
        pair.store.inject(Call::Release, Fault::RequestLost);
    }
    assert_eq!(pair.once.drain(Duration::from_secs(2)).await, 1);
    assert!(!pair.record().await.is_released());
    pair.store.calm();
    assert_eq!(pair.once.drain(Duration::from_secs(2)).await, 0);
    assert!(pair.record().await.is_released());
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_that_hangs_keeps_no_ending_back_from_draining() {
    let pair = pair(|builder| builder);
    let once = pair.once.clone();
    let busy = tokio::spawn(async move {
        let hangs = |_| std::future::pending::<Result<i32, Infallible>>();
        once.run_detached(another(), payload(), hangs).await
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    pair.hang_up(key()).await;
    assert_eq!(pair.once.drain(Duration::from_secs(2)).await, 1);
    assert!(pair.record().await.is_released());
    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_not_waited_for_is_released_by_the_next_call_under_each_policy() {
    for policy in [OnCrash::RunAgain, OnCrash::Interrupt] {
        let pair = pair(|builder| builder.on_crash(policy));
        pair.store
            .inject(Call::Create, Fault::ReplyDelayed(Duration::from_secs(1)));
        let run = attempt(&pair.once, key());
        drop_when(tokio::time::sleep(Duration::from_millis(1)), run).await;
        assert_eq!(value(attempt(&pair.once, key()).await), 2, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ending_that_comes_after_a_takeover_changes_nothing() {
    for is_completion in [true, false] {
        let (log, _capture) = Log::capture();
        let pair = pair(|builder| builder);
        if is_completion {
            pair.hang_up_after(Call::Complete, Fault::RequestLost, Ok("first".to_owned()))
                .await;
        } else {
            pair.hang_up(key()).await;
        }
        pair.clock.advance(LEASE + MARGIN);
        let successor = pair.other.run(key(), payload(), |claim| {
            let pair = &pair;
            async move {
                assert_eq!(claim.attempt(), 2);
                let before = pair.record().await;
                attempt(&pair.once, another()).await.unwrap();
                assert_eq!(pair.record().await, before);
                Ok::<_, Infallible>("second".to_owned())
            }
        });
        assert_eq!(value(successor.await), "second");
        assert_eq!(text(&pair.once).await.unwrap().into_inner(), "second");
        let log = log.text();
        assert_eq!(log.contains("\"lease_lost\""), is_completion, "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ending_that_is_not_answered_is_sent_by_each_call_until_its_lease_is_over() {
    let pair = pair(|builder| builder);
    pair.hang_up_after(Call::Complete, Fault::RequestLost, Ok("first".to_owned()))
        .await;
    (0..1_000).for_each(|_| pair.store.inject(Call::Complete, Fault::RequestLost));
    let sends = || pair.store.met()[&(Call::Complete, "request lost")];
    // Makes a call that completes nothing of its own, and tells whether the call has sent the ending.
    let sent_by_a_call = async || {
        let before = sends();
        let failed = pair
            .once
            .run(another(), payload(), |_| async { Err::<i32, _>("for now") });
        failed.await.unwrap_err();
        sends() > before
    };
    assert!(sent_by_a_call().await && sent_by_a_call().await);
    pair.clock.advance(LEASE + MARGIN);
    assert!(sent_by_a_call().await, "for the last time");
    assert!(!sent_by_a_call().await);
}

#[tokio::test(start_paused = true)]
async fn of_the_calls_that_arrive_while_an_ending_is_sent_those_of_its_key_wait_for_it() {
    let pair = pair(|builder| builder);
    pair.hang_up(key()).await;
    pair.store
        .inject(Call::Release, Fault::Delayed(Duration::from_millis(200)));
    let began = Instant::now();
    let third = async {
        let done = attempt(&pair.once, Key::new("charge", "order-3")).await;
        assert_eq!(value(done), 1);
        began.elapsed()
    };
    let (sends, own) = (attempt(&pair.once, another()), attempt(&pair.once, key()));
    let (sends, own, third) = tokio::join!(sends, own, third);
    assert_eq!((value(sends), value(own)), (1, 2));
    assert_eq!(third, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_sends_leaves_the_ending_to_the_next() {
    let pair = pair(|builder| builder);
    pair.hang_up(key()).await;
    pair.store.inject(Call::Release, Fault::Throttled);
    let run = attempt(&pair.once, another());
    drop_when(tokio::time::sleep(Duration::from_millis(1)), run).await;
    assert!(!pair.record().await.is_released());
    assert_eq!(value(attempt(&pair.once, key()).await), 2);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_discards_its_oldest_ending() {
    let pair = pair(|builder| builder);
    let numbered = |number: usize| Key::new("charge", format!("n-{number}"));
    let mut runs: Vec<Run> = Vec::new();
    for number in 0..=256 {
        let Begun::Run(run) = pair.once.begin(numbered(number), payload()).await.unwrap() else {
            panic!("it is new")
        };
        runs.push(run);
    }
    runs.into_iter().for_each(drop);
    for (number, is_released) in [(0, false), (1, true), (128, true), (256, true)] {
        let next = attempt(&pair.once, numbered(number)).await;
        assert_eq!(next.is_ok(), is_released, "{number}: {next:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_engine_only_observes_a_drop_leaves_its_shadow_and_sends_nothing() {
    let pair = pair(|builder| builder.observe(true));
    pair.hang_up(key()).await;
    let before = pair.record().await;
    assert_eq!(
        attempt(&pair.once, another()).await.unwrap(),
        Outcome::Unprotected(1)
    );
    assert_eq!(pair.record().await, before);
    assert!(!before.is_released());
}

#[tokio::test(start_paused = true)]
async fn with_the_kill_switch_thrown_a_drop_sends_nothing() {
    let pair = pair(|builder| builder.disabled(true));
    pair.hang_up(key()).await;
    assert_eq!(
        attempt(&pair.once, key()).await.unwrap(),
        Outcome::Unprotected(1)
    );
    assert!(pair.table.is_empty());
}

/// The claim is throttled once; its second send applies, and its answer is lost.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_throttled_and_then_had_no_answer_is_released() {
    let pair = pair(|once| once);
    pair.store.inject(Call::Create, Fault::Throttled);
    pair.store.inject(Call::Create, Fault::ReplyLost);
    assert!(attempt(&pair.once, key()).await.is_err());
    assert!(pair.record().await.is_released());
    let again = attempt(&pair.other, key()).await;
    assert_matches!(again, Ok(Outcome::Executed(_)));
}
