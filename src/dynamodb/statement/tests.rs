use super::super::change;
use super::*;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::journal::{StepEntry, StepNote};
use crate::protocol::key::RecordId;
use crate::protocol::record::{
    Amendment, Completion, NewClaim, Owner, Release, Renewal, Status, StoredOutcome,
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
    let layout = TableLayout::default().expiration("it's").data("a\"b");
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
