//! Until when messages start, and what those hear that don't.

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// For two messages, of which one runs at a time.
fn pace(stop_in: Duration) -> Pace {
    Pace::new(1, 1, 2, Some(Instant::now() + stop_in))
}

#[tokio::test(start_paused = true)]
async fn the_reserve_is_a_tenth_of_the_time_and_at_most_a_second() {
    let stops_in = |remaining, reserve| {
        let stop_at = Pace::stop_at(Some(remaining), reserve).unwrap();
        stop_at - Instant::now()
    };
    assert_eq!(stops_in(seconds(5), None), Duration::from_millis(4_500));
    assert_eq!(stops_in(seconds(60), None), seconds(59));
    assert_eq!(stops_in(seconds(60), Some(seconds(7))), seconds(53));
    assert_eq!(stops_in(seconds(5), Some(seconds(7))), Duration::ZERO);
    assert_eq!(Pace::stop_at(None, Some(seconds(7))), None);
}

#[tokio::test(start_paused = true)]
async fn from_the_end_of_the_time_on_nothing_is_claimed_or_started() {
    let pace = pace(seconds(1));
    assert!(pace.refusal(&[]).is_none());
    assert!(pace.start(&[]).await.is_ok());
    tokio::time::advance(seconds(1)).await;
    assert!(matches!(pace.refusal(&[]), Some(Reason::OutOfTime)));
    assert!(matches!(pace.start(&[]).await, Err(Reason::OutOfTime)));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_handler_waits_until_the_end_of_the_time() {
    let pace = pace(seconds(1));
    let _running = pace.start(&[]).await.unwrap();
    let began = Instant::now();
    assert!(matches!(pace.start(&[]).await, Err(Reason::OutOfTime)));
    assert_eq!(began.elapsed(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn a_message_behind_one_that_was_reported_is_neither_claimed_nor_started() {
    let pace = pace(seconds(1));
    assert!(pace.refusal(&[0]).is_none());
    pace.ended(0, false);
    assert!(matches!(pace.refusal(&[0]), Some(Reason::GroupStopped)));
    assert!(matches!(pace.start(&[0]).await, Err(Reason::GroupStopped)));
    pace.ended(1, true);
    assert!(pace.refusal(&[1]).is_none());
    assert!(pace.start(&[1]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_group_is_claimed_when_every_message_before_it_has_started_or_ended_without() {
    let pace = Pace::new(10, 2, 4, None);
    let is_admitted = || async {
        let admitted = tokio::time::timeout(seconds(1), pace.admit(2)).await;
        admitted.is_ok()
    };
    let (mut first, second) = (pace.entry(), pace.entry());
    pace.admit(1).await;
    first.started();
    drop(first);
    assert!(!is_admitted().await, "one of two");
    drop(second);
    assert!(is_admitted().await);
}

#[tokio::test(start_paused = true)]
async fn a_message_starts_until_the_reserve_begins() {
    let pace = pace(seconds(2));
    tokio::time::advance(Duration::from_millis(1_999)).await;
    assert!(pace.start(&[]).await.is_ok());
}
