use std::num::NonZeroU32;
use std::time::Duration;

use clap::Parser as _;
use lambda_idempotency::protocol::journal::{StepEntry, StepState};
use lambda_idempotency::protocol::record::{
    LAYOUT, Omission, Owner, RELEASED, Status, StoredOutcome, Version,
};
use lambda_idempotency::{EpochSeconds, OnCrash};

use super::*;
use crate::{Cli, Command};

const NOW: EpochMillis = EpochMillis(1_795_000_000_000);

fn rules() -> Rules {
    Rules {
        on_crash: OnCrash::RunAgain,
        max_attempts: None,
        skew_margin: Duration::from_secs(1),
    }
}

fn record(status: Status, lease: Option<EpochMillis>) -> Record {
    let mut record = Record::new(status, EpochSeconds(NOW.0 / 1_000 + 86_400));
    record.owner = Some(Owner::from_stored("0f"));
    record.lease = lease;
    record.started_at = Some(NOW - Duration::from_mins(5));
    record.layout = Some(LAYOUT);
    record
}

fn explain(record: Record, rules: &Rules) -> Explanation {
    let found = Found::readable(record);
    explain_of(&RecordId::stored("n#o#0f").unwrap(), Some(&found), rules)
}

fn explain_of(id: &RecordId, found: Option<&Found>, rules: &Rules) -> Explanation {
    Explanation::of(id, " --table t", found, NOW, rules)
}

#[test]
fn each_state_has_its_words_and_its_safe_acts() {
    let over = Some(NOW - Duration::from_secs(30));
    let ahead = Some(NOW + Duration::from_secs(30));
    let mut interrupting = rules();
    interrupting.on_crash = OnCrash::Interrupt;
    let mut bounded = rules();
    bounded.max_attempts = NonZeroU32::new(1);
    let final_of = |status| {
        let mut record = record(status, None);
        record.outcome = Some(StoredOutcome::Inline("17".to_owned()));
        record.completed_at = Some(NOW - Duration::from_mins(4));
        record
    };
    let erased = |status| {
        let mut record = final_of(status);
        record.outcome = Some(StoredOutcome::Omitted(Omission::Redacted));
        record
    };
    let in_progress = |lease| record(Status::InProgress, lease);
    for (record, rules, answer, words, acts) in [
        (
            in_progress(ahead),
            rules(),
            Answer::InFlight,
            "*in flight* until 2026-11-18T",
            &["explain", "complete"][..],
        ),
        (
            in_progress(over),
            rules(),
            Answer::RunsAgain,
            "as attempt 2: the last attempt died",
            &["complete", "fail"],
        ),
        (
            in_progress(over),
            interrupting,
            Answer::Interrupted,
            "*interrupted*",
            &["release", "complete", "fail"],
        ),
        (
            in_progress(over),
            bounded,
            Answer::Exhausted,
            "1 attempts",
            &["release", "complete", "fail"],
        ),
        (
            in_progress(Some(RELEASED)),
            rules(),
            Answer::RunsAgain,
            "gave the key back",
            &["complete", "fail"],
        ),
        (
            final_of(Status::Completed),
            rules(),
            Answer::Replayed,
            "stored outcome",
            &["redact"],
        ),
        (
            erased(Status::Completed),
            rules(),
            Answer::OutcomeOmitted,
            "*outcome omitted* (it was erased on request)",
            &[],
        ),
        (
            final_of(Status::Failed),
            rules(),
            Answer::FailureReplayed,
            "stored failure",
            &["release"],
        ),
        (
            erased(Status::Failed),
            rules(),
            Answer::FailureReplayed,
            "a failure without words (it was erased on request)",
            &["release"],
        ),
    ] {
        let explained = explain(record, &rules);
        assert_eq!(explained.answer, answer);
        assert!(explained.words.contains(words), "{}", explained.words);
        let commands: Vec<_> = explained
            .safe
            .iter()
            .map(|act| act.command.split(' ').nth(1).unwrap())
            .collect();
        assert_eq!(commands, acts, "{answer:?}");
        let needs = matches!(answer, Answer::Interrupted | Answer::Exhausted);
        assert_eq!(explained.needs_person, needs);
    }
}

#[test]
fn the_results_of_steps_can_be_erased_where_the_outcome_is_omitted() {
    let mut omitted = record(Status::Completed, None);
    omitted.outcome = Some(StoredOutcome::Omitted(Omission::TooLarge));
    let result = StepState::Confirmed(Ok("17".to_owned()));
    let entry = StepEntry::new(result, 1, 1, NOW);
    omitted.journal.put("charge", entry);
    let explained = explain(omitted, &rules());
    assert_eq!(explained.answer, Answer::OutcomeOmitted);
    assert!(
        explained.safe[0].when.starts_with("the results"),
        "{explained}"
    );
}

#[test]
fn an_attempt_that_was_ended_in_the_middle_may_have_had_its_effect() {
    for (error, words) in [
        (
            "timed out",
            "was ended in the middle (timed out), and may have had its effect",
        ),
        ("shop::Declined", "gave the key back (shop::Declined)"),
    ] {
        let mut released = record(Status::InProgress, Some(RELEASED));
        released.last_error = Some(error.to_owned());
        let explained = explain(released, &rules());
        assert!(explained.words.ends_with(words), "{}", explained.words);
    }
}

#[test]
fn what_is_absent_expired_or_unreadable_is_said() {
    let id = RecordId::stored("n#o#0f").unwrap();
    let absent = explain_of(&id, None, &rules());
    assert!(
        absent
            .words
            .ends_with("look at --table, --namespace, --operation and the key")
    );
    assert_eq!((absent.answer, absent.record), (Answer::Runs, None));
    let mut old = record(Status::Completed, None);
    old.outcome = Some(StoredOutcome::Inline("17".to_owned()));
    old.expiration = EpochSeconds(NOW.0 / 1_000 - 60);
    assert!(explain(old, &rules()).words.contains("has expired"));
    let mut version = Version::default();
    for (expiration, state, words) in [
        (
            None,
            State::Unreadable,
            "*unreadable*: `status` is unknown; the record is left alone as long as it is there: no expiration can be read; find what writes into the table",
        ),
        (
            Some(NOW.0 / 1_000 + 3_600),
            State::Unreadable,
            "2026-11-18T12:06:40Z (in 1h 0m); find what writes into the table",
        ),
        (Some(NOW.0 / 1_000 - 60), State::Expired, "as for a new key"),
    ] {
        version.expiration = expiration;
        let found = Found::unreadable(version.clone(), "`status` is unknown");
        let explained = explain_of(&id, Some(&found), &rules());
        assert!(explained.words.ends_with(words), "{}", explained.words);
        assert_eq!(explained.needs_person, state == State::Unreadable);
        let shown = explained.record.unwrap();
        assert_eq!(shown.state, state);
        assert_eq!(shown.expires_at.is_some(), expiration.is_some());
    }
}

#[test]
fn a_step_that_waits_is_named_with_what_settles_it() {
    let mut waiting = record(Status::InProgress, Some(RELEASED));
    waiting.last_error = Some("interrupted step".to_owned());
    let begun = StepEntry::begun(None, NOW - Duration::from_mins(3));
    waiting.journal.put("charge", begun);
    let explained = explain(waiting, &rules());
    assert_eq!(explained.answer, Answer::Interrupted);
    assert_eq!(
        explained.safe[0].command,
        "idempotency settle-step --table t 'n#o#0f' --confirmed charge --result JSON --reason WHY"
    );
    let text = explained
        .to_string()
        .replace(|char: char| ('\u{fdd0}'..='\u{fdd5}').contains(&char), "");
    assert!(
        text.contains("3m 0s ago  step `charge` began, and is pending"),
        "{text}"
    );
    // A compensation that failed, and one whose step the handler doesn't name any more.
    for (error, did_not) in [
        ("shop::Declined", "did not happen"),
        ("by hand", "a deployment since then"),
    ] {
        let mut waiting = record(Status::InProgress, Some(RELEASED));
        waiting.last_error = Some("interrupted step".to_owned());
        let begun = StepEntry::begun(None, NOW);
        let ended = begun.ended(StepState::Pending, Some(error), NOW);
        waiting.journal.put("charge/undo", ended);
        let explained = explain(waiting, &rules());
        assert_eq!(
            explained.safe[0].command,
            "idempotency settle-step --table t 'n#o#0f' --confirmed 'charge/undo' --result null --reason WHY"
        );
        let when = &explained.safe[1].when;
        assert!(when.contains(did_not), "{when}");
    }
}

#[test]
fn no_act_ends_a_saga_half_done() {
    let state = r#"{"failure":{"kind":"Declined","message":"no"},"confirmed":["charge"]}"#;
    let over = NOW - Duration::from_mins(10);
    let pause = OnCrash::RunAgainAfter(Duration::from_hours(1));
    for (lease, on_crash, act) in [
        (RELEASED, OnCrash::RunAgain, "explain"),
        (NOW + Duration::from_secs(9), OnCrash::RunAgain, "explain"),
        (over, OnCrash::RunAgain, "explain"),
        (over, pause, "explain"),
        (over, OnCrash::Interrupt, "release"),
    ] {
        let mut going_back = record(Status::InProgress, Some(lease));
        let state = StepState::Confirmed(Ok(state.to_owned()));
        let entry = StepEntry::new(state, 1, 1, NOW);
        going_back.journal.put("@saga", entry);
        let mut rules = rules();
        rules.on_crash = on_crash;
        let found = Found::readable(going_back);
        let id = RecordId::stored("n#o#0f").unwrap();
        let mut explained = explain_of(&id, Some(&found), &rules);
        assert!(
            explained.words.ends_with("its saga is compensating"),
            "{}",
            explained.words
        );
        let [only] = explained.safe.as_slice() else {
            panic!("{:?}", explained.safe)
        };
        let command = format!("idempotency {act} ");
        assert!(only.command.starts_with(&command), "{}", only.command);
        let goes_on = "the next delivery goes on with the saga";
        assert!(only.when.contains(goes_on), "{}", only.when);
        // That of an engine that interrupts, too.
        explained.assumes_crashed(&id, "", Some(&found));
        assert!(explained.safe[0].when.contains(goes_on), "{explained}");
    }
}

#[test]
fn of_a_saga_that_goes_back_no_act_promises_a_step_forward() {
    let state = r#"{"failure":{"kind":"Declined","message":"no"},"confirmed":["charge"],"stuck":"charge/undo"}"#;
    let explained_of = |mut record: Record, charge: &StepEntry| {
        record.last_error = Some("interrupted step".to_owned());
        let saga = StepState::Confirmed(Ok(state.to_owned()));
        let saga = StepEntry::new(saga, 1, 1, NOW);
        record.journal.put("@saga", saga);
        record.journal.put("charge", charge.clone());
        let begun = StepEntry::begun(None, NOW);
        let undo = begun.ended(StepState::Pending, Some("by hand"), NOW);
        record.journal.put("charge/undo", undo);
        explain(record, &rules())
    };
    let charge = StepEntry::begun(None, NOW - Duration::from_mins(3));
    let later = NOW + Duration::from_secs(1);
    let happened = charge.ended(StepState::Confirmed(Ok("17".to_owned())), None, later);
    let failed = charge.ended(StepState::Failed, None, later);
    let next = "the step's effect happened, with this result: its undo is next";
    for (charge, status, whens) in [
        (
            &charge,
            Status::InProgress,
            &[
                next,
                "the step's effect did not happen: nothing of it is undone",
            ][..],
        ),
        // By its result, a delivery can undo it.
        (
            &happened,
            Status::InProgress,
            &[
                "the step's effect happened, with this result: deliveries go on behind it",
                "the step's effect did not happen: the next delivery fires it",
            ],
        ),
        (
            &failed,
            Status::InProgress,
            &["the next delivery goes on with the saga; then ask again"],
        ),
        (
            &happened,
            Status::Failed,
            &["the next delivery goes on undoing"],
        ),
    ] {
        let lease = (status == Status::InProgress).then_some(RELEASED);
        let explained = explained_of(record(status, lease), charge);
        let said: Vec<_> = explained.safe.iter().map(|act| &*act.when).collect();
        assert_eq!(said, whens, "{explained}");
    }
}

/// Reads the rules of a printed command as the tool does.
fn rules_of(command: &str) -> Rules {
    // Each second part stood in quotes.
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        1 => vec![part],
        _ => part.split_whitespace().collect(),
    });
    match Cli::try_parse_from(words).unwrap().command {
        Command::Explain(args) => args.rules.rules(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_asks_again_asks_by_the_same_rules() {
    let pause = |minutes| OnCrash::RunAgainAfter(Duration::from_mins(minutes));
    for (on_crash, is_own) in [
        (OnCrash::RunAgain, false),
        (OnCrash::Interrupt, false),
        (pause(90), false),
        (pause(60), true),
    ] {
        let mut rules = rules();
        rules.on_crash = on_crash;
        if is_own {
            rules.max_attempts = NonZeroU32::new(3);
            rules.skew_margin = Duration::from_millis(2_500);
        }
        let alive = record(Status::InProgress, Some(NOW + Duration::from_secs(9)));
        let mut explained = explain(alive, &rules);
        let command = explained.safe[0].command.clone();
        assert_eq!(rules_of(&command), rules, "{command}");
        let id = RecordId::stored("n#o#0f").unwrap();
        explained.is_locked(&id, " --table t", "by a test");
        assert_eq!(explained.safe[0].command, command);
    }
}

#[test]
fn an_http_operation_is_completed_by_a_response() {
    let id = RecordId::stored(format!("n#POST /orders#{}", "0f".repeat(32))).unwrap();
    let found = Found::readable(record(
        Status::InProgress,
        Some(NOW + Duration::from_secs(9)),
    ));
    let explained = explain_of(&id, Some(&found), &rules());
    let command = &explained.safe[1].command;
    let flags = "--status CODE --body-file FILE --reason WHY --while-live";
    assert!(command.ends_with(flags), "{command}");
    // A handler that no layer calls may have an operation of such a name, too.
    let when = &explained.safe[1].when;
    assert!(when.contains("by --outcome JSON"), "{when}");
}

/// Its charge stands: begun anew, it would charge twice.
#[test]
fn no_act_is_safe_on_an_erased_saga_that_is_not_undone() {
    let mut failed = record(Status::Failed, None);
    let erased = StepState::Confirmed(Err(Omission::Redacted));
    for name in ["@saga", "charge"] {
        let entry = StepEntry::new(erased.clone(), 1, 1, NOW);
        failed.journal.put(name, entry);
    }
    let explained = explain(failed, &rules());
    assert!(
        explained.words.ends_with("its saga is failed"),
        "{}",
        explained.words
    );
    assert_eq!(explained.safe, []);
}

#[test]
fn an_id_is_quoted_for_the_shell() {
    let found = Found::readable(record(Status::Failed, None));
    for (id, words) in [
        ("a'b", r"'a'\''b' --reason WHY"),
        // It is no flag.
        ("-x y", "--reason WHY -- '-x y'"),
        // What a report would show as text.
        (
            "a\u{202e}b\u{2028}",
            r"$'a\xe2\x80\xaeb\xe2\x80\xa8' --reason WHY",
        ),
    ] {
        let id = RecordId::stored(id).unwrap();
        let explained = explain_of(&id, Some(&found), &rules());
        let command = format!("idempotency release --table t {words}");
        assert_eq!(explained.safe[0].command, command);
    }
}

/// Each owner's attempt may have died, whatever the owner is called.
#[test]
fn no_owner_is_taken_for_the_one_who_asks() {
    for owner in ["a delivery", "not ", ""] {
        let mut dead = record(Status::InProgress, Some(NOW - Duration::from_secs(30)));
        dead.owner = Some(Owner::from_stored(owner));
        assert_eq!(explain(dead, &rules()).answer, Answer::RunsAgain, "{owner}");
    }
}

#[test]
fn times_that_lie_apart_as_far_as_numbers_reach_have_a_duration() {
    let mut done = record(Status::Completed, None);
    done.outcome = Some(StoredOutcome::Inline("17".to_owned()));
    done.started_at = Some(EpochMillis(i64::MIN));
    done.completed_at = Some(EpochMillis(i64::MAX));
    let view = explain(done, &rules()).record.unwrap();
    assert_eq!(view.duration_ms, Some(i64::MAX));
}

#[test]
fn of_many_generations_of_keys_the_first_and_the_newest_are_shown() {
    let id = RecordId::stored("n#o#0f").unwrap();
    for (newest, shown, left_out) in [
        (0, vec![0], None),
        (9, (0..=9).collect(), None),
        (
            10,
            [0].into_iter().chain(2..=10).collect(),
            Some("1 generation "),
        ),
        (
            u32::MAX,
            [0].into_iter().chain(u32::MAX - 8..=u32::MAX).collect(),
            Some("4294967286 generations "),
        ),
    ] {
        let mut released = record(Status::InProgress, Some(RELEASED));
        let (name, mut keys) = released.journal.next_keys(NOW);
        keys.tries = newest;
        released.journal.put(name, keys);
        let found = Found::readable(released);
        let mut explained = explain_of(&id, Some(&found), &rules());
        explained.derive(&id, Some(&found), &["charge".to_owned()]);
        let derived = explained.derived.iter();
        let generations: Vec<u32> = derived.map(|derived| derived.generation).collect();
        assert_eq!(generations, shown);
        let words = &explained.words;
        match left_out {
            Some(left_out) => assert!(words.contains(left_out), "{words}"),
            None => assert!(!words.contains("leaves out"), "{words}"),
        }
    }
}

#[test]
fn the_timeline_is_in_the_order_of_time() {
    let explained = explain(
        record(Status::InProgress, Some(NOW + Duration::from_secs(9))),
        &rules(),
    );
    let what: Vec<_> = explained
        .timeline
        .iter()
        .map(|moment| moment.what.as_str())
        .collect();
    assert_eq!(
        what,
        [
            "attempt 1 began",
            "the lease of attempt 1 ends",
            "the record expires: the key counts as new"
        ]
    );
}

#[test]
fn the_pause_before_a_dead_attempt_runs_again_says_its_end_and_what_to_do() {
    let mut pausing = rules();
    pausing.on_crash = OnCrash::RunAgainAfter(Duration::from_hours(1));
    let over = NOW - Duration::from_mins(10);
    let explained = explain(record(Status::InProgress, Some(over)), &pausing);
    assert_eq!(explained.answer, Answer::InFlight);
    assert!(!explained.needs_person);
    for words in ["(in 50m 0s)", "ended", "(10m 0s ago)", "as attempt 2"] {
        assert!(explained.words.contains(words), "{}", explained.words);
    }
    let commands: Vec<_> = explained.safe.iter().map(|act| &act.command).collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    for (command, word) in commands
        .iter()
        .zip(["explain", "release", "complete", "fail"])
    {
        assert!(command.starts_with(&format!("idempotency {word} ")));
        // No attempt runs.
        assert!(!command.contains("--while-live"), "{command}");
    }
}
