//! The queue of endings keeps completions, the youngest, and the smaller outcomes, and shows none.

use super::*;
use crate::engine::Begun;
use crate::engine::run::Protection;
use crate::idempotency::Idempotency;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::key::Key;
use crate::protocol::record::{DROPPED, Owner, Release, Status};
use crate::store::MemoryStore;

const SECRET: &str = "the outcome";

/// Leaves completions with outcomes of these sizes, and three releases behind the first; tells which of the
/// completions are kept: the sizes of their outcomes, `None` where it is left out. And the last errors of the
/// releases that are kept: of a dropped run, of a claim that may have applied, of one that may still arrive.
async fn kept(sizes: &[usize]) -> (Vec<Option<usize>>, Vec<Option<String>>) {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("tests");
    let once = builder.build().unwrap();
    let Begun::Run(run) = once.begin(Key::new("charge", "1"), None).await.unwrap() else {
        panic!("it is new");
    };
    let Protection::Claimed(request, hold) = &run.protection else {
        panic!("it is claimed");
    };
    for size in sizes {
        let completion = Completion {
            id: request.id.clone(),
            owner: hold.owner.clone(),
            status: Status::Completed,
            completed_at: EpochMillis(0),
            expiration: EpochSeconds(0),
            outcome: StoredOutcome::Inline(SECRET.chars().cycle().take(*size).collect()),
        };
        let is_first = lock(&run.engine.unsent.endings).is_empty();
        run.engine.leave(request, hold, completion.into(), None);
        if is_first {
            run.engine.leave_release(request, hold, DROPPED);
            run.engine.leave_release(request, hold, WITHOUT_REPLY);
            let late = Release {
                id: request.id.clone(),
                owner: hold.owner.clone(),
                tombstone: Owner::random().unwrap(),
                last_error: None,
                forget_fingerprint: false,
            };
            run.engine.leave_for_later(request, hold, late, 0);
        }
    }
    let unsent = &run.engine.unsent;
    assert!(!format!("{unsent:?}").contains(SECRET));
    let is_empty = lock(&unsent.endings).is_empty();
    assert_eq!(unsent.has_due(&request.id), !is_empty);
    let next = unsent.next(&request.id);
    assert_eq!(next.len(), lock(&unsent.endings).len().min(AT_ONCE));
    // What may still arrive comes last.
    assert!(next.iter().map(|unsent| unsent.later.is_some()).is_sorted());
    let endings = lock(&unsent.endings);
    let outcomes = endings.iter().filter_map(|unsent| match &unsent.write {
        RecordWrite::Complete(completion) => match &completion.outcome {
            StoredOutcome::Inline(text) => Some(Some(text.len())),
            StoredOutcome::Omitted(Omission::NotKept) => Some(None),
            other => panic!("{other:?}"),
        },
        _ => None,
    });
    let releases = endings.iter().filter_map(|unsent| match &unsent.write {
        RecordWrite::Release(release) => Some(release.last_error.clone()),
        _ => None,
    });
    (outcomes.collect(), releases.collect())
}

#[tokio::test]
async fn the_largest_outcomes_are_left_out_where_they_are_too_large_together() {
    let half = MOST_BYTES / 2;
    for (sizes, expected) in [
        (&[MOST_BYTES][..], &[Some(MOST_BYTES)][..]),
        (&[MOST_BYTES - 1, 1], &[Some(MOST_BYTES - 1), Some(1)]),
        (&[MOST_BYTES, 1], &[None, Some(1)]),
        // What was left out takes no room.
        (&[MOST_BYTES + 1, MOST_BYTES], &[None, Some(MOST_BYTES)]),
        (&[half, half, half], &[None, Some(half), Some(half)]),
        (
            &[1, 2, MOST_BYTES + 1, 3],
            &[Some(1), Some(2), None, Some(3)],
        ),
    ] {
        assert_eq!(kept(sizes).await.0, expected);
    }
}

#[tokio::test]
async fn releases_are_discarded_before_completions_and_then_the_oldest_ones_are() {
    let said = |last_error: &str| Some(last_error.to_owned());
    let (dropped, unanswered) = (said(DROPPED), said(WITHOUT_REPLY));
    for (count, expected) in [
        (MOST - 3, vec![dropped.clone(), unanswered.clone(), None]),
        (MOST - 2, vec![dropped.clone(), unanswered]),
        (MOST - 1, vec![dropped]),
        (MOST, vec![]),
    ] {
        let (outcomes, releases) = kept(&vec![1; count]).await;
        assert_eq!((outcomes.len(), releases), (count, expected));
    }
    let sizes: Vec<_> = (0..=MOST).collect();
    let expected: Vec<_> = (1..=MOST).map(Some).collect();
    assert_eq!(kept(&sizes).await.0, expected);
}
