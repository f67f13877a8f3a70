//! `amend` with a step's entry: only a newer one, no other step's, and kept by whatever comes after.

use super::{Bench, Check, ok, owner, same, soon};
use crate::clock::EpochMillis;
use crate::journal::{Journal, StepEntry, StepNote, StepResult, StepState};
use crate::record::{Amendment, Found, NewClaim, Omission, Takeover, Version};
use crate::store::{Answer, Store};

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
    StepState::Confirmed(StepResult::Text(text.to_owned()))
}

fn note(claim: &NewClaim, name: &str, entry: StepEntry) -> Amendment {
    Amendment {
        id: claim.id.clone(),
        owner: claim.owner.clone(),
        last_error: None,
        step: Some(StepNote {
            name: name.to_owned(),
            entry,
        }),
    }
}

fn journal(notes: &[&Amendment]) -> Journal {
    let mut journal = Journal::default();
    for note in notes.iter().filter_map(|amendment| amendment.step.clone()) {
        journal.put(note);
    }
    journal
}

async fn applies<S: Store>(bench: &Bench<'_, S>, note: &Amendment) -> Check {
    let answer = ok(bench.store.amend(note, soon()).await)?;
    same("a note", answer, Answer::Applied(()))
}

/// A claim whose record has one step; the note that wrote it.
async fn with_a_step<S: Store>(
    bench: &Bench<'_, S>,
    name: &str,
) -> Result<(NewClaim, Amendment), String> {
    let claim = bench.claimed(name).await?;
    let charged = note(&claim, "charge", entry(confirmed("\"r-1\""), 2));
    applies(bench, &charged).await?;
    Ok((claim, charged))
}

pub(super) async fn every_step_comes_back_as_it_was<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("steps").await?;
    let before = bench.record(&claim.id).await?;
    let omitted = StepState::Confirmed(StepResult::Omitted(Omission::TooLarge));
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
            entry(confirmed("{\"ü\":[\"\\u0000\"]}"), 2),
        ),
        note(&claim, "empty.name-and_result", entry(confirmed("\"\""), 7)),
        note(&claim, "omitted", entry(omitted, 9)),
    ];
    for note in &notes {
        applies(bench, note).await?;
    }
    let after = bench.record(&claim.id).await?;
    same("the journal", &after.journal, &journal(&notes.each_ref()))?;
    let rest = crate::record::Record {
        journal: Journal::default(),
        ..after
    };
    same("everything else", rest, before)
}

pub(super) async fn a_note_replaces_an_older_one_alone<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("revisions").await?;
    let pending = note(&claim, "charge", entry(StepState::Pending, 1));
    let done = note(&claim, "charge", entry(confirmed("1"), 2));
    applies(bench, &pending).await?;
    applies(bench, &done).await?;
    let (id, store) = (&claim.id, bench.store);
    bench
        .refused(
            "an older note, arriving late",
            id,
            store.amend(&pending, soon()),
        )
        .await?;
    bench
        .refused("the same note again", id, store.amend(&done, soon()))
        .await?;
    let other = note(&claim, "mail", entry(StepState::Pending, 1));
    applies(bench, &other).await?;
    let expected = journal(&[&done, &other]);
    same("the journal", bench.record(id).await?.journal, expected)
}

pub(super) async fn nobody_else_notes_a_step<S: Store>(bench: &Bench<'_, S>) -> Check {
    let (claim, _) = with_a_step(bench, "not-your-step").await?;
    let (id, store) = (&claim.id, bench.store);
    let newer = note(&claim, "charge", entry(StepState::Pending, 3));
    let strangers = Amendment {
        owner: owner()?,
        ..newer.clone()
    };
    bench
        .refused("a stranger's note", id, store.amend(&strangers, soon()))
        .await?;
    ok(store.release(&bench.release(&claim)?, soon()).await)?;
    bench
        .refused("a note after release", id, store.amend(&newer, soon()))
        .await
}

pub(super) async fn a_release_and_a_takeover_keep_the_journal<S: Store>(
    bench: &Bench<'_, S>,
) -> Check {
    let (claim, charged) = with_a_step(bench, "kept-steps").await?;
    ok(bench.store.release(&bench.release(&claim)?, soon()).await)?;
    let released = bench.record(&claim.id).await?;
    let expected = journal(&[&charged]);
    same("the journal after a release", &released.journal, &expected)?;

    let next = bench.claim("kept-steps")?;
    let seen = Version::of(&released);
    let take = bench
        .store
        .take_over(&seen, &next, Takeover::Resume, soon());
    let Answer::Applied(Found {
        content: Ok(reply), ..
    }) = ok(take.await)?
    else {
        return Err("the takeover of a released record didn't apply".to_owned());
    };
    same(
        "the journal in the takeover's reply",
        &reply.journal,
        &expected,
    )?;

    let again = note(&next, "charge", entry(StepState::Failed, 3));
    applies(bench, &again).await?;
    let completion = bench.completion(&next, "1");
    ok(bench.store.complete(&completion, soon()).await)?;
    let record = bench.record(&claim.id).await?;
    same(
        "the journal after completion",
        record.journal,
        journal(&[&again]),
    )?;
    let late = note(&next, "charge", entry(StepState::Pending, 4));
    bench
        .refused(
            "a note after completion",
            &claim.id,
            bench.store.amend(&late, soon()),
        )
        .await
}

pub(super) async fn a_fresh_takeover_forgets_the_journal<S: Store>(bench: &Bench<'_, S>) -> Check {
    let (claim, _) = with_a_step(bench, "old-steps").await?;
    let seen = Version::of(&bench.record(&claim.id).await?);
    let next = bench.claim("old-steps")?;
    let take = bench.store.take_over(&seen, &next, Takeover::Fresh, soon());
    let Answer::Applied(found) = ok(take.await)? else {
        return Err("a takeover on the exact version didn't apply".to_owned());
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
