//! Until when messages start.

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn the_reserve_is_a_tenth_of_the_time_and_at_most_a_second() {
    let stops_in = |remaining, reserve| {
        let times = Times::of(Some(remaining), reserve).unwrap();
        times.stop - Instant::now()
    };
    assert_eq!(stops_in(seconds(5), None), Duration::from_millis(4_500));
    assert_eq!(stops_in(seconds(60), None), seconds(59));
    assert_eq!(stops_in(seconds(60), Some(seconds(7))), seconds(53));
    assert_eq!(stops_in(seconds(5), Some(seconds(7))), Duration::ZERO);
    assert!(Times::of(None, Some(seconds(7))).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_ended_in_the_middle_of_the_reserve_and_early_enough_for_the_reply() {
    let ends_before = |remaining, reserve| {
        let times = Times::of(Some(remaining), reserve).unwrap();
        assert!(times.end <= times.give_up);
        (Instant::now() + remaining - times.end).as_millis()
    };
    assert_eq!(ends_before(seconds(3), None), 150);
    assert_eq!(ends_before(seconds(60), None), 500);
    assert_eq!(ends_before(seconds(60), Some(seconds(20))), 500);
    assert_eq!(ends_before(seconds(60), Some(Duration::ZERO)), 250);
    assert_eq!(ends_before(seconds(1), Some(Duration::ZERO)), 50);
}

#[tokio::test(start_paused = true)]
async fn no_message_starts_when_handlers_are_ended_however_short_the_reserve() {
    for remaining in [1, 100, 3_000, 60_000, 900_000].map(Duration::from_millis) {
        for reserve in [0, 1, 100, 400, 3_000].map(Duration::from_millis) {
            let times = Times::of(Some(remaining), Some(reserve)).unwrap();
            assert!(times.stop <= times.end, "{remaining:?}, {reserve:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_starts_until_the_reserve_begins() {
    let times = Times::of(Some(seconds(3)), Some(seconds(1))).unwrap();
    tokio::time::advance(Duration::from_millis(1_999)).await;
    assert!(!times.is_over());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(times.is_over());
}
