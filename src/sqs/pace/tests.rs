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
    tokio::time::advance(RESERVE_BEGINS - Duration::from_millis(1)).await;
    assert!(pace.start(&[]).await.is_ok());
}
