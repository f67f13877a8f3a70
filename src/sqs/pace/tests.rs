use super::*;

const RESERVE_BEGINS: Duration = Duration::from_secs(2);

/// One handler at a time, and a reserve that begins in two seconds.
fn pace() -> Pace {
    Pace::new(1, 25, 2, Some(Instant::now() + RESERVE_BEGINS))
}

async fn refused(pace: &Pace) -> bool {
    matches!(pace.start(&[]).await, Err(Reason::OutOfTime))
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_claim_was_slow_does_not_start_inside_the_reserve() {
    let pace = pace();
    assert!(pace.refusal(&[]).is_none(), "there is time to claim it");
    tokio::time::advance(RESERVE_BEGINS).await;
    assert!(refused(&pace).await, "a handler is free, the time is over");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_for_a_free_handler_is_refused_when_the_reserve_begins() {
    let pace = pace();
    let began = Instant::now();
    let running = pace.start(&[]).await;
    assert!(refused(&pace).await);
    assert_eq!(began.elapsed(), RESERVE_BEGINS);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_message_starts_until_the_reserve_begins() {
    let pace = pace();
    tokio::time::advance(RESERVE_BEGINS.mul_f64(0.999)).await;
    assert!(pace.start(&[]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_reserve_is_a_tenth_of_the_time_and_at_most_a_second_where_none_is_set() {
    let seconds = Duration::from_secs_f64;
    for (remaining, reserve, starts_for) in [
        (Some(3.0), None, Some(2.7)),
        (Some(60.0), None, Some(59.0)),
        (Some(60.0), Some(20.0), Some(40.0)),
        (Some(5.0), Some(20.0), Some(0.0)),
        (None, Some(20.0), None),
    ] {
        let stop_at = Pace::stop_at(remaining.map(seconds), reserve.map(seconds));
        let left = stop_at.map(|stop_at| stop_at - Instant::now());
        assert_eq!(left, starts_for.map(seconds), "{remaining:?} {reserve:?}");
    }
}
