//! Each row of the decision table, as a sentence.

mod expiry;
mod leases;
mod payloads;
mod settling;

use super::*;
use crate::protocol::clock::EpochSeconds;
use crate::protocol::record::{RELEASED, StoredOutcome};

const NOW: EpochMillis = EpochMillis(1_000_000_000);
const MARGIN: Duration = Duration::from_secs(1);

fn rules() -> Rules {
    Rules {
        on_crash: OnCrash::RunAgain,
        max_attempts: None,
        skew_margin: MARGIN,
    }
}

fn at(offset_ms: i64) -> EpochMillis {
    EpochMillis(NOW.0 + offset_ms)
}

fn expiring(offset_ms: i64) -> EpochSeconds {
    EpochSeconds((NOW.0 + offset_ms) / 1_000)
}

/// A record of ours, in progress, its lease ending in 30 seconds and its retention in a day.
fn in_progress() -> Record {
    Record {
        owner: Some(Owner::from_stored("other")),
        lease: Some(at(30_000)),
        fingerprint: Some(Fingerprint::bytes(b"payload")),
        layout: Some(LAYOUT),
        attempt: 3,
        ..Record::new(Status::InProgress, expiring(86_400_000))
    }
}

fn completed() -> Record {
    Record {
        status: Status::Completed,
        lease: None,
        outcome: Some(StoredOutcome::Inline("1".into())),
        ..in_progress()
    }
}

fn released() -> Record {
    Record {
        lease: Some(RELEASED),
        fingerprint: None,
        ..in_progress()
    }
}

/// The decision on a record, for an attempt with the same payload.
fn on(record: &Record) -> String {
    on_found(&Found::readable(record.clone()), &rules())
}

fn on_found(found: &Found, rules: &Rules) -> String {
    asked(
        Some(found),
        "me",
        Some(Fingerprint::bytes(b"payload")),
        rules,
    )
}

/// A decision in few words, so that a test reads as a table.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the table is shorter without references"
)]
fn asked(
    found: Option<&Found>,
    owner: &str,
    fingerprint: Option<Fingerprint>,
    rules: &Rules,
) -> String {
    let owner = Owner::from_stored(owner);
    let asking = Asking {
        owner: &owner,
        fingerprint: fingerprint.as_ref(),
        now: NOW,
    };
    match decide(found, asking, rules) {
        Decision::Create => "create".into(),
        Decision::Mine(_) => "mine".into(),
        Decision::TakeOver {
            mode: Takeover::Fresh,
            attempt,
            ..
        } => format!("take over fresh, attempt {attempt}"),
        Decision::TakeOver {
            attempt,
            seen,
            mode,
        } => {
            assert_eq!(Some(seen), found.map(|found| &found.version));
            match mode {
                Takeover::Unstarted => format!("resume without the mark, attempt {attempt}"),
                _ => format!("resume, attempt {attempt}"),
            }
        }
        Decision::Replay(_) => "replay".into(),
        Decision::ReplayFailure(_) => "replay failure".into(),
        Decision::Mismatch { .. } => "mismatch".into(),
        Decision::InFlight { until } => format!("in flight for {} ms", until.0 - NOW.0),
        Decision::Interrupted { since } => format!("interrupted {} ms ago", NOW.0 - since.0),
        Decision::Exhausted { attempts } => format!("exhausted after {attempts}"),
        Decision::Unreadable(reason) => format!("unreadable: {reason}"),
    }
}

#[test]
fn nothing_there_is_created() {
    assert_eq!(asked(None, "me", None, &rules()), "create");
}

#[test]
fn my_own_record_is_mine_whatever_the_clock_says() {
    let mine = Record {
        lease: Some(at(-60_000)),
        expiration: expiring(-60_000),
        ..in_progress()
    };
    let found = Found::readable(mine);
    assert_eq!(asked(Some(&found), "other", None, &rules()), "mine");
    let done = Found::readable(completed());
    assert_eq!(asked(Some(&done), "other", None, &rules()), "replay");
    let failed = Found::readable(Record {
        status: Status::Failed,
        ..completed()
    });
    assert_eq!(
        asked(Some(&failed), "other", None, &rules()),
        "replay failure"
    );
}

#[test]
fn a_final_record_is_replayed() {
    assert_eq!(on(&completed()), "replay");
    assert_eq!(
        on(&Record {
            status: Status::Failed,
            ..completed()
        }),
        "replay failure"
    );
}

const AT: EpochMillis = EpochMillis(7);
const AFTER: OnCrash = OnCrash::RunAgainAfter(std::time::Duration::from_hours(1));

fn entry(state: StepState) -> StepEntry {
    StepEntry::begun(None, AT).ended(state, None, AT)
}

#[test]
fn what_is_confirmed_is_skipped_under_every_policy() {
    for crashed in [OnCrash::RunAgain, AFTER, OnCrash::Interrupt] {
        let known = entry(StepState::Confirmed(Ok("1".to_owned())));
        let decision = decide_step(Some(&known), crashed);
        assert_matches!(decision, StepDecision::Skip(Ok(_)));
    }
}

#[test]
fn what_is_pending_fires_again_or_waits_for_an_operator() {
    let known = entry(StepState::Pending);
    let decide = |crashed| decide_step(Some(&known), crashed);
    assert_eq!(decide(OnCrash::RunAgain), StepDecision::Fire);
    assert_eq!(
        decide(OnCrash::Interrupt),
        StepDecision::Interrupted { since: AT }
    );
}

#[test]
fn what_failed_or_never_began_fires_under_every_policy() {
    let failed = entry(StepState::Failed);
    for known in [None, Some(&failed)] {
        for crashed in [OnCrash::RunAgain, OnCrash::Interrupt] {
            assert_eq!(decide_step(known, crashed), StepDecision::Fire);
        }
    }
}
