use std::time::Duration;

use super::*;

fn queue() -> Queue<RecordId, ()> {
    Queue::new(|id| id)
}

/// Puts a request for this record into the queue, with a deadline in so many seconds.
fn push(queue: &Queue<RecordId, ()>, record: &str, began: Instant, seconds: u64) {
    let (reply, _) = oneshot::channel();
    let deadline = began + Duration::from_secs(seconds);
    queue.push(RecordId::unkeyed(record), reply, deadline);
}

/// The records of each group, in the order in which the groups leave.
fn groups(queue: &Queue<RecordId, ()>) -> Vec<Vec<RecordId>> {
    std::iter::from_fn(|| queue.next())
        .map(|group| group.requests)
        .collect()
}

#[test]
fn two_requests_for_one_record_leave_in_two_groups() {
    let (queue, began) = (queue(), Instant::now());
    for record in ["a", "b", "a", "c"] {
        push(&queue, record, began, 9);
    }
    let [a, b, c] = ["a", "b", "c"].map(RecordId::unkeyed);
    assert_eq!(groups(&queue), [vec![a.clone(), b], vec![a, c]]);
}

#[test]
fn a_group_has_the_earliest_deadline_of_its_requests() {
    let began = Instant::now();
    for seconds in [[3, 7, 9], [9, 3, 7], [9, 7, 3]] {
        let queue = queue();
        for (record, seconds) in ["a", "b", "c"].into_iter().zip(seconds) {
            push(&queue, record, began, seconds);
        }
        let group = queue.next().unwrap();
        assert_eq!(group.requests.len(), 3);
        assert_eq!(
            group.deadline,
            began + Duration::from_secs(3),
            "{seconds:?}"
        );
    }
}

#[test]
fn the_next_group_has_a_deadline_of_its_own() {
    let (queue, began) = (queue(), Instant::now());
    push(&queue, "a", began, 3);
    push(&queue, "a", began, 9);
    let deadlines: Vec<_> = std::iter::from_fn(|| queue.next())
        .map(|group| group.deadline - began)
        .collect();
    assert_eq!(deadlines, [3, 9].map(Duration::from_secs));
}

#[test]
fn no_group_has_more_requests_than_one_call_takes() {
    let (queue, began) = (queue(), Instant::now());
    for number in 0..=2 * GROUP {
        push(&queue, &number.to_string(), began, 9);
    }
    let sizes: Vec<_> = groups(&queue).iter().map(Vec::len).collect();
    assert_eq!(sizes, [GROUP, GROUP, 1]);
}

#[tokio::test]
async fn a_request_without_an_answer_in_its_group_has_timed_out() {
    let grouped = Groups::new();
    let deadline = Instant::now() + Duration::from_secs(9);
    let ids = ["a", "b"].map(RecordId::unkeyed);
    let [answered, unanswered] = ids.each_ref().map(|id| grouped.load(id, deadline));
    let answer_one = async {
        let group = grouped.reads.next().unwrap();
        assert_eq!(group.requests, ids);
        group.answer(vec![Ok(None)]);
    };
    let (answered, unanswered, ()) = tokio::join!(answered, unanswered, answer_one);
    assert!(matches!(answered, Ok(None)));
    assert!(matches!(unanswered, Err(StoreError::Timeout)));
}
