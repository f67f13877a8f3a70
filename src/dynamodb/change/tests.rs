//! Tests of the module above.

use super::*;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;

fn take_over_by(mode: Takeover, fingerprint: Option<Fingerprint>) -> RecordWrite {
    RecordWrite::TakeOver {
        seen: Version::default(),
        mode,
        claim: NewClaim {
            id: RecordId::unkeyed("nonce"),
            owner: Owner::from_stored("me"),
            fingerprint,
            attempt: 2,
            lease: EpochMillis(7),
            expiration: EpochSeconds(8),
            started_at: EpochMillis(6),
        },
    }
}

#[test]
fn a_resumed_record_has_the_fingerprint_of_its_new_claim_or_none() {
    let layout = TableLayout::default();
    let outcome = [Attribute::Data, Attribute::Packed, Attribute::Omitted];
    let bare = take_over_by(Takeover::Resume, None);
    let bare = of(&layout, &bare);
    assert!(!bare.is_whole);
    assert_eq!(bare.removes[..3], outcome);
    assert_eq!(bare.removes[3..], [Attribute::Validation]);

    let bound = take_over_by(Takeover::Resume, Some(Fingerprint::bytes(b"payload")));
    let bound = of(&layout, &bound);
    assert_eq!(bound.removes, outcome);
    assert!(
        bound
            .sets
            .iter()
            .any(|(attribute, _)| *attribute == Attribute::Validation)
    );
}

#[test]
fn the_mark_of_an_attempt_that_had_not_started_is_removed() {
    let layout = TableLayout::default();
    let fingerprint = || Some(Fingerprint::bytes(b"payload"));
    let removes = |mode| of(&layout, &take_over_by(mode, fingerprint())).removes;
    assert!(removes(Takeover::Unstarted).contains(&Attribute::LastError));
    assert!(!removes(Takeover::Resume).contains(&Attribute::LastError));
}

#[test]
fn a_record_that_was_taken_over_fresh_has_nothing_to_remove() {
    let layout = TableLayout::default();
    let fresh = take_over_by(Takeover::Fresh, None);
    let fresh = of(&layout, &fresh);
    assert!(fresh.is_whole && fresh.removes.is_empty());
}
