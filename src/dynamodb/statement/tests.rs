//! Tests of the module above.

use super::*;
use crate::dynamodb::change;
use crate::dynamodb::item;
use crate::dynamodb::layout::TableLayout;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::RecordId;
use crate::protocol::record::{
    Completion, NewClaim, Omission, Owner, RecordWrite, Release, Status, StoredOutcome,
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
    let mut make = |write: RecordWrite| statements.make(change::of(&layout, &write)).unwrap();
    let bare = make(claim(None).into());
    assert_eq!(
        bare.text,
        "INSERT INTO \"records\" VALUE {'id':?,'status':'INPROGRESS','owner':?,'attempt':1,\
         'in_progress_expiration':?,'expiration':?,'started_at':?,'v':1}"
    );
    assert_eq!(values(&bare), [id.as_str(), "me", "7", "8", "6"]);

    let print = Fingerprint::bytes(b"");
    let bound = make(claim(Some(print.clone())).into());
    assert!(
        bound.text.ends_with("'v':1,'validation':?}"),
        "{}",
        bound.text
    );
    assert_eq!(values(&bound).last(), Some(&print.as_str()));
    let again = make(claim(None).into());
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
    let mut make = |status| {
        let completion = completion(status).into();
        statements.make(change::of(&layout, &completion)).unwrap()
    };
    let completed = make(Status::Completed);
    assert_eq!(
        completed.text,
        "UPDATE \"records\" SET \"status\"='COMPLETED' SET \"completed_at\"=? SET \"expiration\"=? SET \"data\"=? \
         REMOVE \"in_progress_expiration\" WHERE \"id\"=? AND \"owner\"=? AND \"status\"='INPROGRESS'"
    );
    assert_eq!(values(&completed), ["9", "10", "1", id.as_str(), "me"]);
    assert_eq!(completed.on_failure, Some(OnFailure::AllOld));

    let failed = make(Status::Failed);
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
        let change = change::of(&layout, &release.into());
        statements.make(change).unwrap().text
    };
    let (kept, forgotten) = (text(false), text(true));
    assert!(!kept.contains("validation"), "{kept}");
    assert!(forgotten.contains("REMOVE \"validation\""), "{forgotten}");
    assert_eq!(text(false), kept);
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
    let text = |verb, change| {
        let made = statements(verb, "ta\"ble", &layout).make(change);
        made.unwrap().text
    };
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

/// A statement without the rest of its condition would apply where the write must not.
#[test]
fn a_change_that_a_statement_can_not_state_is_left_to_a_single_request() {
    let layout = TableLayout::default();
    let completion = Writes(1).complete(Status::Completed, Writes(1).inline());
    let made = |verb, edit: fn(&mut Change<'_>)| {
        let mut changed = change::of(&layout, &completion);
        edit(&mut changed);
        statements(verb, "records", &layout).make(changed).is_some()
    };
    assert!(made(Verb::Update, |_| {}));
    assert!(!made(Verb::Insert, |_| {}));
    let edits: [fn(&mut Change<'_>); 3] = [
        |change| change.tests.push(Test::NoRecord),
        |change| change.tests.push(Test::Absent(Attribute::Data)),
        |change| change.steps.push((String::new(), item::number(1))),
    ];
    assert!(edits.iter().all(|edit| !made(Verb::Update, *edit)));
}
