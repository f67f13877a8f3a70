use lambda_idempotency::Key;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, Fault, FaultyStore};
use lambda_idempotency::{Claim, Idempotency};

use super::*;
use crate::context;

fn order(ending: Ending) -> Order {
    let act = Act {
        at: 0,
        act: "test".to_owned(),
        by: "alice".to_owned(),
        reason: "a test".to_owned(),
    };
    Order { ending, act }
}

fn completed() -> Ending {
    Ending::Final {
        status: Status::Completed,
        outcome: StoredOutcome::Inline("17".to_owned()),
        expiration: EpochSeconds(4_000_000_000),
    }
}

/// A store with the record of a handler that failed.
async fn released() -> (FaultyStore<MemoryStore>, RecordId, Found) {
    let store = FaultyStore::new(MemoryStore::new());
    let engine = Idempotency::builder(store.clone())
        .namespace("payments")
        .build()
        .unwrap();
    let key = Key::new("charge", "A-17");
    let fails = async |_claim: Claim| Err::<(), _>(std::io::Error::other("it failed"));
    assert!(engine.run(key.clone(), None, fails).await.is_err());
    let id = engine.record_id(&key).unwrap();
    let found = store.load(&id, deadline()).await.unwrap().unwrap();
    (store, id, found)
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

async fn give(
    store: &FaultyStore<MemoryStore>,
    id: &RecordId,
    found: &Found,
    ending: Ending,
) -> Result<(), Failure> {
    let timeout = Duration::from_secs(1);
    carry_out(store, id, found, &order(ending), context::now(), timeout).await
}

#[tokio::test]
async fn a_lost_reply_is_proven_by_what_the_record_is() {
    for call in [Call::TakeOver, Call::Amend, Call::Complete] {
        let (store, id, found) = released().await;
        store.inject(call, Fault::ReplyLost);
        give(&store, &id, &found, completed()).await.unwrap();
        let left = store.load(&id, deadline()).await.unwrap().unwrap();
        assert_eq!(left.content.unwrap().status, Status::Completed);
    }
    let (store, id, found) = released().await;
    store.inject(Call::Release, Fault::ReplyLost);
    give(&store, &id, &found, Ending::Released).await.unwrap();
}

#[tokio::test]
async fn a_record_that_moved_is_left_alone() {
    let (store, id, found) = released().await;
    give(&store, &id, &found, Ending::Released).await.unwrap();
    let moved = store.load(&id, deadline()).await.unwrap();
    let refused = give(&store, &id, &found, completed()).await.unwrap_err();
    assert!(matches!(refused, Failure::Moved(_)), "{refused:?}");
    assert_eq!(store.load(&id, deadline()).await.unwrap(), moved);
}

#[tokio::test]
async fn an_end_of_the_process_in_between_leaves_no_record_that_runs() {
    let (store, id, found) = released().await;
    let record = found.content.as_deref().unwrap();
    let owners = [Owner::random().unwrap(), Owner::random().unwrap()];
    let now = context::now();
    let writes = writes(&id, &found, record, &order(completed()), owners, now);
    for write in writes.iter().take(writes.len() - 1) {
        assert!(store.write(write, deadline()).await.unwrap().is_applied());
        let left = store.load(&id, deadline()).await.unwrap().unwrap();
        let left = left.content.unwrap();
        let expires = left.expiration.to_millis();
        assert_eq!(left.lease, Some(expires), "held until it expires");
    }
}
