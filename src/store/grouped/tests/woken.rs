//! Requests that follow a crowd: those that one answer woke leave together.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use super::*;

/// A store that has nothing under way, after so many claims have met.
async fn after_a_crowd(of: usize) -> (Arc<Gate>, Grouped) {
    let gate = Gate::closed();
    let store = GroupedStore::new(Arc::clone(&gate));
    let tasks = claims(&store, 0..of).await;
    gate.open.add_permits(2);
    all_applied(tasks).await;
    (gate, store)
}

#[tokio::test(start_paused = true)]
async fn requests_that_one_answer_woke_leave_together() {
    let (gate, store) = after_a_crowd(5).await;
    let woken = [5, 6, 7].map(|number| start(&store, claim(number), 60));
    settle().await;
    assert_eq!(gate.sizes(), [1, 4, 3]);
    gate.open.add_permits(1);
    all_applied(woken.into()).await;

    let last = claims(&store, [8]).await;
    assert_eq!(gate.sizes(), [1, 4, 3, 1]);
    gate.open.add_permits(1);
    all_applied(last).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_is_not_twice_in_a_group_that_one_answer_woke() {
    let (gate, store) = after_a_crowd(3).await;
    let woken = [5, 5, 6].map(|number| start(&store, claim(number), 60));
    settle().await;
    assert_eq!(gate.sizes(), [1, 2, 1]);
    gate.open.add_permits(2);
    settle().await;
    assert_eq!(gate.sizes(), [1, 2, 1, 2]);
    for task in woken {
        assert!(task.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_dropped_before_others_join_it_holds_nothing_up() {
    let (gate, store) = after_a_crowd(3).await;
    let [first, second] = [5, 6].map(|number| start(&store, claim(number), 60));
    yield_now().await;
    assert_eq!(gate.sizes(), [1, 2]);
    first.abort();
    settle().await;
    assert_eq!(gate.sizes(), [1, 2, 1]);
    gate.open.add_permits(1);
    all_applied(vec![second]).await;
    assert_eq!(gate.records.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn one_who_joined_and_left_is_left_out_of_the_group() {
    let (gate, store) = after_a_crowd(3).await;
    let (deadline, writes) = (
        Instant::now() + Duration::from_mins(1),
        [5, 6, 7].map(claim),
    );
    let mut first = pin!(store.write(&writes[0], deadline));
    let mut joins = pin!(store.write(&writes[1], deadline));
    assert!(is_pending(first.as_mut()) && is_pending(joins.as_mut()));
    {
        let mut leaves = pin!(store.write(&writes[2], deadline));
        assert!(is_pending(leaves.as_mut()));
    }
    assert!(is_pending(first.as_mut()));
    assert_eq!(gate.sizes(), [1, 2, 2]);
    gate.open.add_permits(1);
    let (first, joins) = tokio::join!(first, joins);
    assert!(matches!(first, Ok(Answer::Applied(_))), "{first:?}");
    assert!(matches!(joins, Ok(Answer::Applied(_))), "{joins:?}");
    assert_eq!(gate.records.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_second_request_after_a_crowd_leaves_without_a_yield() {
    let (gate, store) = after_a_crowd(3).await;
    gate.open.add_permits(1);
    all_applied(vec![start(&store, claim(5), 60)]).await;
    assert_eq!(gate.sizes(), [1, 2, 1]);
    let write = claim(6);
    let mut second = pin!(store.write(&write, Instant::now() + Duration::from_mins(1)));
    assert!(is_pending(second.as_mut()));
    assert_eq!(gate.sizes(), [1, 2, 1, 1]);
}

/// Polls a future once.
fn is_pending(future: Pin<&mut impl Future>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.poll(&mut context).is_pending()
}
