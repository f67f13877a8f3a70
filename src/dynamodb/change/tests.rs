//! Tests of the module above.

use super::*;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::StepState;

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

/// An intervention over a record of this status and lease, with all entries that a saga and operators write.
fn intervention_over(status: Status, lease: Option<i64>) -> RecordWrite {
    let steps = (1..=50).flat_map(|step| [format!("step-{step}"), format!("step-{step}/undo")]);
    let others = ["@saga", "@operator", "@keys", "@kept"].map(str::to_owned);
    let entry = StepEntry::new(StepState::Failed, 3, 1, EpochMillis(7));
    RecordWrite::Intervene(Intervention {
        id: RecordId::unkeyed("nonce"),
        seen: Version {
            owner: Some("me".to_owned()),
            status: Some(status.as_str().to_owned()),
            lease,
            expiration: Some(8),
        },
        owner: Owner::from_stored("operator"),
        expiration: EpochSeconds(8),
        steps: steps
            .chain(others)
            .map(|step| (step, entry.clone()))
            .collect(),
        end: Ended::Released {
            last_error: Some("rerun by an operator".to_owned()),
        },
    })
}

/// [The most bytes](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html) of an expression.
const MOST_BYTES: usize = 4 * 1_024;

#[test]
fn an_intervention_over_a_record_that_nobody_holds_fits_in_its_expressions() {
    let layout = TableLayout::default();
    for (status, lease) in [
        (Status::Completed, None),
        (Status::Failed, None),
        (Status::InProgress, Some(0)),
    ] {
        let write = intervention_over(status, lease);
        let expressions = Expressions::of(&layout, &of(&layout, &write));
        for text in [expressions.update.unwrap(), expressions.condition] {
            assert!(text.len() <= MOST_BYTES, "{}: {text}", text.len());
        }
    }
}

#[test]
fn an_intervention_over_a_record_that_is_held_compares_its_steps() {
    let layout = TableLayout::default();
    let write = intervention_over(Status::InProgress, Some(7));
    let change = of(&layout, &write);
    let is_compared = |step: &str| {
        let mut tests = change.tests.iter();
        tests.any(|test| matches!(test, Test::OlderStep(name, 3) if name == step))
    };
    assert!(change.steps.iter().all(|(step, _)| is_compared(step)));
}
