//! The queue of endings keeps the youngest, and the smaller outcomes, and shows none.

use super::*;
use crate::engine::Begun;
use crate::engine::run::Protection;
use crate::idempotency::Idempotency;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::key::Key;
use crate::protocol::record::{Owner, Release, Status};
use crate::store::MemoryStore;

const SECRET: &str = "the outcome";

/// Leaves the release of a claim that may still arrive, and then completions with outcomes of these sizes;
/// tells which of the completions are kept: the sizes of their outcomes, `None` where it is left out. The
/// release is discarded before any of them.
async fn kept(sizes: &[usize]) -> Vec<Option<usize>> {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("tests");
    let once = builder.build().unwrap();
    let Begun::Run(run) = once.begin(Key::new("charge", "1"), None).await.unwrap() else {
        panic!("it is new");
    };
    let Protection::Claimed(request, hold) = &run.protection else {
        panic!("it is claimed");
    };
    let tombstone = Owner::random().unwrap();
    let release = Release {
        id: request.id.clone(),
        owner: hold.owner.clone(),
        tombstone,
        last_error: None,
        forget_fingerprint: false,
    };
    run.engine.leave_for_later(request, hold, release, 0);
    for size in sizes {
        let completion = Completion {
            id: request.id.clone(),
            owner: hold.owner.clone(),
            status: Status::Completed,
            completed_at: EpochMillis(0),
            expiration: EpochSeconds(0),
            outcome: StoredOutcome::Inline(SECRET.chars().cycle().take(*size).collect()),
        };
        run.engine.leave(request, hold, completion.into(), None);
    }
    let unsent = &run.engine.unsent;
    assert!(!format!("{unsent:?}").contains(SECRET));
    assert_eq!(unsent.has_due(&request.id), !unsent.lock().is_empty());
    let endings = unsent.lock();
    let outcomes = endings.iter().filter_map(|unsent| match &unsent.write {
        RecordWrite::Complete(completion) => match &completion.outcome {
            StoredOutcome::Inline(text) => Some(Some(text.len())),
            StoredOutcome::Omitted(Omission::NotKept) => Some(None),
            other => panic!("{other:?}"),
        },
        _ => None,
    });
    outcomes.collect()
}

#[tokio::test]
async fn the_largest_outcomes_are_left_out_where_they_are_too_large_together() {
    let half = MOST_BYTES / 2;
    for (sizes, expected) in [
        (&[MOST_BYTES][..], &[Some(MOST_BYTES)][..]),
        (&[MOST_BYTES - 1, 1], &[Some(MOST_BYTES - 1), Some(1)]),
        (&[MOST_BYTES, 1], &[None, Some(1)]),
        (&[half, half, half], &[None, Some(half), Some(half)]),
        (
            &[1, 2, MOST_BYTES + 1, 3],
            &[Some(1), Some(2), None, Some(3)],
        ),
    ] {
        assert_eq!(kept(sizes).await, expected);
    }
}

#[tokio::test]
async fn the_oldest_endings_are_discarded_where_there_are_too_many() {
    assert_eq!(kept(&[1; MOST]).await.len(), MOST);
    let sizes: Vec<_> = (0..=MOST).collect();
    let expected: Vec<_> = (1..=MOST).map(Some).collect();
    assert_eq!(kept(&sizes).await, expected);
}
