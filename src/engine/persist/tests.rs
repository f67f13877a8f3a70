//! Tests of the module above.

use std::cell::Cell;
use std::iter;

use super::*;

/// The pauses of many callers, the first one of each, the second one of each, and so on.
fn pauses_of_many(count: usize) -> Vec<Vec<Duration>> {
    let mut callers: Vec<_> = iter::repeat_with(|| pauses().build()).take(2_000).collect();
    let next = || {
        callers
            .iter_mut()
            .map(|caller| caller.next().unwrap())
            .collect()
    };
    iter::repeat_with(next).take(count).collect()
}

#[test]
fn pauses_double_from_20_ms_to_a_second_and_each_caller_adds_up_to_as_much_at_random() {
    let least = [20, 40, 80, 160, 320, 640, 1_000, 1_000];
    for (pauses, least) in pauses_of_many(least.len()).into_iter().zip(least) {
        let least = Duration::from_millis(least);
        let (shortest, longest) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(
            *shortest >= least && *shortest < least.mul_f64(1.02),
            "{shortest:?} of {least:?}"
        );
        assert!(
            *longest < least * 2 && *longest > least.mul_f64(1.98),
            "{longest:?} of {least:?}"
        );
    }
}

/// Sends what is answered by these errors, one after the other, and then by nothing until the
/// deadline; tells how often it was sent.
async fn persisted(errors: Vec<StoreError>, time: Duration) -> (Result<(), StoreError>, usize) {
    let deadline = Instant::now() + time;
    let (count, errors) = (Cell::new(0), Cell::new(errors.into_iter()));
    let send = async || {
        count.set(count.get() + 1);
        let mut left = errors.take();
        let error = left.next();
        errors.set(left);
        if let Some(error) = error {
            return Err(error);
        }
        tokio::time::sleep_until(deadline).await;
        Err(StoreError::Timeout)
    };
    let answer = persist(Turns::Elsewhere, deadline, StoreError::is_transient, &send).await;
    (answer, count.get())
}

fn throttled() -> StoreError {
    StoreError::Throttled("too many requests".into())
}

#[tokio::test(start_paused = true)]
async fn a_store_that_throttled_until_the_deadline_has_answered() {
    let (answer, sent) = persisted(vec![throttled()], Duration::from_secs(5)).await;
    assert_matches!(answer, Err(StoreError::Throttled(_)));
    assert_eq!(sent, 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answered_in_another_way_before_the_deadline_is_silent_at_the_end() {
    let (answer, sent) = persisted(vec![StoreError::Conflict], Duration::from_secs(5)).await;
    assert_matches!(answer, Err(StoreError::Timeout));
    assert_eq!(sent, 2);
}

#[tokio::test(start_paused = true)]
async fn the_last_error_is_the_answer_where_it_is_no_timeout() {
    for earlier in [throttled(), StoreError::Unavailable("reset".into())] {
        let rejected = StoreError::Rejected("no such attribute".into());
        let (answer, sent) = persisted(vec![earlier, rejected], Duration::from_secs(5)).await;
        assert_matches!(answer, Err(StoreError::Rejected(_)));
        assert_eq!(sent, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_again_after_a_pause_and_only_if_time_is_left_after_it() {
    let began = Instant::now();
    let (answer, sent) = persisted(vec![StoreError::Conflict], Duration::from_millis(20)).await;
    assert_matches!(answer, Err(StoreError::Conflict));
    assert_eq!((sent, began.elapsed()), (1, Duration::ZERO));

    let conflicts = iter::repeat_with(|| StoreError::Conflict).take(1_000);
    let (answer, sent) = persisted(conflicts.collect(), Duration::from_secs(10)).await;
    assert_matches!(answer, Err(StoreError::Conflict));
    assert!((10..=16).contains(&sent), "{sent} requests in ten seconds");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "no pause ends after the deadline"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_limit_and_not_before() {
    let limit = Duration::from_secs(3);
    let (mut wait, began) = (Wait::up_to(limit), Instant::now());
    let mut looks = 0;
    while wait.pause().await {
        looks += 1;
    }
    assert_eq!(began.elapsed(), limit);
    assert!((5..=10).contains(&looks), "{looks} looks in three seconds");
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_limit_lasts_longer_than_any_invocation() {
    let mut wait = Wait::up_to(Duration::MAX);
    assert!(wait.pause().await);
    tokio::time::advance(Duration::from_hours(23)).await;
    assert!(wait.pause().await);
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(!wait.pause().await);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_once_without_an_answer_may_have_applied_whatever_comes_last() {
    let silent = || StoreError::Unavailable("reset".into());
    for last in [throttled(), StoreError::NotSent, StoreError::Conflict] {
        // The next pause would end after the deadline.
        let (answer, _) = persisted(vec![silent(), last], Duration::from_millis(60)).await;
        assert!(
            answer.as_ref().is_err_and(StoreError::is_unreachable),
            "{answer:?}"
        );
    }
    // Throttled, and then silent again until the deadline.
    let errors = vec![silent(), throttled()];
    let (answer, sent) = persisted(errors, Duration::from_secs(5)).await;
    assert!(
        answer.as_ref().is_err_and(StoreError::is_unreachable),
        "{answer:?}"
    );
    assert_eq!(sent, 3);
    let (answer, _) = persisted(vec![StoreError::NotSent], Duration::from_millis(1)).await;
    assert_matches!(answer, Err(StoreError::NotSent));
}
