//! Tests of the module above.

use super::*;
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::record::{Record, Status};
use crate::protocol::{OnCrash, decide_step};

const AT: EpochMillis = EpochMillis(7);

fn entry(state: StepState) -> StepEntry {
    StepEntry::begun(None, AT).ended(state, None, AT)
}

fn text(bytes: usize) -> StepState {
    StepState::Confirmed(Ok("x".repeat(bytes)))
}

/// Returns whether a step has room while no other begins.
fn has_room(journal: &Journal, name: &str) -> bool {
    journal.has_room_for(name, std::iter::empty())
}

#[test]
fn tries_count_how_often_the_effect_was_about_to_fire() {
    let first = StepEntry::begun(None, AT);
    let failed = first.ended(StepState::Failed, Some("Timeout"), AT);
    let again = StepEntry::begun(Some(&failed), AT);
    assert_eq!([first.tries, failed.tries, again.tries], [1, 1, 2]);
    assert_eq!([first.revision, failed.revision, again.revision], [1, 2, 3]);
    assert_eq!(again.last_error, None);
}

#[test]
fn a_journal_is_empty_until_its_first_step_begins() {
    let mut journal = Journal::default();
    assert!(journal.is_empty());
    assert_eq!((journal.get("charge"), journal.iter().count()), (None, 0));
    let begun = StepEntry::begun(None, AT);
    journal.put("charge", begun.clone());
    assert!(!journal.is_empty());
    assert_eq!(journal.iter().collect::<Vec<_>>(), [("charge", &begun)]);
}

#[test]
fn a_step_takes_its_name_its_result_and_its_error_and_a_pending_one_the_largest_result() {
    let size = |state: StepState, error: Option<&str>| {
        let mut journal = Journal::default();
        let begun = StepEntry::begun(None, AT);
        journal.put("charge", begun.ended(state, error, AT));
        journal.size() - "charge".len() - ENTRY_OVERHEAD
    };
    assert_eq!(size(StepState::Failed, None), 0);
    assert_eq!(size(StepState::Failed, Some("Timeout")), 7);
    assert_eq!(size(text(5), None), 5);
    assert_eq!(size(text(5), Some("Timeout")), 5 + 7);
    let omitted = StepState::Confirmed(Err(Omission::TooLarge));
    assert_eq!(size(omitted, None), 0);
    assert_eq!(size(StepState::Pending, None), MAX_STEP_RESULT_BYTES);
}

#[test]
fn a_step_that_is_known_keeps_its_place_in_a_full_journal() {
    let mut full = Journal::default();
    for number in 0..15 {
        let name = format!("step-{number:02}");
        full.put(name, entry(text(MAX_STEP_RESULT_BYTES)));
    }
    assert!(!has_room(&full, "step-15"));
    assert!(has_room(&full, "step-07"));
}

#[test]
fn debug_shows_no_result() {
    let known = entry(StepState::Confirmed(Ok("secret".to_owned())));
    let decision = decide_step(Some(&known), OnCrash::RunAgain);
    for shown in [format!("{known:?}"), format!("{decision:?}")] {
        assert!(!shown.contains("secret"), "{shown}");
    }
}

#[test]
fn an_older_entry_is_not_taken() {
    let mut journal = Journal::default();
    let pending = StepEntry::begun(None, AT);
    let confirmed = pending.ended(text(1), None, AT);
    assert!(journal.takes("charge", &pending));
    journal.put("charge", confirmed.clone());
    assert!(!journal.takes("charge", &pending));
    assert!(!journal.takes("charge", &confirmed));
}

#[test]
fn the_number_of_steps_and_their_size_are_bounded() {
    let mut many = Journal::default();
    for number in 0..MAX_STEPS {
        assert!(has_room(&many, &format!("step-{number}")));
        many.put(format!("step-{number}"), entry(text(1)));
    }
    assert!(!has_room(&many, "one-more"));
    assert!(has_room(&many, "step-0"), "it has its place");

    let mut large = Journal::default();
    let mut count = 0;
    while has_room(&large, &format!("step-{count}")) {
        large.put(format!("step-{count}"), entry(text(MAX_STEP_RESULT_BYTES)));
        count += 1;
    }
    assert_eq!(count, 15);
}

#[test]
fn a_step_begins_only_if_the_largest_result_would_fit() {
    // Leaves room for the largest result, and `spare` bytes more.
    let filled = |spare: usize| {
        let mut journal = Journal::default();
        let largest = 1 + ENTRY_OVERHEAD + MAX_STEP_RESULT_BYTES;
        let room = MAX_JOURNAL_BYTES - largest - spare;
        let last_error = "x".repeat(room - 1 - ENTRY_OVERHEAD);
        let entry = StepEntry {
            last_error: Some(last_error),
            ..entry(StepState::Failed)
        };
        journal.put("a", entry);
        journal
    };
    assert_eq!(
        filled(0).size(),
        MAX_JOURNAL_BYTES - MAX_STEP_RESULT_BYTES - 101
    );
    assert!(has_room(&filled(0), "b"));
    assert!(!has_room(&filled(0), "bb"));
    assert!(has_room(&filled(1), "bb"));
}

#[test]
fn each_entry_of_new_keys_is_the_next_generation_and_takes_the_place_of_no_step() {
    let mut journal = Journal::default();
    assert_eq!(journal.key_generation(), 0);
    for generation in 1..4 {
        let (name, entry) = journal.next_keys(AT);
        assert!(journal.takes(&name, &entry) && !is_step_name(&name));
        journal.put(name, entry);
        assert_eq!(journal.key_generation(), generation);
    }
    for number in 1..MAX_STEPS {
        journal.put(format!("step-{number}"), entry(text(1)));
    }
    assert!(has_room(&journal, "step-0"));
    journal.put("step-0", entry(text(1)));
    assert!(!has_room(&journal, "one-more") && has_room(&journal, "step-0"));
}

#[test]
fn names_are_short_and_plain() {
    for name in ["charge", "send-mail.2", &"x".repeat(64)] {
        assert!(is_step_name(name), "{name}");
    }
    for name in ["", "a b", "a:b", "ü", "a\n", &"x".repeat(65)] {
        assert!(!is_step_name(name), "{name}");
    }
}

fn record(status: Status, state: &SagaState, undo: StepState) -> Record {
    let mut record = Record::new(status, EpochSeconds(9));
    let text = Ok(serde_json::to_string(state).unwrap());
    for (name, state) in [(SAGA, StepState::Confirmed(text)), ("charge/undo", undo)] {
        let entry = StepEntry::new(state, 1, 1, EpochMillis(7));
        record.journal.put(name, entry);
    }
    record
}

#[test]
fn the_record_and_its_journal_give_the_status() {
    let running = SagaState::default();
    let back = SagaState {
        failure: Some(Failure {
            kind: "Declined".to_owned(),
            message: "declined".to_owned(),
        }),
        confirmed: vec!["charge".to_owned()],
        stuck: None,
        is_erased: false,
    };
    let stuck = SagaState {
        stuck: Some("charge/undo".to_owned()),
        ..back.clone()
    };
    let (under_way, pending) = (Status::InProgress, || StepState::Pending);
    let undone = || StepState::Confirmed(Ok("null".to_owned()));
    for (status, state, undo, expected) in [
        (under_way, &running, pending(), SagaStatus::Running),
        (under_way, &back, pending(), SagaStatus::Compensating),
        (under_way, &stuck, pending(), SagaStatus::Stuck),
        // An operator has settled it.
        (
            under_way,
            &stuck,
            StepState::Failed,
            SagaStatus::Compensating,
        ),
        (Status::Failed, &back, undone(), SagaStatus::Compensated),
        (Status::Completed, &back, undone(), SagaStatus::Compensated),
        // An operator has ended it, and the charge stands.
        (Status::Failed, &back, pending(), SagaStatus::Failed),
        (Status::Completed, &back, pending(), SagaStatus::Failed),
        (
            Status::Completed,
            &running,
            pending(),
            SagaStatus::Completed,
        ),
    ] {
        let found = SagaStatus::of(&record(status, state, undo));
        assert_eq!(found, Some(expected), "{state:?}");
    }
    let plain = Record::new(under_way, EpochSeconds(9));
    assert_eq!(SagaStatus::of(&plain), None);
    // An operator has it begin anew.
    let mut anew = record(Status::Completed, &back, StepState::Failed);
    let entry = StepEntry::new(StepState::Failed, 2, 1, AT);
    anew.journal.put(SAGA, entry);
    assert_eq!(SagaStatus::of(&anew), None);
    // An operator has erased what the saga and its step returned.
    let erased = StepState::Confirmed(Err(Omission::Redacted));
    for (undo, expected) in [
        (undone(), SagaStatus::Compensated),
        (StepState::Failed, SagaStatus::Failed),
    ] {
        let mut record = record(Status::Failed, &back, undo);
        for name in [SAGA, "charge"] {
            let entry = StepEntry::new(erased.clone(), 2, 1, AT);
            record.journal.put(name, entry);
        }
        assert_eq!(SagaStatus::of(&record), Some(expected));
    }
}

#[test]
fn no_step_has_the_name_of_a_compensation() {
    assert!(!is_step_name(SAGA) && !is_step_name(&undo_of("charge")));
}

#[test]
fn a_saga_goes_on_only_where_its_state_can_be_read() {
    let at = EpochMillis(1);
    let of = |text: &str| {
        let state = StepState::Confirmed(Ok(text.to_owned()));
        let entry = StepEntry::begun(None, at).ended(state, None, at);
        [(SAGA, entry)].into_iter().collect::<Journal>()
    };
    assert!(of("{}").checked(true).is_ok());
    assert!(of("7").checked(true).is_err());
    assert!(of("7").checked(false).is_ok());
}

#[test]
fn the_steps_that_are_kept_under_new_keys_are_those_that_were_confirmed_by_then() {
    let at = |time| StepEntry::new(text(1), 1, 1, EpochMillis(time));
    let steps = [("early", at(6)), ("just-then", at(7)), ("late", at(8))];
    let mut journal: Journal = steps.into_iter().collect();
    assert_eq!(journal.kept_steps().count(), 0);
    let (name, keys) = journal.next_keys(AT);
    journal.put(name, keys);
    journal.put(SAGA, at(6));
    journal.put("failed", StepEntry::new(StepState::Failed, 1, 1, AT));
    let kept: Vec<_> = journal.kept_steps().collect();
    assert_eq!(kept, ["early", "just-then"]);
}

#[test]
fn each_step_that_has_begun_takes_one_place_whether_or_not_it_is_noted() {
    let begun: Vec<_> = (0..10).map(|number| format!("begun-{number}")).collect();
    let mut journal = Journal::default();
    for number in 10..MAX_STEPS {
        journal.put(format!("step-{number}"), entry(StepState::Failed));
    }
    assert!(journal.has_room_for("one-more", begun.iter().skip(1)));
    assert!(!journal.has_room_for("one-more", begun.iter()));

    let names: Vec<_> = (0..14).map(|number| format!("begun-{number}")).collect();
    let note = |name: &String| (name.clone(), StepEntry::begun(None, AT));
    let noted: Journal = names.iter().map(note).collect();
    assert!(noted.has_room_for("one-more", names.iter()));
}
