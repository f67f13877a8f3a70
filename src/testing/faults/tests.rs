//! Tests of the module above.

use super::*;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::key::{Key, Namespace};
use crate::protocol::record::{Completion, NewClaim, Owner, Status, StoredOutcome};
use crate::store::MemoryStore;

fn claim() -> NewClaim {
    NewClaim {
        id: Key::new("charge", "A-17")
            .resolve(&Namespace::new("tests").unwrap(), 255)
            .unwrap(),
        owner: Owner::from_stored("me"),
        fingerprint: None,
        attempt: 1,
        lease: EpochMillis(60_000),
        expiration: EpochSeconds(120),
        started_at: EpochMillis(0),
    }
}

fn completion() -> Completion {
    let claim = claim();
    Completion {
        id: claim.id,
        owner: claim.owner,
        status: Status::Completed,
        outcome: StoredOutcome::Inline("1".to_owned()),
        completed_at: EpochMillis(1_000),
        expiration: EpochSeconds(120),
    }
}

/// A wire whose first claim meets this fault.
fn wire(fault: Fault) -> FaultyStore {
    let wire = FaultyStore::new(MemoryStore::new());
    wire.inject(Call::Create, fault);
    wire
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn in_a_minute() -> Instant {
    Instant::now() + seconds(60)
}

#[tokio::test(start_paused = true)]
async fn a_delayed_write_arrives_although_its_caller_is_gone() {
    let wire = wire(Fault::Delayed(seconds(5)));
    let claim = claim();
    let write = RecordWrite::from(claim.clone());
    let call = wire.write(&write, in_a_minute());
    assert!(tokio::time::timeout(seconds(1), call).await.is_err());
    assert_eq!(wire.load(&claim.id, in_a_minute()).await.unwrap(), None);
    tokio::time::sleep(seconds(4)).await;
    let found = wire.load(&claim.id, in_a_minute()).await.unwrap();
    assert_eq!(found.unwrap().version.owner.as_deref(), Some("me"));
}

#[tokio::test(start_paused = true)]
async fn a_write_arrives_although_its_caller_is_gone_while_it_is_written() {
    for fault in [Fault::Late(seconds(1)), Fault::Delayed(seconds(1))] {
        let table = FaultyStore::new(MemoryStore::new());
        let wire = FaultyStore::new(table.clone());
        wire.inject(Call::Create, fault);
        // The first caller that it is written for waits without end.
        table.crash_before(Call::Create);
        let claim = claim();
        let write = RecordWrite::from(claim.clone());
        let _ = tokio::time::timeout(seconds(2), wire.write(&write, in_a_minute())).await;
        tokio::time::sleep(seconds(2)).await;
        let _ = tokio::time::timeout(seconds(2), wire.load(&claim.id, in_a_minute())).await;
        let found = wire.load(&claim.id, in_a_minute()).await.unwrap();
        assert!(found.is_some(), "{fault}");
        assert!(lock(&wire.state).late.is_empty(), "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_write_arrives_once_where_its_caller_waits() {
    let wire = wire(Fault::Delayed(seconds(5)));
    let claim = claim();
    let write = RecordWrite::from(claim.clone());
    let answer = wire.write(&write, in_a_minute()).await;
    assert_matches!(answer, Ok(Answer::Applied(_)));
    assert!(lock(&wire.state).late.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_reply_is_delayed_has_applied_before_it_is_answered() {
    for (pause, answered) in [(5, true), (90, false)] {
        let wire = wire(Fault::ReplyDelayed(seconds(pause)));
        let claim = claim();
        let write = RecordWrite::from(claim.clone());
        let deadline = in_a_minute();
        let call = wire.write(&write, deadline);
        let look = async {
            tokio::time::sleep(seconds(1)).await;
            wire.load(&claim.id, in_a_minute()).await
        };
        let (answer, found) = futures_util::future::join(call, look).await;
        assert!(
            found.unwrap().is_some(),
            "it stands before the answer comes"
        );
        match answer {
            Ok(Answer::Applied(_)) => assert!(answered),
            Err(StoreError::Timeout) => assert!(!answered && Instant::now() >= deadline),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copied_write_is_answered_and_arrives_once_more() {
    let table = MemoryStore::new();
    let wire = FaultyStore::new(table.clone());
    wire.inject(Call::Create, Fault::Copied(seconds(5)));
    let claim = claim();
    let write = RecordWrite::from(claim.clone());
    let answer = wire.write(&write, in_a_minute()).await;
    assert_matches!(answer, Ok(Answer::Applied(_)));
    let done = wire.write(&completion().into(), in_a_minute()).await;
    assert_matches!(done, Ok(Answer::Applied(_)));
    // TTL deletes the record: the copy of the claim finds nothing, and makes it anew.
    table.sweep(EpochMillis(200_000));
    assert_eq!(wire.load(&claim.id, in_a_minute()).await.unwrap(), None);
    tokio::time::sleep(seconds(6)).await;
    let found = wire.load(&claim.id, in_a_minute()).await.unwrap().unwrap();
    assert_eq!(found.content.unwrap().status, Status::InProgress);
    let met = wire.met();
    assert_eq!(met.get(&(Call::Create, "copied")), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn what_is_late_arrives_before_the_next_call() {
    let wire = wire(Fault::Late(Duration::from_hours(1)));
    let claim = claim();
    let lost = wire.write(&claim.clone().into(), in_a_minute()).await;
    assert_matches!(lost, Err(StoreError::Unavailable(_)));
    assert_eq!(wire.load(&claim.id, in_a_minute()).await.unwrap(), None);
    tokio::time::sleep(Duration::from_hours(1)).await;
    let found = wire.load(&claim.id, in_a_minute()).await.unwrap();
    assert_eq!(found.unwrap().version.owner.as_deref(), Some("me"));
    assert!(lock(&wire.state).late.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wire_without_faults_keeps_the_contract() {
    let wire = FaultyStore::new(MemoryStore::new());
    crate::testing::conformance(&wire).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_may_be_longer_than_the_clock_holds() {
    for fault in [
        Fault::Late(Duration::MAX),
        Fault::Delayed(Duration::MAX),
        Fault::ReplyDelayed(Duration::MAX),
        Fault::Copied(Duration::MAX),
    ] {
        let written = wire(fault).write(&claim().into(), in_a_minute()).await;
        let is_answered = matches!(fault, Fault::Copied(_));
        assert_eq!(written.is_ok(), is_answered, "{fault}: {written:?}");
    }
}
