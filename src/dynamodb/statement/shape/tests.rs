use super::super::super::change;
use super::super::super::layout::TableLayout;
use super::*;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::{StepEntry, StepNote, StepState};
use crate::protocol::key::RecordId;
use crate::protocol::record::{
    Amendment, Completion, NewClaim, Omission, Owner, RecordWrite, Release, Renewal, Status,
    StoredOutcome,
};

/// The writes of a request; each `number` gives other values.
struct Writes(u32);

impl Writes {
    fn id(&self) -> RecordId {
        RecordId::unkeyed(&self.0.to_string())
    }

    fn owner(&self) -> Owner {
        Owner::from_stored(format!("owner {}", self.0))
    }

    fn time(&self) -> EpochMillis {
        EpochMillis(self.0.into())
    }

    fn create(&self, attempt: u32, fingerprint: Option<Fingerprint>) -> RecordWrite {
        let claim = NewClaim {
            id: self.id(),
            owner: self.owner(),
            fingerprint,
            attempt,
            lease: self.time(),
            expiration: EpochSeconds(self.0.into()),
            started_at: self.time(),
        };
        claim.into()
    }

    fn complete(&self, status: Status, outcome: StoredOutcome) -> RecordWrite {
        let expiration = EpochSeconds(self.0.into());
        let completion = Completion::new(self.id(), self.owner(), outcome, self.time(), expiration);
        Completion {
            status,
            ..completion
        }
        .into()
    }

    fn inline(&self) -> StoredOutcome {
        StoredOutcome::Inline(self.0.to_string())
    }

    fn release(&self, last_error: Option<&str>, forget_fingerprint: bool) -> RecordWrite {
        let release = Release {
            id: self.id(),
            owner: self.owner(),
            tombstone: Owner::from_stored(format!("tombstone {}", self.0)),
            last_error: last_error.map(str::to_owned),
            forget_fingerprint,
        };
        release.into()
    }
}

/// One write of each shape.
fn all(number: u32) -> Vec<RecordWrite> {
    let writes = Writes(number);
    let omitted = StoredOutcome::Omitted(Omission::TooLarge);
    vec![
        writes.create(1, None),
        writes.create(2, None),
        writes.create(1, Some(Fingerprint::bytes(&number.to_be_bytes()))),
        writes.complete(Status::Completed, writes.inline()),
        writes.complete(Status::Failed, writes.inline()),
        writes.complete(Status::Completed, omitted),
        writes.release(None, false),
        writes.release(None, true),
        writes.release(Some("down"), false),
        writes.release(Some("down"), true),
    ]
}

#[test]
fn a_change_fits_the_shape_of_another_one_where_they_differ_in_what_is_a_parameter() {
    let layout = TableLayout::default();
    for (place, known) in all(1).iter().enumerate() {
        let shape = Shape::of(&change::of(&layout, known));
        for (other_place, other) in all(2).iter().enumerate() {
            let fits = shape.fits(&change::of(&layout, other));
            assert_eq!(fits, place == other_place, "{known:?}\n{other:?}");
        }
    }
}

#[test]
fn a_change_that_makes_more_tests_has_another_shape() {
    let layout = TableLayout::default();
    let completion = Writes(1).complete(Status::Completed, Writes(1).inline());
    let fenced = change::of(&layout, &completion);
    let mut bare = change::of(&layout, &completion);
    bare.tests.pop();
    assert!(!Shape::of(&fenced).fits(&bare) && !Shape::of(&bare).fits(&fenced));
    let mut longer = change::of(&layout, &completion);
    longer.sets.pop();
    assert!(!Shape::of(&fenced).fits(&longer) && !Shape::of(&longer).fits(&fenced));
}

#[test]
fn a_change_whose_condition_is_not_kept_fits_no_shape_not_even_its_own() {
    let layout = TableLayout::default();
    let writes = Writes(1);
    let renewal = Renewal {
        id: writes.id(),
        owner: writes.owner(),
        lease: writes.time(),
        expiration: EpochSeconds(1),
    };
    let pending = StepEntry::new(StepState::Pending, 1, 1, writes.time());
    let step = StepNote::new("charge", pending);
    let amendment = Amendment::new(writes.id(), writes.owner(), step);
    for write in [renewal.into(), amendment.into()] {
        let shape = Shape::of(&change::of(&layout, &write));
        assert!(!shape.fits(&change::of(&layout, &write)), "{write:?}");
    }
    let completion = writes.complete(Status::Completed, writes.inline());
    let mut noted = change::of(&layout, &completion);
    let bare = Shape::of(&noted);
    noted.steps = vec![("step:charge".to_owned(), super::super::number(1))];
    assert!(!bare.fits(&noted));
    noted.tests.pop();
    assert!(!Shape::of(&noted).fits(&change::of(&layout, &completion)));
}
