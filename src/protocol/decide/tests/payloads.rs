//! The payload that a key is bound to.

use super::*;

/// Asked for again, under another payload.
fn asked_with_another(found: &Found) -> String {
    let other = Some(Fingerprint::bytes(b"other"));
    asked(Some(found), "me", other, &rules())
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
    assert_eq!(asked_with_another(&found), "mismatch");
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
        assert_eq!(asked_with_another(&found), "mismatch");
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
fn a_mismatch_tells_for_how_long_the_attempt_with_the_other_payload_runs() {
    let (owner, other) = (Owner::from_stored("me"), Fingerprint::bytes(b"other"));
    let asking = Asking::new(&owner, Some(&other), NOW);
    let leased = |lease| Record {
        lease: Some(lease),
        ..in_progress()
    };
    let done = Record {
        lease: Some(at(1)),
        ..completed()
    };
    for (record, until) in [
        (leased(at(1)), Some(at(1))),
        (leased(NOW), None),
        (leased(RELEASED), None),
        (done, None),
    ] {
        let found = Found::readable(record);
        let decision = decide(Some(&found), asking, &rules());
        assert_eq!(decision, Decision::Mismatch { until });
    }
}
