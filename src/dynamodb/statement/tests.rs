//! Tests of the module above.

use super::*;
use crate::dynamodb::change;
use crate::dynamodb::layout::TableLayout;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::{StepEntry, StepNote, StepState};
use crate::protocol::key::RecordId;
use crate::protocol::record::{
    Amendment, Completion, NewClaim, Omission, Owner, RecordWrite, Release, Renewal, Status,
    StoredOutcome,
};

fn claim(fingerprint: Option<Fingerprint>) -> NewClaim {
    NewClaim {
        id: RecordId::unkeyed("nonce"),
        owner: Owner::from_stored("me"),
        fingerprint,
        attempt: 1,
        lease: EpochMillis(7),
        expiration: EpochSeconds(8),
        started_at: EpochMillis(6),
    }
}

fn completion(status: Status) -> Completion {
    Completion {
        id: RecordId::unkeyed("nonce"),
        owner: Owner::from_stored("me"),
        status,
        outcome: StoredOutcome::Inline("1".to_owned()),
        completed_at: EpochMillis(9),
        expiration: EpochSeconds(10),
    }
}

fn statements<'a>(verb: Verb, table: &'a str, layout: &'a TableLayout) -> Statements<'a> {
    Statements {
        verb,
        table,
        layout,
        shape: Shape::default(),
        text: String::new(),
    }
}

fn values(statement: &Statement) -> Vec<&str> {
    let parameters = statement.parameters.iter();
    parameters
        .map(|value| match value {
            AttributeValue::S(value) | AttributeValue::N(value) => value.as_str(),
            _ => "?",
        })
        .collect()
}

#[test]
fn a_claim_says_in_words_what_is_always_the_same() {
    let layout = TableLayout::default();
    let mut statements = statements(Verb::Insert, "records", &layout);
    let id = RecordId::unkeyed("nonce");
    let bare = statements.make(change::of(&layout, &claim(None).into()));
    assert_eq!(
        bare.text,
        "INSERT INTO \"records\" VALUE {'id':?,'status':'INPROGRESS','owner':?,'attempt':1,\
         'in_progress_expiration':?,'expiration':?,'started_at':?,'v':1}"
    );
    assert_eq!(values(&bare), [id.as_str(), "me", "7", "8", "6"]);

    let print = Fingerprint::bytes(b"");
    let bound = statements.make(change::of(&layout, &claim(Some(print.clone())).into()));
    assert!(
        bound.text.ends_with("'v':1,'validation':?}"),
        "{}",
        bound.text
    );
    assert_eq!(values(&bound).last(), Some(&print.as_str()));
    let again = statements.make(change::of(&layout, &claim(None).into()));
    assert_eq!(
        again.text, bare.text,
        "words are not kept for another shape"
    );
}

#[test]
fn a_completion_stands_under_the_fence() {
    let layout = TableLayout::default();
    let mut statements = statements(Verb::Update, "records", &layout);
    let id = RecordId::unkeyed("nonce");
    let completed = statements.make(change::of(&layout, &completion(Status::Completed).into()));
    assert_eq!(
        completed.text,
        "UPDATE \"records\" SET \"status\"='COMPLETED' SET \"completed_at\"=? SET \"expiration\"=? SET \"data\"=? \
         REMOVE \"in_progress_expiration\" WHERE \"id\"=? AND \"owner\"=? AND \"status\"='INPROGRESS'"
    );
    assert_eq!(values(&completed), ["9", "10", "1", id.as_str(), "me"]);
    assert_eq!(completed.on_failure, Some(OnFailure::AllOld));

    let failed = statements.make(change::of(&layout, &completion(Status::Failed).into()));
    assert!(
        failed.text.contains("\"status\"='FAILED'"),
        "{}",
        failed.text
    );
}

#[test]
fn a_release_that_forgets_the_payload_has_words_of_its_own() {
    let layout = TableLayout::default();
    let mut statements = statements(Verb::Update, "records", &layout);
    let mut text = |forget_fingerprint| {
        let release = Release {
            id: RecordId::unkeyed("nonce"),
            owner: Owner::from_stored("me"),
            tombstone: Owner::from_stored("nobody"),
            last_error: None,
            forget_fingerprint,
        };
        statements
            .make(change::of(&layout, &release.clone().into()))
            .text
    };
    let (kept, forgotten) = (text(false), text(true));
    assert!(!kept.contains("validation"), "{kept}");
    assert!(forgotten.contains("REMOVE \"validation\""), "{forgotten}");
    assert_eq!(text(false), kept);
}

#[test]
fn a_steps_note_stands_over_an_older_one_alone() {
    let layout = TableLayout::default();
    let mut statements = statements(Verb::Update, "records", &layout);
    let id = RecordId::unkeyed("nonce");
    let first = StepEntry::begun(None, EpochMillis(5));
    let entry = StepEntry::begun(Some(&first), EpochMillis(6));
    let amendment = Amendment {
        id: id.clone(),
        owner: Owner::from_stored("me"),
        step: (StepNote {
            name: "charge".to_owned(),
            entry,
        }),
    };
    let noted = statements.make(change::of(&layout, &amendment.clone().into()));
    assert_eq!(
        noted.text,
        "UPDATE \"records\" SET \"step:charge\"=? WHERE \"id\"=? AND \"owner\"=? AND \"status\"='INPROGRESS' \
         AND (\"step:charge\" IS MISSING OR \"step:charge\".\"revision\"<?)"
    );
    assert_eq!(values(&noted), ["?", id.as_str(), "me", "2"]);
}

#[test]
fn a_renewal_stands_over_a_shorter_lease_alone() {
    let layout = TableLayout::default();
    let mut statements = statements(Verb::Update, "records", &layout);
    let id = RecordId::unkeyed("nonce");
    let renewal = Renewal {
        id: id.clone(),
        owner: Owner::from_stored("me"),
        lease: EpochMillis(17),
        expiration: EpochSeconds(18),
    };
    let renewed = statements.make(change::of(&layout, &renewal.clone().into()));
    assert_eq!(
        renewed.text,
        "UPDATE \"records\" SET \"in_progress_expiration\"=? SET \"expiration\"=? WHERE \"id\"=? AND \"owner\"=? \
         AND \"status\"='INPROGRESS' AND \"in_progress_expiration\"<?"
    );
    assert_eq!(values(&renewed), ["17", "18", id.as_str(), "me", "17"]);
}

#[test]
fn a_parameter_counts_by_what_it_holds() {
    let text = AttributeValue::S("four".to_owned());
    assert_eq!(size_of_value(&text), 14);
    assert_eq!(size_of_value(&AttributeValue::N("17".to_owned())), 12);
    // Six bytes are eight signs of Base64, and there may be four more.
    assert_eq!(size_of_value(&AttributeValue::B(vec![0; 6].into())), 22);
    let members = [("name".to_owned(), text)].into_iter().collect();
    assert_eq!(size_of_value(&AttributeValue::M(members)), 28);
    assert_eq!(size_of_value(&AttributeValue::Bool(true)), 10);
}

#[test]
fn quotes_in_names_are_doubled() {
    let mut layout = TableLayout::default();
    layout.expiration = "it's".into();
    layout.data = "a\"b".into();
    let text = |verb, change| statements(verb, "ta\"ble", &layout).make(change).text;
    let insert = text(Verb::Insert, change::of(&layout, &claim(None).into()));
    assert!(
        insert.starts_with("INSERT INTO \"ta\"\"ble\" VALUE"),
        "{insert}"
    );
    assert!(insert.contains("'it''s':?"), "{insert}");
    let update = text(
        Verb::Update,
        change::of(&layout, &completion(Status::Completed).into()),
    );
    assert!(
        update.contains("SET \"it's\"=? SET \"a\"\"b\"=?"),
        "{update}"
    );
}

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
    let amendment = Amendment {
        id: writes.id(),
        owner: writes.owner(),
        step,
    };
    for write in [renewal.into(), amendment.into()] {
        let shape = Shape::of(&change::of(&layout, &write));
        assert!(!shape.fits(&change::of(&layout, &write)), "{write:?}");
    }
    let completion = writes.complete(Status::Completed, writes.inline());
    let mut noted = change::of(&layout, &completion);
    let bare = Shape::of(&noted);
    noted.steps = vec![("step:charge".to_owned(), crate::dynamodb::item::number(1))];
    assert!(!bare.fits(&noted));
    noted.tests.pop();
    assert!(!Shape::of(&noted).fits(&change::of(&layout, &completion)));
}
