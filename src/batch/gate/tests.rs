//! Until when messages start, and what those hear that don't.

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// For two messages, of which one runs at a time.
fn gate(stop_in: Duration) -> Gate {
    let stop = Instant::now() + stop_in;
    let times = Times {
        stop,
        end: stop,
        give_up: stop,
    };
    Gate::new(1, 1, 2, Some(times))
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
async fn from_the_end_of_the_time_on_nothing_is_claimed_or_started() {
    let gate = gate(seconds(1));
    assert!(gate.refusal(&[]).is_none());
    assert!(gate.start(&[]).await.is_ok());
    tokio::time::advance(seconds(1)).await;
    assert!(matches!(gate.refusal(&[]), Some(Reason::OutOfTime)));
    assert!(matches!(gate.start(&[]).await, Err(Reason::OutOfTime)));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_handler_waits_until_the_end_of_the_time() {
    let gate = gate(seconds(1));
    let _running = gate.start(&[]).await.unwrap();
    let began = Instant::now();
    assert!(matches!(gate.start(&[]).await, Err(Reason::OutOfTime)));
    assert_eq!(began.elapsed(), seconds(1));
}

#[tokio::test(start_paused = true)]
async fn a_message_behind_one_that_was_reported_is_neither_claimed_nor_started() {
    let gate = gate(seconds(1));
    assert!(gate.refusal(&[0]).is_none());
    gate.ended(0, false);
    assert!(matches!(gate.refusal(&[0]), Some(Reason::GroupStopped)));
    assert!(matches!(gate.start(&[0]).await, Err(Reason::GroupStopped)));
    gate.ended(1, true);
    assert!(gate.refusal(&[1]).is_none());
    assert!(gate.start(&[1]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_group_is_claimed_when_every_message_before_it_has_started_or_ended_without() {
    let gate = Gate::new(10, 2, 4, None);
    let is_admitted = || async {
        let admitted = tokio::time::timeout(seconds(1), gate.admit(2)).await;
        admitted.is_ok()
    };
    let (mut first, second) = (gate.entry(), gate.entry());
    gate.admit(1).await;
    first.started();
    drop(first);
    assert!(!is_admitted().await, "one of two");
    drop(second);
    assert!(is_admitted().await);
}

#[tokio::test(start_paused = true)]
async fn a_message_starts_until_the_reserve_begins() {
    let gate = gate(seconds(2));
    tokio::time::advance(Duration::from_millis(1_999)).await;
    assert!(gate.start(&[]).await.is_ok());
}
