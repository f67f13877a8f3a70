//! A step whose note comes back when the attempt's time is over.

use super::*;
use crate::engine::claim::steps::{SagaError, StepError};
use crate::protocol::journal::StepState;
use crate::protocol::record::RecordWrite;

/// The first note takes its time, and is then written.
#[derive(Debug, Default)]
struct SlowNote {
    notes: AtomicU32,
}

const NOTE_TAKES: Duration = Duration::from_millis(400);

impl Script for SlowNote {
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        if matches!(write, RecordWrite::Amend { .. })
            && self.notes.fetch_add(1, Ordering::Relaxed) == 0
        {
            sleep(NOTE_TAKES).await;
        }
        at.table.write(write, at.deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_whose_note_comes_too_late_does_not_fire_and_is_taken_back() {
    let once = engine(SlowNote::default());
    let fired = AtomicU32::new(0);
    let run = once.run(key(), payload(), async |claim| {
        sleep(LEASE.saturating_sub(NOTE_TAKES / 2)).await;
        let step = claim.step("charge", |_| async {
            Ok::<_, Infallible>(fired.fetch_add(1, Ordering::Relaxed))
        });
        step.await
    });
    let late = run.await;
    assert_matches!(late, Err(Error::Handler(StepError::OutOfTime)));
    assert_eq!(fired.into_inner(), 0);
    let entry = record(&once).await.unwrap().journal.get("charge").cloned();
    let entry = entry.expect("the note was written");
    assert_eq!(
        (entry.state, entry.last_error.as_deref()),
        (StepState::Failed, Some("out of time"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_attempt_has_no_time_left_is_neither_noted_nor_begun() {
    for (takes, is_begun) in [
        (LEASE.saturating_sub(Duration::from_millis(1)), true),
        (LEASE, false),
    ] {
        let notes = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&notes);
        let once = engine(Replies::default().on_write(move |write| {
            if matches!(write, RecordWrite::Amend { .. }) {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            None
        }));
        let run = once.run(key(), payload(), async |claim| {
            sleep(takes).await;
            claim.step("charge", async |_| Ok::<_, Infallible>(1)).await
        });
        let ended = run.await;
        let is_late = matches!(ended, Err(Error::Handler(StepError::OutOfTime)));
        assert_eq!(is_late, !is_begun, "{ended:?}");
        let expected = if is_begun { 2 } else { 0 };
        assert_eq!(notes.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_an_earlier_attempt_recorded_is_given_once() {
    let once = engine(Replies::default());
    let first = once.run(key(), payload(), async |claim| {
        claim.step("charge", async |_| Ok::<_, &str>(7)).await?;
        Err::<i32, _>(StepError::Effect("down"))
    });
    first.await.unwrap_err();
    let second = once.run(key(), payload(), async |claim| {
        let fires = async |_| -> Result<i32, &str> { panic!("it has fired") };
        let given = claim.step("charge", fires).await?;
        let again = claim.step("charge", fires).await;
        assert_matches!(again, Err(StepError::Repeated { .. }));
        Ok::<_, StepError<&str>>(given)
    });
    assert_eq!(second.await.unwrap(), Outcome::Executed(7));
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_record_that_is_gone_does_not_fire_and_its_attempt_has_lost_the_lease() {
    let once = engine(Replies::default().on_write(|write| {
        matches!(write, RecordWrite::Amend { .. }).then_some(Ok(Answer::Refused(None)))
    }));
    let run = once.run(key(), payload(), async |claim| {
        let fires = async |_| -> Result<i32, &str> { panic!("it has fired") };
        let lost = claim.step("charge", fires).await;
        assert_matches!(lost, Err(StepError::LeaseLost));
        lost
    });
    let ended = run.await;
    assert_matches!(ended, Err(Error::LeaseLost));
}

/// A successor has taken the key over, with the journal, when a step's note comes once more.
#[derive(Debug)]
struct Succeeded;

impl Script for Succeeded {
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        let RecordWrite::Amend { step, entry, .. } = write else {
            return at.table.write(write, at.deadline).await;
        };
        let found = at.table.load(write.id(), at.deadline).await?.unwrap();
        let mut record = *found.content.unwrap();
        record.owner = Some(Owner::from_stored("successor"));
        record.journal.put(step, entry.clone());
        Ok(Answer::Refused(Some(Found::readable(record))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_note_that_a_successor_has_inherited_does_not_let_the_step_fire() {
    let once = engine(Succeeded);
    let run = once.run(key(), payload(), async |claim| {
        let fires = async |_| -> Result<i32, &str> { panic!("it has fired") };
        claim.step("charge", fires).await
    });
    let ended = run.await;
    assert_matches!(ended, Err(Error::LeaseLost));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_says_again_that_it_fires_after_a_failed_note_keeps_its_lease() {
    // The note is lost, or that of its failure, too.
    for lost in [1, 2] {
        let notes = AtomicU32::new(0);
        let once = engine(Replies::default().on_write(move |write| {
            let is_lost = matches!(write, RecordWrite::Amend { .. })
                && notes.fetch_add(1, Ordering::Relaxed) < lost;
            is_lost.then(|| Err(StoreError::Unavailable("no reply".into())))
        }));
        let run = once.run(key(), payload(), async |claim| {
            let effect = async |step: crate::PreparedStep<&'static str>| {
                step.firing().await.unwrap_err();
                step.firing().await?;
                Ok(1)
            };
            claim.prepared_step("charge", effect).await
        });
        let failed = run.await;
        assert_matches!(failed, Err(Error::Handler(StepError::Repeated { .. })));
        assert!(record(&once).await.unwrap().is_released());
    }
}

#[tokio::test(start_paused = true)]
async fn a_saga_that_gets_stuck_as_its_claim_is_lost_leaves_the_claim_lost() {
    let kept = Arc::new(Mutex::new(None::<crate::Claim>));
    let noted = Arc::clone(&kept);
    // As the run of a handler ends beside a task that it has spawned.
    let once = engine(Replies::default().on_write(move |write| {
        if let RecordWrite::Amend { entry, .. } = write
            && matches!(&entry.state, StepState::Confirmed(Ok(text)) if text.contains("stuck"))
            && let Some(claim) = &*noted.lock().unwrap()
        {
            claim.lose();
        }
        None
    }));
    let checkout = async |claim: crate::Claim| {
        *kept.lock().unwrap() = Some(claim.clone());
        let mut saga = claim.saga()?.permanent(|_: &&'static str| true);
        let charge = |_| async { Ok::<_, &str>(17) };
        let undo = |_, _: u32| async { Err::<(), _>("no refund") };
        saga.step("charge", charge, undo).await?;
        let stuck = saga.abort(&"out of stock").await;
        assert_matches!(stuck, SagaError::Stuck { .. });
        assert!(claim.is_over());
        Err::<u32, _>(stuck)
    };
    let ended = once.run(key(), payload(), checkout).await;
    assert_matches!(ended, Err(Error::LeaseLost));
}
