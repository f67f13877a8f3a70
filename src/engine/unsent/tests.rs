//! The queue of endings keeps the youngest, and shows no outcome.

use super::*;
use crate::engine::Begun;
use crate::engine::protection::Protection;
use crate::idempotency::Idempotency;
use crate::protocol::key::Key;
use crate::protocol::record::{Owner, Release};
use crate::store::MemoryStore;

const SECRET: &str = "the outcome";

/// Leaves endings with outcomes of these sizes, and tells how many are kept.
async fn kept(sizes: &[usize]) -> usize {
    let builder = Idempotency::builder(MemoryStore::new()).namespace("tests");
    let once = builder.build().unwrap();
    let Begun::Run(run) = once.begin(Key::new("charge", "1"), None).await.unwrap() else {
        panic!("it is new");
    };
    let Protection::Claimed(request, hold) = &run.protection else {
        panic!("it is claimed");
    };
    for size in sizes {
        let (id, tombstone) = (request.id.clone(), Owner::random().unwrap());
        let release = Release::new(id, hold.owner.clone(), tombstone);
        let large = SECRET.chars().cycle().take(*size).collect();
        run.engine.leave(request, hold, release.into(), Some(large));
    }
    let unsent = &run.engine.unsent;
    assert!(!format!("{unsent:?}").contains(SECRET));
    let kept = unsent.lock().len();
    assert_eq!(unsent.is_empty(), kept == 0);
    kept
}

#[tokio::test]
async fn the_oldest_endings_are_discarded_where_their_outcomes_are_too_large_together() {
    assert_eq!(kept(&[MOST_BYTES]).await, 1);
    assert_eq!(kept(&[MOST_BYTES - 1, 1]).await, 2);
    assert_eq!(kept(&[MOST_BYTES, 1]).await, 1);
    assert_eq!(
        kept(&[MOST_BYTES / 2, MOST_BYTES / 2, MOST_BYTES / 2]).await,
        2
    );
    assert_eq!(kept(&[1, MOST_BYTES + 1]).await, 0);
}

#[tokio::test]
async fn the_oldest_endings_are_discarded_where_there_are_too_many() {
    assert_eq!(kept(&[0; MOST]).await, MOST);
    assert_eq!(kept(&[0; MOST + 1]).await, MOST);
}
