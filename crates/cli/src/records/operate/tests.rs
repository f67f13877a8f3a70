use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use lambda_idempotency::Key;
use lambda_idempotency::protocol::journal::Journal;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, Fault, FaultyStore};
use lambda_idempotency::{Claim, Idempotency};

use super::*;
use crate::context;

fn order(ending: Ending) -> Order {
    let act = Act {
        at: 0,
        act: format!("{ending:?}"),
        by: "alice".to_owned(),
        reason: "a test".to_owned(),
        left: None,
        given: None,
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
async fn released() -> (FaultyStore, RecordId, Found) {
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
    store: &FaultyStore,
    id: &RecordId,
    found: &Found,
    ending: Ending,
) -> Result<Found, Failure> {
    let timeout = Duration::from_secs(1);
    carry_out(store, id, found, &order(ending), context::now(), timeout).await
}

#[tokio::test]
async fn a_lost_reply_is_proven_by_what_the_record_is() {
    for fault in [Fault::ReplyLost, Fault::RequestLost, Fault::Resent] {
        let (store, id, found) = released().await;
        store.inject(Call::Intervene, fault);
        let left = give(&store, &id, &found, completed()).await.unwrap();
        let stands = store.load(&id, deadline()).await.unwrap();
        assert_eq!(Some(&left), stands.as_ref(), "{fault:?}");
        assert_eq!(left.content.unwrap().status, Status::Completed);
    }
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

/// A store that applies an operator's write, lets a delivery take the key, and then gives no answer.
struct Overtaken {
    store: FaultyStore,
    is_over: AtomicBool,
}

impl lambda_idempotency::store::Store for Overtaken {
    async fn write(&self, write: &RecordWrite, deadline: Instant) -> Result<Answer, StoreError> {
        let answer = lambda_idempotency::store::Store::write(&self.store, write, deadline).await;
        if self.is_over.swap(true, Ordering::Relaxed) {
            return answer;
        }
        let once = Idempotency::builder(self.store.clone()).namespace("payments");
        let once = once.build().unwrap();
        let run = once.run(Key::new("charge", "A-17"), None, async |_claim: Claim| {
            Ok::<_, std::io::Error>(17)
        });
        run.await.unwrap();
        Err(StoreError::Timeout)
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        lambda_idempotency::store::Store::load(&self.store, id, deadline).await
    }
}

#[tokio::test]
async fn an_order_that_applied_is_not_told_as_left_alone_where_a_delivery_ran_since() {
    let (store, id, found) = released().await;
    let again = Ending::RunAgain {
        repeats_steps: false,
        renews_keys: true,
    };
    let overtaken = Overtaken {
        store,
        is_over: AtomicBool::new(false),
    };
    let (order, second) = (order(again), Duration::from_secs(1));
    let given = carry_out(&overtaken, &id, &found, &order, context::now(), second).await;
    assert!(given.is_ok(), "{given:?}");
    // Another order is another matter.
    let mut other = order.clone();
    other.act.reason = "another".to_owned();
    let refused = carry_out(&overtaken, &id, &found, &other, context::now(), second).await;
    assert!(matches!(refused, Err(Failure::Moved(_))), "{refused:?}");
}

/// A store that answers each write with the next of these errors, and keeps no large outcome.
struct Failing(Mutex<Vec<StoreError>>);

impl lambda_idempotency::store::Store for Failing {
    async fn write(&self, _: &RecordWrite, _: Instant) -> Result<Answer, StoreError> {
        Err(self.0.lock().unwrap().remove(0))
    }

    async fn load(&self, _: &RecordId, _: Instant) -> Result<Option<Found>, StoreError> {
        Ok(None)
    }
}

#[tokio::test]
async fn it_is_told_whether_a_write_that_failed_may_have_applied() {
    let (_, id, found) = released().await;
    let busy = || StoreError::Throttled("busy".into());
    let denied = || StoreError::Denied("denied".into());
    let unknown = "It isn't known whether it was written";
    for (errors, words) in [
        (
            vec![busy(), busy(), busy(), busy()],
            "The record was left alone",
        ),
        (vec![busy(), denied()], "denied"),
        (vec![StoreError::Timeout, denied()], unknown),
    ] {
        let store = Failing(Mutex::new(errors));
        let (order, second) = (order(Ending::Released), Duration::from_secs(1));
        let given = carry_out(&store, &id, &found, &order, context::now(), second).await;
        let told = given.unwrap_err().to_string();
        assert!(told.contains(words), "{told}");
        assert_eq!(told.contains(unknown), words == unknown, "{told}");
    }
}

#[tokio::test]
async fn an_order_is_carried_out_once_where_it_is_given_again() {
    let (store, id, found) = released().await;
    let left = give(&store, &id, &found, completed()).await.unwrap();
    let record = left.content.as_deref().unwrap();
    let done = |order: &Order, record| matches!(order.carried_out(record), Ok(Some(_)));
    assert!(done(&order(completed()), record));
    let mut other = order(completed());
    other.act.reason = "another".to_owned();
    assert_eq!(other.carried_out(record), Ok(None));
    assert_eq!(order(Ending::Released).carried_out(record), Ok(None));
    let again = Ending::RunAgain {
        repeats_steps: false,
        renews_keys: false,
    };
    let given = give(&store, &id, &left, again.clone()).await.unwrap();
    let record = given.content.as_deref().unwrap();
    assert!(record.is_released() && record.outcome.is_none());
    let mut by_a_colleague = order(again);
    by_a_colleague.act.by = "bob".to_owned();
    assert!(done(&by_a_colleague, record));
}

#[tokio::test]
async fn a_redaction_that_comes_too_late_says_what_it_has_erased() {
    let store = FaultyStore::new(MemoryStore::new());
    let engine = Idempotency::builder(store.clone()).namespace("payments");
    let engine = engine
        .settings(|settings| settings.inline_limit = 10)
        .build()
        .unwrap();
    let key = Key::new("charge", "A-17");
    let large = async |_claim: Claim| Ok::<_, std::io::Error>("more than ten bytes".to_owned());
    engine.run(key.clone(), None, large).await.unwrap();
    let id = engine.record_id(&key).unwrap();
    let found = store.load(&id, deadline()).await.unwrap().unwrap();
    assert!(Kept::of(found.content.as_deref().unwrap()).is_some());
    // Not even that.
    let (redact, second) = (order(Ending::Redacted), Duration::from_secs(1));
    let failing = Failing(Mutex::new(Vec::new()));
    let refused = carry_out(&failing, &id, &found, &redact, context::now(), second).await;
    let words = refused.unwrap_err().to_string();
    assert!(!words.contains("erased"), "{words}");
    give(&store, &id, &found, completed()).await.unwrap();
    let refused = give(&store, &id, &found, Ending::Redacted)
        .await
        .unwrap_err();
    let words = refused.to_string();
    assert!(matches!(refused, Failure::Moved(_)), "{words}");
    assert!(
        words.contains("a large outcome of it may be erased already"),
        "{words}"
    );
    // Nothing of it was elsewhere.
    let (store, id, found) = released().await;
    give(&store, &id, &found, completed()).await.unwrap();
    let refused = give(&store, &id, &found, Ending::Redacted)
        .await
        .unwrap_err();
    assert!(!refused.to_string().contains("erased"), "{refused}");
}

#[test]
fn a_redaction_names_what_an_earlier_attempt_may_have_kept_where_its_store_keeps_it() {
    let id = RecordId::stored("n#o#0f").unwrap();
    let record = |attempt, journal| {
        let mut record = Record::new(Status::Completed, EpochSeconds(4_000_000_000));
        (record.attempt, record.journal) = (attempt, journal);
        record
    };
    let mut held = Record::new(Status::InProgress, EpochSeconds(4_000_000_000));
    held.owner = Some(Owner::from_stored("0f"));
    held.lease = Some(EpochMillis(1));
    let noted = || -> Journal { Kept::note(&held, EpochMillis(2)).into_iter().collect() };
    for (attempt, journal, is_named) in [
        (1, Journal::default(), false),
        (2, Journal::default(), true),
        // It is erased with the rest.
        (1, noted(), false),
        (2, noted(), false),
        (3, noted(), true),
    ] {
        let record = record(attempt, journal);
        for is_in_dynamodb in [false, true] {
            let left = left_by_redaction(&id, &record, is_in_dynamodb);
            assert_eq!(left.is_some(), is_named, "{attempt}: {left:?}");
            let words = left.unwrap_or_default();
            for place in ["n#o#0f#outcome#", "PREFIX"] {
                let expected = is_named && is_in_dynamodb;
                assert_eq!(words.contains(place), expected, "{words}");
            }
        }
    }
}

#[test]
fn a_saga_was_ended_half_done_unless_it_went_forward_or_all_is_undone() {
    let confirmed = |text: &str| StepState::Confirmed(Ok(text.to_owned()));
    let erased = StepState::Confirmed(Err(Omission::Redacted));
    let back =
        confirmed(r#"{"failure":{"kind":"Declined","message":"no"},"confirmed":["charge"]}"#);
    let (pending, undone) = (StepState::Pending, confirmed("null"));
    for (status, saga, undo, is_half_done) in [
        (Status::Failed, &back, &pending, true),
        (Status::Completed, &back, &pending, true),
        (Status::Failed, &erased, &pending, true),
        (Status::Completed, &erased, &pending, true),
        (Status::Failed, &back, &undone, false),
        (Status::Completed, &confirmed("{}"), &pending, false),
        // A rerun had it begin anew.
        (Status::Completed, &StepState::Failed, &pending, false),
        (Status::InProgress, &back, &pending, false),
    ] {
        let mut record = Record::new(status, EpochSeconds(4_000_000_000));
        for (name, state) in [(SAGA, saga), ("charge", &undone), ("charge/undo", undo)] {
            let entry = StepEntry::new(state.clone(), 1, 1, EpochMillis(1));
            record.journal.put(name, entry);
        }
        let found = was_ended_half_done(&record);
        assert_eq!(found, is_half_done, "{status:?}, {saga:?}, {undo:?}");
    }
}
