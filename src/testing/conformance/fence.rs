//! `complete`, `release`, `renew` and `amend`: only the current owner, only while in progress.

use std::time::Duration;

use super::{Bench, Check, ok, owner, same, soon};
use crate::packed::{PackedOutcome, Place};
use crate::record::{Amendment, Completion, Omission, RELEASED, Record, Status, StoredOutcome};
use crate::store::{Answer, Store};

fn finished(before: Record, completion: &Completion) -> Record {
    Record {
        status: completion.status,
        outcome: Some(completion.outcome.clone()),
        completed_at: Some(completion.completed_at),
        expiration: completion.expiration,
        lease: None,
        ..before
    }
}

async fn completes<S: Store>(
    bench: &Bench<'_, S>,
    name: &str,
    status: Status,
    outcome: StoredOutcome,
) -> Check {
    let claim = bench.claimed(name).await?;
    let completion = Completion {
        status,
        outcome,
        ..bench.completion(&claim, "")
    };
    same(
        "the owner's completion",
        ok(bench.store.complete(&completion, soon()).await)?,
        Answer::Applied(()),
    )?;
    same(
        "the record",
        bench.record(&claim.id).await?,
        finished(Record::claimed(&claim), &completion),
    )
}

pub(super) async fn the_owner_completes<S: Store>(bench: &Bench<'_, S>) -> Check {
    completes(
        bench,
        "complete",
        Status::Completed,
        StoredOutcome::Inline("{\"a\":1}".into()),
    )
    .await
}

pub(super) async fn a_failure_is_final_too<S: Store>(bench: &Bench<'_, S>) -> Check {
    completes(
        bench,
        "fail",
        Status::Failed,
        StoredOutcome::Inline("\"declined\"".into()),
    )
    .await
}

pub(super) async fn every_outcome_comes_back_as_it_was<S: Store>(bench: &Bench<'_, S>) -> Check {
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
    for (position, text) in texts.into_iter().enumerate() {
        let outcome = StoredOutcome::Inline(text.to_owned());
        completes(
            bench,
            &format!("outcome-{position}"),
            Status::Completed,
            outcome,
        )
        .await?;
    }
    let places = [
        Place::Record(vec![0, 255, 10]),
        Place::Item(owner()?),
        Place::Object(owner()?),
    ];
    for (position, place) in places.into_iter().enumerate() {
        let outcome =
            StoredOutcome::Packed(PackedOutcome::from_stored("0f", u64::from(u32::MAX), place));
        let name = format!("packed-{position}");
        completes(bench, &name, Status::Completed, outcome).await?;
    }
    for reason in [
        Omission::TooLarge,
        Omission::NotSerializable,
        Omission::NotKept,
    ] {
        let outcome = StoredOutcome::Omitted(reason);
        completes(
            bench,
            &format!("omitted-{}", reason.as_str()),
            Status::Completed,
            outcome,
        )
        .await?;
    }
    Ok(())
}

pub(super) async fn nobody_else_completes<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("theirs").await?;
    let other = bench.claim("theirs")?;
    let completion = bench.completion(&other, "1");
    bench
        .refused(
            "a stranger's completion",
            &claim.id,
            bench.store.complete(&completion, soon()),
        )
        .await
}

pub(super) async fn a_completed_record_is_final<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("final").await?;
    ok(bench
        .store
        .complete(&bench.completion(&claim, "1"), soon())
        .await)?;
    let (id, store) = (&claim.id, bench.store);
    let again = bench.completion(&claim, "2");
    bench
        .refused("a second completion", id, store.complete(&again, soon()))
        .await?;
    let release = bench.release(&claim)?;
    bench
        .refused(
            "a release after completion",
            id,
            store.release(&release, soon()),
        )
        .await?;
    let renewal = bench.renewal(&claim, claim.lease + Duration::from_mins(1));
    bench
        .refused(
            "a renewal after completion",
            id,
            store.renew(&renewal, soon()),
        )
        .await?;
    let amendment = amendment(&claim.id, &claim.owner);
    bench
        .refused(
            "an amendment after completion",
            id,
            store.amend(&amendment, soon()),
        )
        .await
}

pub(super) async fn the_owner_releases<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("release").await?;
    let release = bench.release(&claim)?;
    same(
        "the owner's release",
        ok(bench.store.release(&release, soon()).await)?,
        Answer::Applied(()),
    )?;
    let expected = Record {
        owner: Some(release.tombstone.clone()),
        lease: Some(RELEASED),
        last_error: release.last_error.clone(),
        fingerprint: None,
        ..Record::claimed(&claim)
    };
    same("the record", bench.record(&claim.id).await?, expected)?;
    bench
        .refused(
            "the same release again",
            &claim.id,
            bench.store.release(&release, soon()),
        )
        .await
}

pub(super) async fn a_release_may_keep_the_fingerprint<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("kept").await?;
    let mut release = bench.release(&claim)?;
    release.forget_fingerprint = false;
    release.last_error = None;
    ok(bench.store.release(&release, soon()).await)?;
    let record = bench.record(&claim.id).await?;
    same("the fingerprint", record.fingerprint, claim.fingerprint)?;
    same("the last error", record.last_error, None)
}

pub(super) async fn a_released_record_ignores_its_old_owner<S: Store>(
    bench: &Bench<'_, S>,
) -> Check {
    let claim = bench.claimed("old-owner").await?;
    ok(bench.store.release(&bench.release(&claim)?, soon()).await)?;
    let (id, store) = (&claim.id, bench.store);
    let completion = bench.completion(&claim, "1");
    bench
        .refused(
            "a completion after release",
            id,
            store.complete(&completion, soon()),
        )
        .await?;
    let renewal = bench.renewal(&claim, claim.lease + Duration::from_mins(1));
    bench
        .refused("a renewal after release", id, store.renew(&renewal, soon()))
        .await?;
    let amendment = amendment(&claim.id, &claim.owner);
    bench
        .refused(
            "an amendment after release",
            id,
            store.amend(&amendment, soon()),
        )
        .await
}

pub(super) async fn nobody_else_releases<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("not-yours").await?;
    let release = bench.release(&bench.claim("not-yours")?)?;
    bench
        .refused(
            "a stranger's release",
            &claim.id,
            bench.store.release(&release, soon()),
        )
        .await
}

pub(super) async fn a_renewal_only_lengthens<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("renew").await?;
    let longer = bench.renewal(&claim, claim.lease + Duration::from_secs(30));
    same(
        "a longer lease",
        ok(bench.store.renew(&longer, soon()).await)?,
        Answer::Applied(()),
    )?;
    let expected = Record {
        lease: Some(longer.lease),
        expiration: longer.expiration,
        ..Record::claimed(&claim)
    };
    same("the record", bench.record(&claim.id).await?, expected)?;
    bench
        .refused(
            "the same lease again",
            &claim.id,
            bench.store.renew(&longer, soon()),
        )
        .await?;
    let shorter = bench.renewal(&claim, claim.lease + Duration::from_secs(10));
    bench
        .refused(
            "a shorter lease, arriving late",
            &claim.id,
            bench.store.renew(&shorter, soon()),
        )
        .await?;
    let stranger = bench.renewal(
        &bench.claim("renew")?,
        claim.lease + Duration::from_secs(90),
    );
    bench
        .refused(
            "a stranger's renewal",
            &claim.id,
            bench.store.renew(&stranger, soon()),
        )
        .await
}

fn amendment(id: &crate::key::RecordId, owner: &crate::record::Owner) -> Amendment {
    Amendment {
        id: id.clone(),
        owner: owner.clone(),
        last_error: Some("conformance::Late".to_owned()),
        step: None,
    }
}

pub(super) async fn an_amendment_changes_nothing_else<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("amend").await?;
    let note = amendment(&claim.id, &claim.owner);
    same(
        "the owner's amendment",
        ok(bench.store.amend(&note, soon()).await)?,
        Answer::Applied(()),
    )?;
    let expected = Record {
        last_error: note.last_error.clone(),
        ..Record::claimed(&claim)
    };
    same(
        "the record",
        bench.record(&claim.id).await?,
        expected.clone(),
    )?;
    let nothing = Amendment {
        last_error: None,
        ..note
    };
    same(
        "an empty amendment",
        ok(bench.store.amend(&nothing, soon()).await)?,
        Answer::Applied(()),
    )?;
    same("the record", bench.record(&claim.id).await?, expected)?;
    let stranger = amendment(&claim.id, &owner()?);
    bench
        .refused(
            "a stranger's amendment",
            &claim.id,
            bench.store.amend(&stranger, soon()),
        )
        .await
}

pub(super) async fn writes_under_the_fence_create_nothing<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claim("never-claimed")?;
    let (id, store) = (&claim.id, bench.store);
    bench
        .refused(
            "a completion",
            id,
            store.complete(&bench.completion(&claim, "1"), soon()),
        )
        .await?;
    bench
        .refused(
            "a release",
            id,
            store.release(&bench.release(&claim)?, soon()),
        )
        .await?;
    bench
        .refused(
            "a renewal",
            id,
            store.renew(&bench.renewal(&claim, claim.lease), soon()),
        )
        .await?;
    bench
        .refused(
            "an amendment",
            id,
            store.amend(&amendment(id, &claim.owner), soon()),
        )
        .await
}
