use tokio::time::advance;

use super::*;

const FAR: Duration = Duration::from_hours(1);

fn key(number: usize) -> RecordId {
    RecordId::unkeyed(&number.to_string())
}

/// A pace at which so many requests were sent in the last second.
async fn at(requests: u32) -> (Pace, Instant) {
    let pace = Pace::new();
    let mut last = end(&pace).await;
    for _ in 0..requests {
        last = begin(&pace, FAR).await.unwrap();
    }
    (pace, last)
}

async fn begin(pace: &Pace, within: Duration) -> Option<Instant> {
    Turns::Begin(pace, &key(0))
        .next(Instant::now() + within)
        .await
}

async fn end(pace: &Pace) -> Instant {
    Turns::End(pace, &key(0))
        .next(Instant::now())
        .await
        .unwrap()
}

/// The request of this key was throttled in this turn.
fn throttled(pace: &Pace, number: usize, turn: Instant) {
    let turns = Turns::Begin(pace, &key(number));
    assert_eq!(turns.throttled(turn, Duration::ZERO), Duration::ZERO);
}

/// The time between two turns.
fn space(pace: &Pace) -> Duration {
    let rate = lock(&pace.0).rate(Instant::now());
    rate.map_or(Duration::ZERO, gap)
}

/// Returns the time for which the next request waits.
async fn waited(pace: &Pace) -> Duration {
    let began = Instant::now();
    begin(pace, FAR).await.unwrap();
    began.elapsed()
}

fn about(found: Duration, wanted: f64) {
    let found = found.as_secs_f64();
    assert!(
        (found - wanted).abs() < wanted * 0.1 + 0.002,
        "{found} instead of {wanted}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_while_the_store_does_not_throttle() {
    let (pace, _) = at(1_000).await;
    assert_eq!(waited(&pace).await, Duration::ZERO);
    assert_eq!(space(&pace), Duration::ZERO);
    assert!(begin(&pace, Duration::ZERO).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_request_spaces_the_next_at_seven_tenths_of_the_rate() {
    let (pace, turn) = at(100).await;
    throttled(&pace, 1, turn);
    for _ in 0..3 {
        about(waited(&pace).await, 1.0 / 70.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_throttled_as_a_second_begins_is_measured_by_the_second_before() {
    let (pace, _) = at(100).await;
    advance(WINDOW).await;
    let turn = end(&pace).await;
    throttled(&pace, 1, turn);
    about(waited(&pace).await, 1.0 / 70.0);
}

#[tokio::test(start_paused = true)]
async fn requests_side_by_side_take_their_turns_one_after_the_other() {
    let (pace, turn) = at(100).await;
    throttled(&pace, 1, turn);
    let began = Instant::now();
    let ((), (), ()) = tokio::join!(
        async {
            waited(&pace).await;
            about(began.elapsed(), 1.0 / 70.0);
        },
        async {
            waited(&pace).await;
            about(began.elapsed(), 2.0 / 70.0);
        },
        async {
            waited(&pace).await;
            about(began.elapsed(), 3.0 / 70.0);
        },
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_after_the_deadline_is_refused_at_once_and_taken_from_no_other() {
    let (pace, turn) = at(2).await;
    throttled(&pace, 1, turn);
    let began = Instant::now();
    for _ in 0..10 {
        let refused = begin(&pace, Duration::from_millis(50)).await;
        assert!(refused.is_none());
    }
    let left = lock(&pace.0).free - Instant::now();
    assert!(begin(&pace, left).await.is_none(), "at the deadline");
    assert_eq!(began.elapsed(), Duration::ZERO);
    // A quiet process that is throttled once hardly waits.
    about(waited(&pace).await, 1.0 / 14.0);
}

#[tokio::test(start_paused = true)]
async fn the_rate_comes_back_to_where_it_was_and_is_then_forgotten() {
    let (pace, turn) = at(50).await;
    throttled(&pace, 1, turn);
    // The cube root of 50 × 0.3 / 0.4.
    advance(Duration::from_millis(3_347)).await;
    about(space(&pace), 1.0 / 50.0);
    advance(Duration::from_secs(30)).await;
    assert_eq!(space(&pace), Duration::ZERO);
    assert_eq!(waited(&pace).await, Duration::ZERO);
    let turn = end(&pace).await;
    throttled(&pace, 2, turn);
    about(space(&pace), 1.0 / (FIRST * KEPT));
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_the_rate_was_cut_does_not_cut_it_again() {
    let (pace, early) = at(100).await;
    advance(Duration::from_millis(5)).await;
    let late = end(&pace).await;
    advance(Duration::from_millis(5)).await;
    throttled(&pace, 1, late);
    let gap = space(&pace);
    throttled(&pace, 2, early);
    assert_eq!(space(&pace), gap);
    advance(Duration::from_millis(5)).await;
    let turn = end(&pace).await;
    throttled(&pace, 3, turn);
    assert!(
        space(&pace) > gap.mul_f64(1.3),
        "{:?} after {gap:?}",
        space(&pace)
    );
}

#[tokio::test(start_paused = true)]
async fn what_ends_something_does_not_wait_and_takes_a_turn_from_what_begins() {
    let (pace, turn) = at(100).await;
    throttled(&pace, 1, turn);
    let began = Instant::now();
    end(&pace).await;
    end(&pace).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    about(waited(&pace).await, 3.0 / 70.0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_throttles_everything_is_asked_every_few_seconds() {
    let (pace, mut turn) = at(3).await;
    for number in 0..20 {
        throttled(&pace, number, turn);
        turn = begin(&pace, FAR).await.unwrap();
    }
    throttled(&pace, 20, turn);
    assert!(space(&pace) > Duration::from_secs(3), "{:?}", space(&pace));
    assert!(space(&pace) <= gap(LEAST), "{:?}", space(&pace));
}

#[tokio::test(start_paused = true)]
async fn one_key_that_is_throttled_again_and_again_slows_the_others_once_and_itself_each_time() {
    let (pace, mut turn) = at(100).await;
    throttled(&pace, 1, turn);
    let (key, by_itself) = (key(1), Duration::from_millis(20));
    for _ in 0..50 {
        advance(Duration::from_millis(90)).await;
        turn = end(&pace).await;
        let pause = Turns::Begin(&pace, &key).throttled(turn, by_itself);
        assert_eq!(pause, by_itself * LONGER_TO_BEGIN);
    }
    // Four and a half seconds after the only cut.
    assert!(
        space(&pace) <= Duration::from_millis(11),
        "{:?}",
        space(&pace)
    );
    // After one that cut deeper, it waits as long as all did then.
    throttled(&pace, 2, turn);
    turn = end(&pace).await;
    advance(Duration::from_secs(2)).await;
    let pause = Turns::Begin(&pace, &key).throttled(turn, Duration::ZERO);
    assert!(pause > space(&pace), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn what_ends_something_waits_a_second_at_most() {
    let (pace, mut turn) = at(1).await;
    for number in 10..20 {
        throttled(&pace, number, turn);
        turn = end(&pace).await;
    }
    let turns = |by_itself| Turns::End(&pace, &key(1)).throttled(turn, by_itself);
    assert_eq!(turns(Duration::from_millis(20)), LONGEST_TO_END);
    assert_eq!(turns(Duration::from_secs(2)), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn many_that_end_at_once_hold_up_what_begins_for_a_second_at_most() {
    let (pace, turn) = at(1_000).await;
    throttled(&pace, 1, turn);
    advance(Duration::from_secs(2)).await;
    let gap = space(&pace);
    for _ in 0..1_000 {
        end(&pace).await;
    }
    assert!(waited(&pace).await <= Duration::from_secs(1) + gap);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_has_ended_leaves_nothing_for_the_next_one() {
    let (pace, turn) = at(0).await;
    throttled(&pace, 1, turn);
    // More than the limit lasts.
    let waiting: Vec<_> = (0..2_000)
        .map(|_| lock(&pace.0).take(Instant::now(), Instant::now() + FAR))
        .collect();
    assert!(waiting.iter().all(Option::is_some));
    advance(Duration::from_mins(1)).await;
    let turn = begin(&pace, FAR).await.unwrap();
    throttled(&pace, 2, turn);
    about(waited(&pace).await, space(&pace).as_secs_f64());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_key_is_remembered_for_ten_seconds_and_beside_fifteen_younger_ones() {
    let pace = Pace::new();
    let is_news = |number| lock(&pace.0).is_news(Instant::now(), &key(number));
    assert!(is_news(0));
    advance(Duration::from_millis(9_999)).await;
    assert!(!is_news(0));
    advance(Duration::from_millis(1)).await;
    assert!((0..=15).all(is_news));
    assert!(!is_news(0));
    assert!(is_news(16));
    assert!(!is_news(1));
    assert!(is_news(0), "it is forgotten");
}
