//! The fate of a completion whose condition failed.

use super::*;
use crate::protocol::key::{Key, Namespace};

fn sent() -> Completion {
    Completion {
        id: Key::new("op", "t")
            .resolve(&Namespace::new("n").unwrap(), 255)
            .unwrap(),
        owner: Owner::from_stored("me"),
        status: Status::Completed,
        outcome: StoredOutcome::Inline("1".into()),
        completed_at: NOW,
        expiration: expiring(86_400_000),
    }
}

fn applied() -> Record {
    Record {
        owner: Some(Owner::from_stored("me")),
        completed_at: Some(NOW),
        ..completed()
    }
}

fn settled(record: Record) -> String {
    let found = Found::readable(record);
    match settle(Some(&found), &sent(), Some(&Fingerprint::bytes(b"payload"))) {
        Settled::Recorded => "recorded".into(),
        Settled::Superseded(_) => "superseded".into(),
        Settled::Lost => "lost".into(),
    }
}

#[test]
fn my_own_completion_counts_as_recorded() {
    assert_eq!(settled(applied()), "recorded");
}

#[test]
fn it_counts_only_if_time_and_outcome_are_mine() {
    let other_time = Record {
        completed_at: Some(at(1)),
        ..applied()
    };
    assert_eq!(settled(other_time), "superseded");
    let other_outcome = Record {
        outcome: Some(StoredOutcome::Inline("2".into())),
        ..applied()
    };
    assert_eq!(settled(other_outcome), "superseded");
}

#[test]
fn it_counts_only_if_the_owner_is_me_and_the_status_is_mine() {
    let others = Record {
        owner: Some(Owner::from_stored("other")),
        ..applied()
    };
    assert_eq!(settled(others), "superseded");
    let failed = Record {
        status: Status::Failed,
        ..applied()
    };
    assert_eq!(settled(failed), "lost");
}

#[test]
fn a_successors_outcome_stands_if_the_payload_is_the_same() {
    assert_eq!(settled(completed()), "superseded");
    let other_payload = Record {
        fingerprint: Some(Fingerprint::bytes(b"other")),
        ..completed()
    };
    assert_eq!(settled(other_payload), "lost");
}

#[test]
fn a_successor_at_work_or_failed_a_release_and_nothing_at_all_mean_lost() {
    let failed = Record {
        status: Status::Failed,
        ..completed()
    };
    assert_eq!(settled(failed), "lost");
    assert_eq!(settled(in_progress()), "lost");
    assert_eq!(settled(released()), "lost");
    assert_eq!(settle(None, &sent(), None), Settled::Lost);
    let unreadable = Found::unreadable(Version::default(), "?");
    assert_eq!(settle(Some(&unreadable), &sent(), None), Settled::Lost);
}
