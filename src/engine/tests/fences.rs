//! Completions that meet the record of another attempt.

use super::*;
use crate::protocol::clock::EpochSeconds;
use crate::protocol::record::{Omission, RecordWrite, Status, StoredOutcome};

/// The end of a run whose handler gave 1, when another attempt has left this record.
async fn overtaken_by(left: Option<Record>) -> Result<Outcome<i32>, Error<Infallible>> {
    let once = engine(Replies::default().on_write(move |write| {
        matches!(write, RecordWrite::Complete(_))
            .then(|| Ok(Answer::Refused(left.clone().map(Found::readable))))
    }));
    once.run(key(), payload(), async |_| Ok(1)).await
}

fn another(status: Status, outcome: Option<StoredOutcome>) -> Record {
    let mut record = Record::new(status, EpochSeconds(i64::MAX / 1_000));
    record.owner = Some(Owner::from_stored("another attempt"));
    record.attempt = 2;
    record.fingerprint = Some(payload());
    record.outcome = outcome;
    record
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_overtaken_gets_the_outcome_of_its_successor() {
    let outcome = StoredOutcome::Inline("2".to_owned());
    let replayed = overtaken_by(Some(another(Status::Completed, Some(outcome)))).await;
    let replayed = replayed.unwrap();
    assert!(replayed.is_replayed());
    assert_eq!(replayed.into_inner(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_overtaken_by_no_outcome_has_lost_its_lease() {
    let unreadable = StoredOutcome::Inline("no number".to_owned());
    for left in [
        None,
        Some(another(Status::InProgress, None)),
        Some(another(Status::Completed, None)),
        Some(another(Status::Completed, Some(unreadable))),
    ] {
        let lost = overtaken_by(left).await;
        assert_matches!(lost, Err(Error::LeaseLost));
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_successors_outcome_was_not_kept_is_told_so() {
    let omitted = StoredOutcome::Omitted(Omission::TooLarge);
    let left = another(Status::Completed, Some(omitted));
    let ended = overtaken_by(Some(left)).await;
    assert_matches!(
        ended,
        Err(Error::OutcomeOmitted {
            reason: Omission::TooLarge,
            handler_ran: true,
            ..
        })
    );
}
