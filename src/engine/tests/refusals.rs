//! A business condition that fails, or a completion that no table takes: what holds all the same.

use super::*;
use crate::engine::{Begun, Disposition, Ended};
use crate::protocol::record::{RecordWrite, Takeover};
use crate::store::transaction::Refusal;

/// A claim ends in one of these ways while its transaction is refused.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    /// The first send, which got no answer, applies after all.
    Committed,
    /// Another attempt takes the record over.
    TakenOver,
    /// Each send is answered, and the claim can't be released.
    Unreleased,
}

/// Refuses a business write, after a send without an answer where one is told of.
#[derive(Debug)]
struct Refusing {
    meanwhile: Meanwhile,
    sends: AtomicU32,
}

impl Script for Refusing {
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        match (self.meanwhile, write) {
            (Meanwhile::Unreleased, RecordWrite::Release(_)) => {
                Err(StoreError::Denied("no permission".into()))
            }
            _ => at.table.write(write, at.deadline).await,
        }
    }

    async fn commit(&self, at: At<'_>, commit: Commit<'_>) -> Result<Committed, StoreError> {
        let is_first = self.sends.fetch_add(1, Ordering::Relaxed) == 0;
        let At { table, deadline } = at;
        let completion = &commit.record.unwrap().completion;
        match self.meanwhile {
            Meanwhile::Unreleased => {}
            _ if is_first => return Err(StoreError::Unavailable("no reply".into())),
            Meanwhile::Committed => {
                table.write(&completion.clone().into(), deadline).await?;
            }
            Meanwhile::TakenOver => {
                let found = table.load(&completion.id, deadline).await?.unwrap();
                let record = found.content.unwrap();
                let (lease, began) = (record.lease.unwrap(), record.started_at.unwrap());
                let (id, owner) = (completion.id.clone(), completion.owner.clone());
                let claim = NewClaim::new(id, owner, began, lease, record.expiration);
                let next = RecordWrite::TakeOver {
                    seen: found.version,
                    mode: Takeover::Resume,
                    claim: others(&claim, record.attempt + 1),
                };
                table.write(&next, deadline).await?;
            }
        }
        Ok(Committed::Refused(Refusal::new(0, None)))
    }
}

async fn refused(meanwhile: Meanwhile) -> Result<Outcome<i32>, Error<Infallible>> {
    let sends = AtomicU32::new(0);
    write(&engine(Refusing { meanwhile, sends })).await
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_send_that_applies_meanwhile_is_no_refusal() {
    let ended = refused(Meanwhile::Committed).await;
    assert_eq!(ended.unwrap(), Outcome::Executed(1));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_holds_where_a_successor_keeps_the_silent_send_from_applying() {
    let ended = refused(Meanwhile::TakenOver).await;
    assert_matches!(ended, Err(Error::Refused(_)));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_needs_no_release_where_each_send_was_answered() {
    let ended = refused(Meanwhile::Unreleased).await;
    assert_matches!(ended, Err(Error::Refused(_)));
}

/// Claims pass, and an index of the table takes no completion.
fn takes_no_completion(write: &RecordWrite) -> Option<Result<Answer, StoreError>> {
    let refused = || Err(StoreError::Misconfigured("an index differs".into()));
    matches!(write, RecordWrite::Complete(_)).then(refused)
}

#[tokio::test(start_paused = true)]
async fn after_a_completion_that_the_table_never_takes_one_claim_a_minute_is_made() {
    let once = engine(Replies::default().on_write(takes_no_completion));
    let effects = AtomicU32::new(0);
    let charge = async |order: &str| {
        let run = once.run(Key::new("charge", order), payload(), async |_| {
            Ok::<_, Infallible>(effects.fetch_add(1, Ordering::Relaxed))
        });
        run.await
    };
    assert_eq!(charge("1").await.unwrap(), Outcome::Unrecorded(0));
    let paused = charge("2").await;
    assert_matches!(paused, Err(Error::Store(StoreError::Denied(_))));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(charge("2").await.unwrap(), Outcome::Unrecorded(1));
    assert_matches!(charge("3").await, Err(Error::Store(_)));
    assert_eq!(effects.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_meets_another_attempt_does_not_end_the_pause_of_claims() {
    let completions = AtomicU32::new(0);
    let once = engine(Replies::default().on_write(move |write| {
        if !matches!(write, RecordWrite::Complete(_)) {
            return None;
        }
        match completions.fetch_add(1, Ordering::Relaxed) {
            0 => takes_no_completion(write),
            1 => Some(Ok(Answer::Refused(None))),
            _ => None,
        }
    }));
    let begin = async |order: &str| match once.begin(Key::new("charge", order), payload()).await {
        Ok(Begun::Run(run)) => Some(run),
        _ => None,
    };
    let done = || Disposition::Complete(Ok("1".to_owned()));
    let (first, second) = (begin("1").await.unwrap(), begin("2").await.unwrap());
    assert_matches!(first.end(done()).await, Ok(Ended::Unrecorded(_)));
    assert_matches!(second.end(done()).await, Err(Error::LeaseLost));
    assert!(begin("3").await.is_none());
    sleep(Duration::from_mins(1)).await;
    let trial = begin("3").await.unwrap();
    assert_matches!(trial.end(done()).await, Ok(Ended::Done));
    assert!(begin("4").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_applies_ends_the_pause_of_claims() {
    let is_granted = AtomicBool::new(false);
    let granted_later = Replies::default().on_write(move |write| {
        let is_denied =
            matches!(write, RecordWrite::Complete(_)) && !is_granted.swap(true, Ordering::Relaxed);
        is_denied.then(|| Err(StoreError::Denied("no permission".into())))
    });
    let once = engine(granted_later.on_commit(|| Ok(Committed::Applied)));
    let charge = async |order: &str| {
        let key = Key::new("charge", order);
        once.run(key, payload(), async |_| Ok::<_, Infallible>(1))
            .await
    };
    assert_eq!(charge("2").await.unwrap(), Outcome::Unrecorded(1));
    let paused = charge("3").await;
    assert_matches!(
        &paused,
        Err(Error::Store(StoreError::Denied(reason)))
            if reason.to_string().contains("or the store's certificate")
    );
    sleep(Duration::from_mins(1)).await;
    assert_eq!(write(&once).await.unwrap(), Outcome::Executed(1));
    for order in ["3", "4"] {
        assert_eq!(charge(order).await.unwrap(), Outcome::Executed(1));
    }
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_raw_id_belongs_to_its_first_operation() {
    use crate::store::{CachedStore, MemoryStore};
    use crate::{Idempotency, Outcome};

    let cached = CachedStore::new(MemoryStore::new());
    for builder in [
        Idempotency::builder(MemoryStore::new()),
        Idempotency::builder(cached),
    ] {
        let once = builder.namespace("shop").build().unwrap();
        let run = async |operation: &str, payload: Option<&[u8]>| {
            let key = Key::raw(operation, "order-17");
            let payload = payload.map(Fingerprint::bytes);
            let handler = |_| async { Ok::<_, std::fmt::Error>(operation.to_owned()) };
            once.run(key, payload, handler).await
        };
        let charged = run("charge", None).await;
        assert_matches!(charged, Ok(Outcome::Executed(_)));
        let again = run("charge", Some(b"a")).await;
        assert_matches!(again, Ok(Outcome::Replayed(..)));
        for payload in [None, Some(&b"a"[..])] {
            let refunded = run("refund", payload).await;
            assert_matches!(refunded, Err(Error::Mismatch));
        }
    }
}
