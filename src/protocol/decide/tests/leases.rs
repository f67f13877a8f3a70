//! The attempts that may have a record in progress.

use super::*;

#[test]
fn a_released_record_is_resumed_at_once_under_every_policy() {
    let found = Found::readable(released());
    let after = OnCrash::RunAgainAfter(Duration::from_hours(1));
    for crashed in [OnCrash::RunAgain, OnCrash::Interrupt, after] {
        let rules = Rules {
            on_crash: crashed,
            max_attempts: NonZeroU32::new(1),
            ..rules()
        };
        assert_eq!(on_found(&found, &rules), "resume, attempt 4");
    }
}

#[test]
fn an_attempt_that_was_released_before_it_started_does_not_count() {
    let of = |last_error: &str| Record {
        last_error: Some(last_error.to_owned()),
        ..released()
    };
    assert_eq!(on(&of(NOT_STARTED)), "resume without the mark, attempt 3");
    assert_eq!(on(&of("panic")), "resume, attempt 4");
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
fn a_crashed_attempt_runs_again_when_its_pause_is_over() {
    let rules = Rules {
        on_crash: OnCrash::RunAgainAfter(Duration::from_millis(5)),
        ..rules()
    };
    for (lease, expected) in [
        (at(1), "in flight for 1 ms"),
        (NOW, "in flight for 5 ms"),
        (at(-4), "in flight for 1 ms"),
        (at(-5), "resume, attempt 4"),
    ] {
        let record = Record {
            lease: Some(lease),
            ..in_progress()
        };
        assert_eq!(on_found(&Found::readable(record), &rules), expected);
    }
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
fn a_crashed_attempt_waits_for_an_operator_where_the_policy_says_so() {
    let crashed = Found::readable(Record {
        lease: Some(at(-5_000)),
        ..in_progress()
    });
    let rules = Rules {
        on_crash: OnCrash::Interrupt,
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
