//! Checks `amend`, by which a note replaces only an older entry of the same step, and outcomes that are
//! kept beside their record.

use futures_util::future::join;
use tokio::time::Instant;

use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::{Journal, StepEntry, StepState};
use crate::protocol::packed::{LargeOutcome, Place};
use crate::protocol::record::{Found, NewClaim, Omission, RecordWrite, Takeover, Version};
use crate::store::{Answer, StoreError};
use crate::testing::conformance::bench::{Bench, Check, not_sent, ok, owner, same, soon};
use crate::testing::conformance::claims::take_over;

fn entry(state: StepState, revision: u32) -> StepEntry {
    StepEntry {
        state,
        revision,
        tries: 3,
        last_error: Some("conformance::Error".to_owned()),
        at: EpochMillis(1_763_640_000_123),
    }
}

fn confirmed(text: &str) -> StepState {
    StepState::Confirmed(Ok(text.to_owned()))
}

/// Makes the write of a step's entry.
pub(super) fn note(claim: &NewClaim, step: &str, entry: StepEntry) -> RecordWrite {
    RecordWrite::Amend {
        id: claim.id.clone(),
        owner: claim.owner.clone(),
        step: step.to_owned(),
        entry,
    }
}

fn journal(notes: &[&RecordWrite]) -> Journal {
    let mut journal = Journal::default();
    for note in notes {
        if let RecordWrite::Amend { step, entry, .. } = note {
            journal.put(step, entry.clone());
        }
    }
    journal
}

/// Writes a claim, and a note of one step.
async fn with_a_step(bench: &Bench<'_>, name: &str) -> Result<(NewClaim, RecordWrite), String> {
    let claim = bench.claimed(name).await?;
    let charged = note(&claim, "charge", entry(confirmed("\"r-1\""), 2));
    bench.applies("a note", charged.clone()).await?;
    Ok((claim, charged))
}

pub(super) async fn every_step_comes_back_as_it_was(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("steps").await?;
    let before = bench.record(&claim.id).await?;
    let omitted = StepState::Confirmed(Err(Omission::TooLarge));
    let plain = StepEntry {
        last_error: None,
        ..entry(StepState::Pending, 1)
    };
    let notes = [
        note(&claim, "pending", plain),
        note(&claim, "failed", entry(StepState::Failed, 2)),
        note(
            &claim,
            "confirmed",
            entry(confirmed("{\"ü €\":[\"\\u0000 漢字 😀\"]}"), 2),
        ),
        note(&claim, "empty.name-and_result", entry(confirmed("\"\""), 7)),
        note(&claim, "omitted", entry(omitted, 9)),
    ];
    for note in &notes {
        bench.applies("a note", note.clone()).await?;
    }
    let after = bench.record(&claim.id).await?;
    same("the journal", &after.journal, &journal(&notes.each_ref()))?;
    let rest = crate::protocol::record::Record {
        journal: Journal::default(),
        ..after
    };
    same("everything else", rest, before)
}

pub(super) async fn a_note_replaces_an_older_one_alone(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("revisions").await?;
    let pending = note(&claim, "charge", entry(StepState::Pending, 1));
    let done = note(&claim, "charge", entry(confirmed("1"), 2));
    bench.applies("a note", pending.clone()).await?;
    bench.applies("a note", done.clone()).await?;
    let id = &claim.id;
    bench
        .refused("an older note, arriving late", pending)
        .await?;
    bench.refused("the same note again", done.clone()).await?;
    let other = note(&claim, "mail", entry(StepState::Pending, 1));
    bench.applies("a note", other.clone()).await?;
    let expected = journal(&[&done, &other]);
    same("the journal", bench.record(id).await?.journal, expected)
}

/// A store that reads the journal and writes it in a second request loses one of them.
pub(super) async fn of_two_notes_at_once_both_stand(bench: &Bench<'_>) -> Check {
    for number in 0..4 {
        let claim = bench.claimed(&format!("two-notes-{number}")).await?;
        let charged = note(&claim, "charge", entry(confirmed("1"), 2));
        let mailed = note(&claim, "mail", entry(StepState::Pending, 1));
        let (first, second) = join(
            bench.applies("a note", charged.clone()),
            bench.applies("a note of another step at once", mailed.clone()),
        )
        .await;
        first.and(second)?;
        let expected = journal(&[&charged, &mailed]);
        same(
            "the journal",
            bench.record(&claim.id).await?.journal,
            expected,
        )?;
    }
    Ok(())
}

pub(super) async fn nobody_else_notes_a_step(bench: &Bench<'_>) -> Check {
    let (claim, _) = with_a_step(bench, "not-your-step").await?;
    let newer = |claim: &NewClaim| note(claim, "charge", entry(StepState::Pending, 3));
    let stranger = NewClaim {
        owner: owner()?,
        ..claim.clone()
    };
    bench.refused("a stranger's note", newer(&stranger)).await?;
    bench.write(bench.release(&claim)?).await?;
    bench.refused("a note after release", newer(&claim)).await
}

pub(super) async fn a_release_and_a_takeover_keep_the_journal(bench: &Bench<'_>) -> Check {
    for mode in [Takeover::Resume, Takeover::Unstarted] {
        let name = format!("kept-steps-{mode:?}");
        let (claim, charged) = with_a_step(bench, &name).await?;
        bench.write(bench.release(&claim)?).await?;
        let released = bench.record(&claim.id).await?;
        let expected = journal(&[&charged]);
        same("the journal after a release", &released.journal, &expected)?;

        let next = bench.claim(&name)?;
        let take = take_over(&Version::of(&released), &next, mode);
        let Answer::Applied(Some(Found {
            content: Ok(reply), ..
        })) = bench.write(take).await?
        else {
            return Err(
                "the takeover of a released record didn't apply, or shows no record".to_owned(),
            );
        };
        same(
            "the journal in the takeover's reply",
            &reply.journal,
            &expected,
        )?;

        let again = note(&next, "charge", entry(StepState::Failed, 3));
        bench.applies("a note", again.clone()).await?;
        let completion = bench.completion(&next, "1");
        bench.write(completion.clone()).await?;
        let record = bench.record(&claim.id).await?;
        same(
            "the journal after completion",
            record.journal,
            journal(&[&again]),
        )?;
        let late = note(&next, "charge", entry(StepState::Pending, 4));
        bench.refused("a note after completion", late).await?;
    }
    Ok(())
}

pub(super) async fn a_fresh_takeover_forgets_the_journal(bench: &Bench<'_>) -> Check {
    let (claim, _) = with_a_step(bench, "old-steps").await?;
    let seen = Version::of(&bench.record(&claim.id).await?);
    let take = take_over(&seen, &bench.claim("old-steps")?, Takeover::Fresh);
    let Answer::Applied(Some(found)) = bench.write(take).await? else {
        return Err("a takeover on the exact version didn't apply, or shows no record".to_owned());
    };
    let reply = found.content?.journal;
    same(
        "the journal in the takeover's reply",
        reply,
        Journal::default(),
    )?;
    let record = bench.record(&claim.id).await?;
    same("the journal", record.journal, Journal::default())
}

fn large(bench: &Bench<'_>, name: &str, bytes: usize) -> Result<LargeOutcome, String> {
    let claim = bench.claim(name)?;
    Ok(LargeOutcome {
        id: claim.id,
        owner: claim.owner,
        content: (0..=u8::MAX).cycle().take(bytes).collect(),
        expiration: bench.in_a_day(),
    })
}

/// Keeps an outcome; `None` in a store that keeps none.
async fn kept(bench: &Bench<'_>, outcome: &LargeOutcome) -> Result<Option<Place>, String> {
    match bench.store.keep(outcome, soon()).await {
        Err(StoreError::TooLarge) => Ok(None),
        place => ok(place).map(Some),
    }
}

pub(super) async fn what_is_kept_comes_back_byte_for_byte(bench: &Bench<'_>) -> Check {
    for bytes in [1, 300_000] {
        let outcome = large(bench, &format!("oversize-{bytes}"), bytes)?;
        let Some(place) = kept(bench, &outcome).await? else {
            return Ok(());
        };
        same(
            "the same again",
            kept(bench, &outcome).await?,
            Some(place.clone()),
        )?;
        let fetched = ok(bench.store.fetch(&outcome.id, &place, soon()).await)?;
        if fetched.as_ref() != Some(&outcome.content) {
            return Err(format!("{bytes} bytes didn't come back as they were"));
        }
        same("the record", bench.load(&outcome.id).await?, None)?;
    }
    Ok(())
}

pub(super) async fn each_owner_has_an_outcome_of_its_own(bench: &Bench<'_>) -> Check {
    let one = large(bench, "two-owners", 10)?;
    let other = LargeOutcome {
        owner: owner()?,
        content: b"another".to_vec(),
        ..one.clone()
    };
    let (Some(_), Some(place)) = (kept(bench, &one).await?, kept(bench, &other).await?) else {
        return Ok(());
    };
    let fetched = ok(bench.store.fetch(&one.id, &place, soon()).await)?;
    same("the other's", fetched, Some(other.content))?;
    let nobody = Place::Entry(owner()?);
    let fetched = ok(bench.store.fetch(&one.id, &nobody, soon()).await)?;
    same("nobody's", fetched, None)
}

pub(super) async fn nothing_is_kept_after_the_deadline(bench: &Bench<'_>) -> Check {
    let outcome = large(bench, "late-large", 10)?;
    let refused = bench.store.keep(&outcome, Instant::now()).await;
    if !matches!(refused, Err(StoreError::TooLarge)) {
        not_sent("a large outcome", &refused)?;
    }
    let place = Place::Entry(outcome.owner.clone());
    let fetched = ok(bench.store.fetch(&outcome.id, &place, soon()).await)?;
    same("what is there", fetched, None)
}
