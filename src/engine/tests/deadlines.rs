//! The time that each request to the store gets, seen by a store that does not answer.

use super::*;
use crate::AtDeadline;
use crate::engine::Begun;
use crate::engine::claim::steps::StepError;
use crate::engine::time::Times;
use crate::protocol::journal::StepState;
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::RecordWrite;

/// The time that is kept back for the reply.
const REPLY: Duration = Duration::from_millis(250);
/// The time that a request gets by default.
const USUAL: Duration = Duration::from_secs(10);
/// The least time that a request gets.
const LEAST: Duration = Duration::from_millis(500);

/// Does not answer some writes before their deadline, and answers all others at once.
struct Unanswering {
    is_left: fn(&RecordWrite) -> bool,
    keeps: bool,
    commits: bool,
    waited: Mutex<Vec<Duration>>,
}

impl Unanswering {
    fn on(is_left: fn(&RecordWrite) -> bool) -> Self {
        Self {
            is_left,
            keeps: true,
            commits: true,
            waited: Mutex::default(),
        }
    }

    async fn until(&self, deadline: Instant) -> StoreError {
        let waited = deadline - Instant::now();
        self.waited.lock().unwrap().push(waited);
        tokio::time::sleep_until(deadline).await;
        StoreError::Timeout
    }

    /// Returns the time for which each of the writes was waited for.
    fn waited(&self) -> Vec<Duration> {
        self.waited.lock().unwrap().clone()
    }
}

impl Script for Unanswering {
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        if (self.is_left)(write) {
            return Err(self.until(at.deadline).await);
        }
        at.table.write(write, at.deadline).await
    }

    async fn keep(&self, at: At<'_>, outcome: &LargeOutcome) -> Result<Place, StoreError> {
        if !self.keeps {
            return Err(self.until(at.deadline).await);
        }
        at.table.keep(outcome, at.deadline).await
    }

    async fn commit(&self, at: At<'_>, _: Commit<'_>) -> Result<Committed, StoreError> {
        if !self.commits {
            return Err(self.until(at.deadline).await);
        }
        Ok(Committed::Applied)
    }
}

/// A text that is large also when it is compressed.
fn large() -> String {
    (0..50_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_769) >> 16).to_string())
        .collect()
}

/// A handler that takes so much of its time, and is then done, or fails.
async fn run(once: &Idempotency, takes: Duration, result: Result<i32, &'static str>) {
    let handler = async |_| {
        sleep(takes).await;
        result
    };
    let _ = once.run(key(), payload(), handler).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_gets_the_usual_time_and_ends_before_the_claim_does() {
    let is_release = |write: &RecordWrite| matches!(write, RecordWrite::Release(_));
    for (takes, expected) in [
        (Duration::ZERO, USUAL),
        (
            LEASE.saturating_sub(Duration::from_secs(3)),
            Duration::from_secs(3).saturating_sub(REPLY),
        ),
        (LEASE, LEAST),
    ] {
        let once = engine(Unanswering::on(is_release));
        run(&once, takes, Err("down")).await;
        assert_eq!(once.store.script.waited(), [expected], "after {takes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ending_that_was_left_gets_half_of_the_next_calls_time_and_a_second_at_most() {
    let is_release = |write: &RecordWrite| matches!(write, RecordWrite::Release(_));
    let short = REPLY + Duration::from_millis(300);
    for (left, expected) in [
        (None, vec![Duration::from_secs(1)]),
        (Some(short), vec![Duration::from_millis(150)]),
        (Some(REPLY), vec![]),
    ] {
        let once = engine(Unanswering::on(is_release));
        let Begun::Run(run) = once.begin(key(), payload()).await.unwrap() else {
            panic!("it is new");
        };
        let now = run.claim().now();
        drop(run);
        let next = match left {
            Some(left) => once.deadline((now + left).into()),
            None => once.clone(),
        };
        let began = Instant::now();
        let another = Key::new("charge", "order-2");
        let _ = next
            .run(another, None, async |_| Ok::<_, Infallible>(1))
            .await;
        assert_eq!(once.store.script.waited(), expected, "{left:?}");
        assert_eq!(began.elapsed(), expected.iter().sum::<Duration>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_gets_all_the_time_that_the_claim_has_left() {
    let is_completion = |write: &RecordWrite| matches!(write, RecordWrite::Complete(_));
    for (takes, expected) in [
        (Duration::ZERO, LEASE.saturating_sub(REPLY)),
        (LEASE, LEAST),
    ] {
        let once = engine(Unanswering::on(is_completion));
        run(&once, takes, Ok(1)).await;
        assert_eq!(once.store.script.waited(), [expected], "after {takes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_only_observed_holds_a_finished_answer_up_for_a_second_at_most() {
    let is_completion = |write: &RecordWrite| matches!(write, RecordWrite::Complete(_));
    let once = bench(Unanswering::on(is_completion), |builder| {
        builder.observe(true)
    });
    run(&once, Duration::ZERO, Ok(1)).await;
    assert_eq!(once.store.script.waited(), [Duration::from_secs(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_the_usual_time_and_a_short_release_where_it_is_not_answered() {
    let is_any =
        |write: &RecordWrite| matches!(write, RecordWrite::Create(_) | RecordWrite::Release(_));
    let once = engine(Unanswering::on(is_any));
    let began = Instant::now();
    run(&once, Duration::ZERO, Ok(1)).await;
    assert_eq!(once.store.script.waited()[0], USUAL);
    assert_eq!(began.elapsed(), USUAL + LEAST);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_has_happened_is_noted_for_the_usual_time_and_one_that_has_not_for_the_least() {
    fn state(write: &RecordWrite) -> Option<&StepState> {
        match write {
            RecordWrite::Amend { entry, .. } => Some(&entry.state),
            _ => None,
        }
    }
    let ended = |write: &RecordWrite| !matches!(state(write), None | Some(StepState::Pending));
    let begun = |write: &RecordWrite| matches!(state(write), Some(StepState::Pending));
    let all = |write: &RecordWrite| state(write).is_some();
    for (unanswered, result, expected) in [
        (ended as fn(&RecordWrite) -> bool, Ok(1), vec![USUAL]),
        (ended, Err("down"), vec![LEAST]),
        (begun, Ok(1), vec![USUAL]),
        (all, Ok(1), vec![USUAL, LEAST]),
    ] {
        let once = engine(Unanswering::on(unanswered));
        let handler = async |claim: crate::Claim| claim.step("charge", async |_| result).await;
        let _: Result<_, Error<StepError<&str>>> = once.run(key(), payload(), handler).await;
        assert_eq!(once.store.script.waited(), expected, "{result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_outcome_gets_half_of_the_time_that_is_left() {
    let none = |_: &RecordWrite| false;
    for is_claimless in [false, true] {
        let script = Unanswering {
            keeps: false,
            ..Unanswering::on(none)
        };
        let once = if is_claimless {
            engine(script).claimless()
        } else {
            engine(script)
        };
        let handler = async |claim: crate::Claim| {
            if is_claimless {
                claim.write(Write::new("a business write")).unwrap();
            }
            Ok::<_, Infallible>(large())
        };
        once.run(key(), payload(), handler).await.unwrap();
        assert_eq!(
            once.store.script.waited(),
            [LEASE / 2],
            "claimless: {is_claimless}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_gets_the_time_that_is_left_but_for_finding_out_what_became_of_it() {
    for is_claimless in [false, true] {
        let script = Unanswering {
            commits: false,
            ..Unanswering::on(|_| false)
        };
        let once = if is_claimless {
            engine(script).claimless()
        } else {
            engine(script)
        };
        write(&once).await.unwrap_err();
        let waited = once.store.script.waited();
        assert_eq!(
            waited,
            [LEASE.saturating_sub(REPLY + LEAST)],
            "claimless: {is_claimless}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_nothing_protects_ends_before_its_invocation_does_unless_work_goes_on() {
    for (policy, expected) in [
        (AtDeadline::End, Duration::from_millis(100)),
        (AtDeadline::GoOn, USUAL.saturating_sub(REPLY + LEAST)),
    ] {
        let script = Unanswering {
            commits: false,
            ..Unanswering::on(|_| false)
        };
        let clock = TokioClock::start();
        let once = bench(script, |builder| {
            let builder = builder.clock(clock).disabled(true);
            builder.settings(|settings| settings.at_deadline = policy)
        });
        let bound = once.deadline((clock.now() + LEASE).into());
        let handler = async |claim: crate::Claim| {
            sleep(LEASE.saturating_sub(Duration::from_millis(200))).await;
            claim.write(Write::new("a business write")).unwrap();
            Ok::<_, Infallible>(1)
        };
        bound.run(key(), payload(), handler).await.unwrap_err();
        assert_eq!(once.store.script.waited(), [expected], "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_a_claim_is_the_first_and_has_the_time_of_a_claim() {
    let once = engine(Unanswering::on(|_| false)).claimless();
    let handler =
        async |claim: crate::Claim| Ok::<_, Infallible>((claim.attempt(), claim.remaining()));
    let seen = once.run(key(), payload(), handler).await.unwrap();
    assert_eq!(seen.into_inner(), (1, Some(LEASE)));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_a_claim_that_outlived_its_time_has_the_usual_time_to_commit() {
    for has_deadline in [false, true] {
        for (keeps, commits, expected) in [
            (false, true, USUAL / 2),
            (true, false, USUAL.saturating_sub(REPLY + LEAST)),
        ] {
            let script = Unanswering {
                keeps,
                commits,
                ..Unanswering::on(|_| false)
            };
            let once = bench(script, |builder| {
                builder.settings(|settings| settings.at_deadline = AtDeadline::GoOn)
            });
            let bound = if has_deadline {
                let clock = TokioClock::start();
                once.deadline((clock.now() + LEASE).into())
            } else {
                once.clone()
            };
            let handler = async |claim: crate::Claim| {
                sleep(2 * LEASE).await;
                claim.write(Write::new("a business write")).unwrap();
                Ok::<_, Infallible>(large())
            };
            let _ = bound.claimless().run(key(), payload(), handler).await;
            let waited = once.store.script.waited();
            assert_eq!(waited, [expected], "with a deadline: {has_deadline}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_could_begin_only_after_its_lease_does_not_begin_unless_it_has_no_claim() {
    for is_claimless in [false, true] {
        let once = engine(Replies::default());
        let once = if is_claimless { once.claimless() } else { once };
        let Begun::Run(run) = once.begin(key(), payload()).await.unwrap() else {
            panic!("it is new")
        };
        sleep(LEASE).await;
        let begins = run.in_time(None).await;
        if is_claimless {
            assert_matches!(begins, Ok(Begun::Run(_)));
            continue;
        }
        assert_matches!(begins, Err(Error::TooLate));
        let record = record(&once).await.unwrap();
        assert_eq!(record.last_error.as_deref(), Some("not started"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_without_a_claim_that_is_too_late_to_begin_is_replayed_or_a_mismatch() {
    let once = engine(Replies::default());
    let first = async |_| Ok::<_, Infallible>(1);
    once.run(key(), payload(), first).await.unwrap();
    let once = once.claimless();
    for is_other in [false, true] {
        let asked = if is_other {
            Fingerprint::bytes(b"another payload")
        } else {
            payload()
        };
        let Begun::Run(run) = once.begin(key(), asked).await.unwrap() else {
            panic!("only its end finds out that it is done")
        };
        let times = Times::of(LEASE, None);
        sleep(times.end - Instant::now()).await;
        let begins = run.in_time(Some(times)).await;
        if is_other {
            assert_matches!(begins, Err(Error::Mismatch));
        } else {
            assert_matches!(begins, Ok(Begun::Replay(_)));
        }
    }
}
