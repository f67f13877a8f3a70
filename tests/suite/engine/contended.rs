//! The claimless form on a key that changes under its hands.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use lambda_idempotency::protocol::record::{Owner, RELEASED, RecordWrite};
use lambda_idempotency::protocol::transition;
use lambda_idempotency::store::Answer;
use lambda_idempotency::store::transaction::{Commit, Committed, Write, WriteError};
use lambda_idempotency::{EpochSeconds, RecordId, StoreError};

use super::*;

/// Each commit meets a record that others released meanwhile; the last one its own, since the reply to an earlier send was lost.
#[derive(Clone, Default)]
struct Contended {
    table: MemoryStore,
    commits: Arc<AtomicI64>,
}

impl Contended {
    const ROUNDS: i64 = 3;
}

impl Store for Contended {
    fn admission(&self) -> Option<fn(&[Write], &Write) -> Result<(), WriteError>> {
        Some(|_, _| Ok(()))
    }

    async fn commit(&self, commit: Commit<'_>, _: Instant) -> Result<Committed, StoreError> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let sent = commit.record.expect("a record");
        let Some(RecordWrite::Create(claim) | RecordWrite::TakeOver { claim, .. }) = &sent.claim
        else {
            panic!("no claim came before")
        };
        let mut met = Record::claimed(claim);
        if number == Self::ROUNDS {
            let left = transition(Some(&met), &sent.completion.clone().into());
            met = left.expect("held by this owner");
        } else {
            met.owner = Some(Owner::from_stored(format!("other {number}")));
            met.lease = Some(RELEASED);
            met.expiration = EpochSeconds(met.expiration.0 + number);
        }
        Ok(Committed::Fenced(Some(Found::readable(met))))
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        self.table.load(id, deadline).await
    }

    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        self.table.write(write, deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn its_own_record_in_the_last_round_is_its_success() {
    let store = Contended::default();
    let once = Idempotency::builder(store.clone())
        .namespace("engine")
        .build()
        .unwrap()
        .claimless();
    let run = once.run(key(), payload(), async |_| Ok::<_, Infallible>(1));
    assert_eq!(run.await.unwrap(), Outcome::Executed(1));
    let commits = store.commits.load(Ordering::Relaxed);
    assert_eq!(commits, Contended::ROUNDS);
}
