//! The time from which a record counts as absent.

use super::*;

#[test]
fn a_final_record_expires_at_its_expiration_plus_the_margin() {
    for status in [Status::Completed, Status::Failed] {
        let expired = Record {
            status,
            expiration: expiring(-1_000),
            ..completed()
        };
        assert_eq!(on(&expired), "take over fresh, attempt 1");
        let within_margin = Record {
            status,
            expiration: expiring(0),
            ..completed()
        };
        assert!(on(&within_margin).starts_with("replay"));
    }
}

#[test]
fn a_record_in_progress_expires_only_when_its_lease_is_over_too() {
    let leased = Record {
        expiration: expiring(-60_000),
        ..in_progress()
    };
    assert_eq!(on(&leased), "in flight for 30000 ms");
    let over = Record {
        lease: Some(NOW),
        ..leased
    };
    assert_eq!(on(&over), "take over fresh, attempt 1");
}

#[test]
fn a_released_record_past_its_retention_is_fresh_again() {
    let old = Record {
        expiration: expiring(-60_000),
        ..released()
    };
    assert_eq!(on(&old), "take over fresh, attempt 1");
}

#[test]
fn a_record_that_cannot_be_read_is_left_alone_until_it_expires() {
    let version = Version {
        expiration: Some(expiring(86_400_000).0),
        ..Version::default()
    };
    let found = Found::unreadable(version.clone(), "layout version 9");
    assert_eq!(on_found(&found, &rules()), "unreadable: layout version 9");
    let unknown_age = Found::unreadable(Version::default(), "`expiration` is not a number");
    assert_eq!(
        on_found(&unknown_age, &rules()),
        "unreadable: `expiration` is not a number"
    );
    let expired = Found::unreadable(
        Version {
            expiration: Some(expiring(-60_000).0),
            ..version
        },
        "layout version 9",
    );
    assert_eq!(on_found(&expired, &rules()), "take over fresh, attempt 1");
}

#[test]
fn an_unreadable_record_keeps_a_lease_that_it_may_have() {
    let version = Version {
        expiration: Some(expiring(-60_000).0),
        lease: Some(at(10_000).0),
        status: Some("RUNNING".into()),
        owner: Some("theirs".into()),
    };
    let found = Found::unreadable(version, "unknown status");
    assert_eq!(on_found(&found, &rules()), "unreadable: unknown status");
}
