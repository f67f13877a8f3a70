//! Checks completions, releases, renewals and an operator's interventions: each applies only while the
//! record is as it expects.

use std::time::Duration;

use futures_util::future::join;

use crate::protocol::clock::{EpochMillis, EpochSeconds};
use crate::protocol::journal::{Journal, StepEntry, StepState};
use crate::protocol::packed::{PackedOutcome, Place};
use crate::protocol::record::{
    Completion, Ended, Found, Intervention, NewClaim, Omission, RELEASED, Record, RecordWrite,
    Release, Status, StoredOutcome, Version,
};
use crate::protocol::transition;
use crate::store::Answer;
use crate::testing::conformance::bench::{Bench, Check, owner, resumed, same};
use crate::testing::conformance::journal::note;

pub(super) fn finished(claim: &NewClaim, completion: &Completion) -> Record {
    let mut record = Record::claimed(claim);
    record.complete(completion);
    record
}

async fn completes(bench: &Bench<'_>, name: &str, status: Status, outcome: StoredOutcome) -> Check {
    let claim = bench.claimed(name).await?;
    let completion = Completion {
        status,
        outcome,
        ..bench.completion(&claim, "")
    };
    bench
        .applies("the owner's completion", completion.clone())
        .await?;
    bench.has(&claim.id, finished(&claim, &completion)).await
}

pub(super) async fn the_owner_completes(bench: &Bench<'_>) -> Check {
    completes(
        bench,
        "complete",
        Status::Completed,
        StoredOutcome::Inline("{\"€\":\"漢字 😀\"}".into()),
    )
    .await
}

pub(super) async fn a_failure_is_final_too(bench: &Bench<'_>) -> Check {
    completes(
        bench,
        "fail",
        Status::Failed,
        StoredOutcome::Inline("\"5 €, 漢字 😀\"".into()),
    )
    .await
}

pub(super) async fn every_outcome_comes_back_as_it_was(bench: &Bench<'_>) -> Check {
    let long = format!("\"{}\"", "x".repeat(20_000));
    let texts = [
        "null",
        "false",
        "0",
        "\"\"",
        "[]",
        "{}",
        "\"ü\\u0000😀\"",
        "1e400",
        long.as_str(),
    ];
    let places = [
        Place::Record(vec![0, 255, 10]),
        Place::Entry(owner()?),
        Place::Object(owner()?),
    ];
    let packed = |place| PackedOutcome {
        sha256: "0f".to_owned(),
        bytes: u64::from(u32::MAX),
        place,
    };
    let omissions = [
        Omission::TooLarge,
        Omission::NotSerializable,
        Omission::NotKept,
        Omission::Redacted,
    ];
    let texts = texts.map(|text| StoredOutcome::Inline(text.to_owned()));
    let outcomes = texts
        .into_iter()
        .chain(places.map(|place| StoredOutcome::Packed(packed(place))))
        .chain(omissions.map(StoredOutcome::Omitted));
    for (position, outcome) in outcomes.enumerate() {
        let name = format!("outcome-{position}");
        completes(bench, &name, Status::Completed, outcome).await?;
    }
    Ok(())
}

pub(super) async fn times_of_the_year_9999_come_back_as_they_were(bench: &Bench<'_>) -> Check {
    let latest = EpochMillis(253_402_300_799_999);
    let expiration = EpochSeconds(253_402_300_799);
    let claim = NewClaim {
        started_at: latest,
        lease: latest,
        expiration,
        ..bench.claim("latest")?
    };
    bench.applies("a claim", claim.clone()).await?;
    bench.has(&claim.id, Record::claimed(&claim)).await?;
    let completion = Completion {
        completed_at: latest,
        expiration,
        ..bench.completion(&claim, "1")
    };
    bench.applies("a completion", completion.clone()).await?;
    bench.has(&claim.id, finished(&claim, &completion)).await
}

pub(super) async fn nobody_else_completes(bench: &Bench<'_>) -> Check {
    bench.claimed("theirs").await?;
    let other = bench.claim("theirs")?;
    let completion = bench.completion(&other, "1");
    bench.refused("a stranger's completion", completion).await
}

pub(super) async fn a_completed_record_is_final(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("final").await?;
    bench.write(bench.completion(&claim, "1")).await?;
    let again = bench.completion(&claim, "2");
    bench.refused("a second completion", again).await?;
    let release = bench.release(&claim)?;
    bench.refused("a release after completion", release).await?;
    let renewal = bench.renewal(&claim, claim.lease + Duration::from_mins(1));
    bench.refused("a renewal after completion", renewal).await?;
    bench
        .refused("an amendment after completion", amendment(&claim))
        .await
}

pub(super) async fn the_owner_releases(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("release").await?;
    let release = bench.release(&claim)?;
    bench
        .applies("the owner's release", release.clone())
        .await?;
    let expected = Record {
        owner: Some(release.tombstone.clone()),
        lease: Some(RELEASED),
        last_error: release.last_error.clone(),
        fingerprint: None,
        ..Record::claimed(&claim)
    };
    bench.has(&claim.id, expected).await?;
    bench.refused("the same release again", release).await
}

pub(super) async fn a_release_may_keep_the_fingerprint(bench: &Bench<'_>) -> Check {
    for last_error in [None, Some(String::new())] {
        let claim = bench.claimed(&format!("kept-{last_error:?}")).await?;
        let release = Release {
            last_error,
            forget_fingerprint: false,
            ..bench.release(&claim)?
        };
        bench.write(release.clone()).await?;
        let record = bench.record(&claim.id).await?;
        same("the fingerprint", record.fingerprint, claim.fingerprint)?;
        same("the last error", record.last_error, release.last_error)?;
    }
    Ok(())
}

pub(super) async fn a_released_record_ignores_its_old_owner(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("old-owner").await?;
    bench.write(bench.release(&claim)?).await?;
    let completion = bench.completion(&claim, "1");
    bench
        .refused("a completion after release", completion)
        .await?;
    let renewal = bench.renewal(&claim, claim.lease + Duration::from_mins(1));
    bench.refused("a renewal after release", renewal).await?;
    bench
        .refused("an amendment after release", amendment(&claim))
        .await
}

pub(super) async fn nobody_else_releases(bench: &Bench<'_>) -> Check {
    bench.claimed("not-yours").await?;
    let release = bench.release(&bench.claim("not-yours")?)?;
    bench.refused("a stranger's release", release).await
}

pub(super) async fn a_renewal_only_lengthens(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("renew").await?;
    let longer = bench.renewal(&claim, claim.lease + Duration::from_secs(30));
    let expected = transition(Some(&Record::claimed(&claim)), &longer);
    let expected = expected.ok_or("the write doesn't apply")?;
    bench.applies("a longer lease", longer.clone()).await?;
    bench.has(&claim.id, expected).await?;
    bench.refused("the same lease again", longer).await?;
    let shorter = bench.renewal(&claim, claim.lease + Duration::from_secs(10));
    bench
        .refused("a shorter lease, arriving late", shorter)
        .await?;
    let stranger = bench.renewal(
        &bench.claim("renew")?,
        claim.lease + Duration::from_secs(90),
    );
    bench.refused("a stranger's renewal", stranger).await
}

/// Makes an amendment with a step's entry.
pub(super) fn amendment(claim: &NewClaim) -> RecordWrite {
    note(
        claim,
        "conformance",
        StepEntry::begun(None, claim.started_at),
    )
}

pub(super) async fn writes_under_the_fence_create_nothing(bench: &Bench<'_>) -> Check {
    let claim = bench.claim("never-claimed")?;
    bench
        .refused("a completion", bench.completion(&claim, "1"))
        .await?;
    bench.refused("a release", bench.release(&claim)?).await?;
    bench
        .refused("a renewal", bench.renewal(&claim, claim.lease))
        .await?;
    bench.refused("an amendment", amendment(&claim)).await
}

const AT: EpochMillis = EpochMillis(1_763_640_000_123);

fn confirmed(text: &str, revision: u32) -> StepEntry {
    let state = StepState::Confirmed(Ok(text.to_owned()));
    StepEntry::new(state, revision, 1, AT)
}

fn ends() -> [Ended; 5] {
    let stored = |status, outcome| Ended::Final {
        status,
        outcome,
        completed_at: AT,
    };
    let packed = PackedOutcome {
        sha256: "0f".repeat(32),
        bytes: 7,
        place: Place::Record(b"seven".to_vec()),
    };
    [
        stored(Status::Completed, StoredOutcome::Inline("17".to_owned())),
        Ended::Released {
            last_error: Some("by an operator".to_owned()),
        },
        stored(Status::Failed, StoredOutcome::Packed(packed)),
        stored(
            Status::Completed,
            StoredOutcome::Omitted(Omission::Redacted),
        ),
        // It keeps the last error that is there.
        Ended::Released { last_error: None },
    ]
}

fn over(claim: &NewClaim, seen: &Record, end: Ended) -> Result<Intervention, String> {
    let expiration = EpochSeconds(seen.expiration.0 + 60);
    let seen = Version::of(seen);
    Ok(Intervention {
        id: claim.id.clone(),
        seen,
        owner: owner()?,
        expiration,
        end,
        steps: Journal::default(),
    })
}

pub(super) async fn an_operator_ends_a_record_of_any_status(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("intervention").await?;
    let charged = note(&claim, "charge", confirmed("1", 1));
    bench.applies("a note", charged).await?;
    let steps = ["charge", "@operator"].map(str::to_owned);
    for (revision, end) in (2..).zip(ends()) {
        intervenes(bench, &claim, end, &steps, revision).await?;
    }
    Ok(())
}

/// Has an operator end the record, with an entry of each of these steps.
async fn intervenes(
    bench: &Bench<'_>,
    claim: &NewClaim,
    end: Ended,
    steps: &[String],
    revision: u32,
) -> Check {
    let seen = bench.record(&claim.id).await?;
    let mut write = over(claim, &seen, end)?;
    for step in steps {
        write.steps.put(step, confirmed("2", revision));
    }
    let write = RecordWrite::Intervene(write);
    let expected = transition(Some(&seen), &write).ok_or("the write doesn't apply")?;
    bench.applies("an intervention", write.clone()).await?;
    bench.has(&claim.id, expected.clone()).await?;
    bench.refused("the same again", write).await?;
    bench.has(&claim.id, expected).await
}

/// A statement or an expression may have no room for so many.
pub(super) async fn an_intervention_may_change_all_steps_of_a_saga(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("intervention-saga").await?;
    bench
        .applies("the completion", bench.completion(&claim, "1"))
        .await?;
    let steps = (1..=52).flat_map(|step| [format!("step-{step}"), format!("step-{step}/undo")]);
    let steps: Vec<_> = steps.collect();
    for (revision, end) in (1..).zip(ends()) {
        intervenes(bench, &claim, end, &steps, revision).await?;
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
    let charged = note(&claim, "charge", confirmed("1", 2));
    bench.applies("a note", charged).await?;
    let seen = bench.record(&claim.id).await?;
    let mut write = over(&claim, &seen, Ended::Released { last_error: None })?;
    write.steps.put("@operator", confirmed("[]", 1));
    write.steps.put("charge", confirmed("2", 2));
    bench.refused("an older step", write).await?;
    bench.has(&claim.id, seen).await
}

/// A store that reads the owner and writes in a second request lets both apply.
pub(super) async fn of_a_takeover_and_a_late_write_at_once_one_applies(bench: &Bench<'_>) -> Check {
    for number in 0..6 {
        let first = bench.claimed(&format!("at-once-{number}")).await?;
        let late: RecordWrite = match number % 3 {
            0 => bench.release(&first)?.into(),
            1 => bench.completion(&first, "1").into(),
            _ => bench.renewal(&first, first.lease + Duration::from_mins(1)),
        };
        let late = async { bench.write(late).await.map(|answer| answer.is_applied()) };
        bench.beside_a_takeover(&first, late).await?;
    }
    Ok(())
}

/// A store that compares the version and writes in a second request lets both apply.
pub(super) async fn of_an_intervention_and_a_late_write_at_once_one_applies(
    bench: &Bench<'_>,
) -> Check {
    for number in 0..8 {
        let first = bench.claimed(&format!("ended-at-once-{number}")).await?;
        let seen = bench.record(&first.id).await?;
        let late: RecordWrite = match number % 4 {
            0 => bench.completion(&first, "1").into(),
            1 => bench.release(&first)?.into(),
            2 => bench.renewal(&first, first.lease + Duration::from_mins(1)),
            _ => resumed(&first, &seen)?,
        };
        let write = over(&first, &seen, Ended::Released { last_error: None })?;
        let write = RecordWrite::Intervene(write);
        let expected = [&write, &late].map(|write| transition(Some(&seen), write));
        let (ended, late) = join(bench.write(write), bench.write(late)).await;
        let (ended, late) = (ended?.is_applied(), late?.is_applied());
        same("the late write beside the intervention", late, !ended)?;
        let [by_operator, by_late_write] = expected;
        let expected = if ended { by_operator } else { by_late_write };
        let expected = expected.ok_or("the write doesn't apply")?;
        bench.has(&first.id, expected).await?;
    }
    Ok(())
}

/// A store that reads the record, and writes it with the note in a second request, gives it back to its
/// old owner.
pub(super) async fn a_note_beside_the_end_of_its_claim_restores_nothing(
    bench: &Bench<'_>,
) -> Check {
    for number in 0..6 {
        let first = bench.claimed(&format!("noted-at-once-{number}")).await?;
        let mut seen = bench.record(&first.id).await?;
        let end = if number % 2 == 0 {
            resumed(&first, &seen)?
        } else {
            over(&first, &seen, Ended::Released { last_error: None })?.into()
        };
        let late = amendment(&first);
        let with_note = transition(Some(&seen), &late).ok_or("the note doesn't apply")?;
        let (noted, ended) = join(bench.write(late), bench.write(end.clone())).await;
        // It came before the end of the claim, or not at all.
        if noted?.is_applied() {
            seen = with_note;
        }
        let expected = transition(Some(&seen), &end).ok_or("the write doesn't apply")?;
        let Answer::Applied(left) = ended? else {
            return Err("a note keeps a takeover or an intervention from applying".to_owned());
        };
        if matches!(end, RecordWrite::TakeOver { .. }) {
            let stands = Some(Found::readable(expected.clone()));
            same("the answer to the takeover", left, stands)?;
        }
        bench.has(&first.id, expected).await?;
    }
    Ok(())
}
