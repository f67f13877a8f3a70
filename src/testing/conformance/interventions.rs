//! Checks `intervene`: an operator's write over exactly the record that was seen.

use super::bench::{Bench, Check, owner, same};
use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::journal::{StepEntry, StepNote, StepResult, StepState};
use crate::protocol::packed::{PackedOutcome, Place};
use crate::protocol::record::{
    Amendment, Ended, Intervention, NewClaim, Omission, Record, RecordWrite, Status, StoredOutcome,
    Version,
};
use crate::protocol::transition;
use crate::store::Answer;

const AT: EpochMillis = EpochMillis(1_763_640_000_123);

fn note(name: &str, revision: u32, text: &str) -> StepNote {
    let state = StepState::Confirmed(StepResult::Text(text.to_owned()));
    StepNote::new(name, StepEntry::new(state, revision, 1, AT))
}

fn ends() -> [Ended; 5] {
    let stored = |status, outcome| Ended::Final {
        status,
        outcome,
        completed_at: AT,
    };
    let packed = PackedOutcome::from_stored("0f".repeat(32), 7, Place::Record(b"seven".to_vec()));
    [
        stored(Status::Completed, StoredOutcome::Inline("17".to_owned())),
        Ended::Released { last_error: None },
        stored(Status::Failed, StoredOutcome::Packed(packed)),
        stored(
            Status::Completed,
            StoredOutcome::Omitted(Omission::Redacted),
        ),
        Ended::Released {
            last_error: Some("by an operator".to_owned()),
        },
    ]
}

fn over(claim: &NewClaim, seen: &Record, end: Ended) -> Result<Intervention, String> {
    let expiration = EpochSeconds(seen.expiration.0 + 60);
    let seen = Version::of(seen);
    Ok(Intervention::new(
        claim.id.clone(),
        seen,
        owner()?,
        expiration,
        end,
    ))
}

pub(super) async fn an_operator_ends_a_record_of_any_status(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("intervention").await?;
    let step = note("charge", 1, "1");
    let charged = Amendment::new(claim.id.clone(), claim.owner.clone(), step);
    bench.applies("a note", charged).await?;
    for (number, end) in (2..).zip(ends()) {
        let seen = bench.record(&claim.id).await?;
        let mut write = over(&claim, &seen, end)?;
        write.steps = vec![note("charge", number, "2"), note("@operator", number, "[]")];
        let write = RecordWrite::Intervene(write);
        let expected = transition(Some(&seen), &write).ok_or("the write doesn't apply")?;
        bench.applies("an intervention", write.clone()).await?;
        bench.has(&claim.id, expected.clone()).await?;
        bench.refused("the same again", write).await?;
        bench.has(&claim.id, expected).await?;
    }
    Ok(())
}

pub(super) async fn an_intervention_needs_the_exact_version(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("intervention-late").await?;
    let seen = bench.record(&claim.id).await?;
    bench
        .applies("the completion", bench.completion(&claim, "\"done\""))
        .await?;
    let stands = bench.load(&claim.id).await?;
    for end in ends() {
        let late = over(&claim, &seen, end)?;
        let answer = bench.write(late).await?;
        same("the answer", answer, Answer::Refused(stands.clone()))?;
    }
    let absent = bench.claim("intervention-absent")?;
    let [end, ..] = ends();
    let answer = bench.write(over(&absent, &seen, end)?).await?;
    same("over no record", answer, Answer::Refused(None))
}

pub(super) async fn an_intervention_with_an_older_step_is_refused(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("intervention-step").await?;
    let step = note("charge", 2, "1");
    let charged = Amendment::new(claim.id.clone(), claim.owner.clone(), step);
    bench.applies("a note", charged).await?;
    let seen = bench.record(&claim.id).await?;
    let mut write = over(&claim, &seen, Ended::Released { last_error: None })?;
    write.steps = vec![note("@operator", 1, "[]"), note("charge", 2, "2")];
    bench.refused("an older step", write).await?;
    bench.has(&claim.id, seen).await
}
