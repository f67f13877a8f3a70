//! Each row of the decision table, as a sentence.

use super::*;
use crate::clock::EpochSeconds;
use crate::key::{Key, Namespace};
use crate::record::{RELEASED, StoredOutcome};

const NOW: EpochMillis = EpochMillis(1_000_000_000);
const MARGIN: Duration = Duration::from_secs(1);

fn rules() -> Rules {
    Rules {
        crashed: Crashed::RunAgain,
        max_attempts: None,
        skew_margin: MARGIN,
    }
}

fn at(offset_ms: i64) -> EpochMillis {
    EpochMillis(NOW.0 + offset_ms)
}

fn expiring(offset_ms: i64) -> EpochSeconds {
    EpochSeconds((NOW.0 + offset_ms) / 1_000)
}

/// A record of ours, in progress, its lease ending in 30 seconds and its retention in a day.
fn in_progress() -> Record {
    Record {
        owner: Some(Owner::from_stored("other")),
        lease: Some(at(30_000)),
        fingerprint: Some(Fingerprint::bytes(b"payload")),
        layout: Some(LAYOUT),
        attempt: 3,
        ..Record::new(Status::InProgress, expiring(86_400_000))
    }
}

fn completed() -> Record {
    Record {
        status: Status::Completed,
        lease: None,
        outcome: Some(StoredOutcome::Inline("1".into())),
        ..in_progress()
    }
}

fn released() -> Record {
    Record {
        lease: Some(RELEASED),
        fingerprint: None,
        ..in_progress()
    }
}

/// The decision on a record, for an attempt with the same payload.
fn on(record: &Record) -> String {
    on_found(&Found::readable(record.clone()), &rules())
}

fn on_found(found: &Found, rules: &Rules) -> String {
    asked(
        Some(found),
        "me",
        Some(Fingerprint::bytes(b"payload")),
        rules,
    )
}

/// A decision in few words, so that a test reads as a table.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the table is shorter without references"
)]
fn asked(
    found: Option<&Found>,
    owner: &str,
    fingerprint: Option<Fingerprint>,
    rules: &Rules,
) -> String {
    let owner = Owner::from_stored(owner);
    let asking = Asking {
        owner: &owner,
        fingerprint: fingerprint.as_ref(),
        now: NOW,
    };
    match decide(found, asking, rules) {
        Decision::Create => "create".into(),
        Decision::Mine(_) => "mine".into(),
        Decision::TakeOver {
            mode: Takeover::Fresh,
            attempt,
            ..
        } => format!("take over fresh, attempt {attempt}"),
        Decision::TakeOver { attempt, seen, .. } => {
            assert_eq!(Some(seen), found.map(|found| &found.version));
            format!("resume, attempt {attempt}")
        }
        Decision::Replay(_) => "replay".into(),
        Decision::ReplayFailure(_) => "replay failure".into(),
        Decision::Mismatch => "mismatch".into(),
        Decision::InFlight { until } => format!("in flight for {} ms", until.0 - NOW.0),
        Decision::Interrupted { since } => format!("interrupted {} ms ago", NOW.0 - since.0),
        Decision::Exhausted { attempts } => format!("exhausted after {attempts}"),
        Decision::Unreadable(reason) => format!("unreadable: {reason}"),
    }
}

#[test]
fn nothing_there_is_created() {
    assert_eq!(asked(None, "me", None, &rules()), "create");
}

#[test]
fn my_own_record_is_mine_whatever_the_clock_says() {
    let mine = Record {
        lease: Some(at(-60_000)),
        expiration: expiring(-60_000),
        ..in_progress()
    };
    let found = Found::readable(mine);
    assert_eq!(asked(Some(&found), "other", None, &rules()), "mine");
    let done = Found::readable(completed());
    assert_eq!(asked(Some(&done), "other", None, &rules()), "replay");
    let failed = Found::readable(Record {
        status: Status::Failed,
        ..completed()
    });
    assert_eq!(
        asked(Some(&failed), "other", None, &rules()),
        "replay failure"
    );
}

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

#[test]
fn a_released_record_is_resumed_at_once_under_every_policy() {
    let found = Found::readable(released());
    for crashed in [Crashed::RunAgain, Crashed::Interrupt] {
        let rules = Rules {
            crashed,
            max_attempts: NonZeroU32::new(1),
            ..rules()
        };
        assert_eq!(on_found(&found, &rules), "resume, attempt 4");
    }
}

#[test]
fn a_release_that_forgot_the_fingerprint_lets_a_corrected_payload_in() {
    let found = Found::readable(released());
    let corrected = Some(Fingerprint::bytes(b"corrected"));
    assert_eq!(
        asked(Some(&found), "me", corrected, &rules()),
        "resume, attempt 4"
    );
}

#[test]
fn a_release_that_kept_the_fingerprint_does_not() {
    let kept = Record {
        fingerprint: Some(Fingerprint::bytes(b"payload")),
        ..released()
    };
    let found = Found::readable(kept);
    assert_eq!(
        asked(
            Some(&found),
            "me",
            Some(Fingerprint::bytes(b"other")),
            &rules()
        ),
        "mismatch"
    );
    assert_eq!(on_found(&found, &rules()), "resume, attempt 4");
}

#[test]
fn another_payload_is_a_mismatch_in_every_state() {
    for record in [
        in_progress(),
        completed(),
        Record {
            status: Status::Failed,
            ..completed()
        },
    ] {
        let found = Found::readable(record);
        assert_eq!(
            asked(
                Some(&found),
                "me",
                Some(Fingerprint::bytes(b"other")),
                &rules()
            ),
            "mismatch"
        );
    }
}

#[test]
fn fingerprints_are_compared_only_where_both_sides_have_ours() {
    let theirs = Found::readable(Record {
        layout: None,
        owner: None,
        ..completed()
    });
    assert_eq!(
        asked(
            Some(&theirs),
            "me",
            Some(Fingerprint::bytes(b"other")),
            &rules()
        ),
        "replay"
    );
    let without = Found::readable(Record {
        fingerprint: None,
        ..completed()
    });
    assert_eq!(
        asked(
            Some(&without),
            "me",
            Some(Fingerprint::bytes(b"other")),
            &rules()
        ),
        "replay"
    );
    let ours = Found::readable(completed());
    assert_eq!(asked(Some(&ours), "me", None, &rules()), "replay");
}

#[test]
fn a_final_record_is_replayed() {
    assert_eq!(on(&completed()), "replay");
    assert_eq!(
        on(&Record {
            status: Status::Failed,
            ..completed()
        }),
        "replay failure"
    );
}

#[test]
fn a_lease_holds_to_the_millisecond_before_its_end() {
    assert_eq!(
        on(&Record {
            lease: Some(at(1)),
            ..in_progress()
        }),
        "in flight for 1 ms"
    );
    assert_eq!(
        on(&Record {
            lease: Some(NOW),
            ..in_progress()
        }),
        "resume, attempt 4"
    );
}

#[test]
fn the_margin_is_added_only_where_the_lease_does_not_include_it() {
    let theirs = Record {
        owner: None,
        layout: None,
        lease: Some(at(-999)),
        ..in_progress()
    };
    assert_eq!(on(&theirs), "in flight for 1 ms");
    assert_eq!(
        on(&Record {
            lease: Some(at(-1_000)),
            ..theirs
        }),
        "resume, attempt 4"
    );
}

#[test]
fn a_record_without_a_lease_is_in_flight_until_it_expires() {
    let theirs = Record {
        owner: None,
        layout: None,
        lease: None,
        expiration: expiring(5_000),
        ..in_progress()
    };
    assert_eq!(on(&theirs), "in flight for 6000 ms");
    let expired = Record {
        expiration: expiring(-1_000),
        ..theirs
    };
    assert_eq!(on(&expired), "take over fresh, attempt 1");
}

#[test]
fn a_crashed_attempt_waits_for_a_person_where_the_policy_says_so() {
    let crashed = Found::readable(Record {
        lease: Some(at(-5_000)),
        ..in_progress()
    });
    let rules = Rules {
        crashed: Crashed::Interrupt,
        ..rules()
    };
    assert_eq!(on_found(&crashed, &rules), "interrupted 5000 ms ago");
}

#[test]
fn attempts_are_limited_where_the_setting_says_so() {
    let third = Found::readable(Record {
        lease: Some(at(-1)),
        ..in_progress()
    });
    let limited = |max| Rules {
        max_attempts: NonZeroU32::new(max),
        ..rules()
    };
    assert_eq!(on_found(&third, &limited(4)), "resume, attempt 4");
    assert_eq!(on_found(&third, &limited(3)), "exhausted after 3");
    let alive = Found::readable(in_progress());
    assert_eq!(on_found(&alive, &limited(3)), "in flight for 30000 ms");
}

mod settling {
    use super::*;

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
}
