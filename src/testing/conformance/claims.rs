//! Checks claims on fresh keys, takeovers, reads, and the deadlines of calls.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::protocol::record::{NewClaim, Record, RecordWrite, Release, Takeover, Version};
use crate::protocol::transition;
use crate::store::Answer;
use crate::testing::conformance::bench::{Bench, Check, not_sent, same};

pub(super) async fn a_claim_on_a_fresh_key_applies_and_is_read_back_whole(
    bench: &Bench<'_>,
) -> Check {
    let claim = bench.claimed("fresh").await?;
    bench.has(&claim.id, Record::claimed(&claim)).await
}

pub(super) async fn a_claim_on_a_taken_key_is_refused_with_what_it_met(bench: &Bench<'_>) -> Check {
    let first = bench.claimed("taken").await?;
    let second = bench.claim("taken")?;
    bench.refused("a second claim", second.clone()).await?;
    let completion = bench.completion(&first, "1");
    bench.write(completion.clone()).await?;
    bench.refused("a claim on a completed record", second).await
}

pub(super) async fn a_repeated_claim_meets_itself(bench: &Bench<'_>) -> Check {
    let claim = bench.claimed("repeated").await?;
    bench.refused("the same claim again", claim).await
}

pub(super) async fn of_many_claims_at_once_one_applies(bench: &Bench<'_>) -> Check {
    let claims = (0..8)
        .map(|_| bench.claim("race"))
        .collect::<Result<Vec<_>, _>>()?;
    let answers = join_all(claims.iter().map(|claim| bench.write(claim.clone()))).await;
    bench.one_wins(&bench.id("race")?, &claims, answers).await
}

pub(super) async fn an_absent_key_is_read_as_absent(bench: &Bench<'_>) -> Check {
    same(
        "a record that was never written",
        bench.load(&bench.id("absent")?).await?,
        None,
    )
}

pub(super) async fn a_claim_without_a_fingerprint_has_none(bench: &Bench<'_>) -> Check {
    let mut claim = bench.claim("unchecked")?;
    claim.fingerprint = None;
    bench.write(claim.clone()).await?;
    same(
        "the fingerprint",
        bench.record(&claim.id).await?.fingerprint,
        None,
    )
}

/// A column may compare without case or accents, ignore blanks at the end, or keep the beginning of a long
/// text; a statement or a name may give some characters a meaning.
pub(super) async fn ids_that_look_alike_have_their_own_records(bench: &Bench<'_>) -> Check {
    let long = "x".repeat(bench.most_of_a_raw_id().saturating_sub(1));
    let mut claims = Vec::new();
    for text in [
        "alike",
        "Alike",
        "alike ",
        "alike}",
        "alike'",
        "alike\"",
        // The same letter in one character, in two, and without its accent.
        "\u{e9}",
        "e\u{301}",
        "e",
        &long,
        &format!("{long}y"),
    ] {
        let mut claim = bench.claim("alike")?;
        claim.id = bench.raw_id(text)?;
        let what = format!("a claim on an id that ends with {:?}", end_of(text));
        bench.applies(&what, claim.clone()).await?;
        claims.push(claim);
    }
    for claim in claims {
        bench.has(&claim.id, Record::claimed(&claim)).await?;
    }
    Ok(())
}

fn end_of(text: &str) -> &str {
    text.get(text.len().saturating_sub(9)..).unwrap_or(text)
}

/// Makes a takeover of the record that was `seen`.
pub(super) fn take_over(seen: &Version, claim: &NewClaim, mode: Takeover) -> RecordWrite {
    RecordWrite::TakeOver {
        seen: seen.clone(),
        mode,
        claim: claim.clone(),
    }
}

/// Takes a record over, and compares what stands then, and the answer.
async fn leaves(
    bench: &Bench<'_>,
    seen: &Record,
    claim: &NewClaim,
    mode: Takeover,
    expected: Record,
) -> Check {
    let takeover = take_over(&Version::of(seen), claim, mode);
    let answer = bench.write(takeover).await?;
    bench.has(&claim.id, expected).await?;
    let stands = bench.load(&claim.id).await?.ok_or("the record is gone")?;
    same("the answer", answer, Answer::Applied(Some(stands)))
}

/// Makes a successor's claim.
fn successor(bench: &Bench<'_>, name: &str) -> Result<NewClaim, String> {
    let mut claim = bench.claim(name)?;
    claim.attempt = 2;
    claim.started_at = bench.now + Duration::from_secs(90);
    claim.lease = bench.now + Duration::from_secs(150);
    Ok(claim)
}

pub(super) async fn a_resumed_record_keeps_its_last_error(bench: &Bench<'_>) -> Check {
    let first = bench.claimed("resume").await?;
    bench.write(bench.release(&first)?).await?;
    let released = bench.record(&first.id).await?;
    let claim = successor(bench, "resume")?;
    let expected = Record {
        last_error: released.last_error.clone(),
        ..Record::claimed(&claim)
    };
    leaves(bench, &released, &claim, Takeover::Resume, expected).await?;
    let without = Release {
        last_error: None,
        ..bench.release(&claim)?
    };
    bench.applies("a release without an error", without).await?;
    let left = bench.record(&first.id).await?;
    same("the last error", left.last_error, released.last_error)
}

pub(super) async fn an_unstarted_record_loses_its_last_error(bench: &Bench<'_>) -> Check {
    let first = bench.claimed("unstarted").await?;
    bench.write(bench.release(&first)?).await?;
    let released = bench.record(&first.id).await?;
    let claim = successor(bench, "unstarted")?;
    let expected = Record::claimed(&claim);
    leaves(bench, &released, &claim, Takeover::Unstarted, expected).await
}

pub(super) async fn a_fresh_takeover_keeps_nothing(bench: &Bench<'_>) -> Check {
    let first = bench.claimed("fresh-takeover").await?;
    bench.write(bench.completion(&first, "\"old\"")).await?;
    let old = bench.record(&first.id).await?;
    let mut claim = successor(bench, "fresh-takeover")?;
    claim.attempt = 1;
    let expected = Record::claimed(&claim);
    leaves(bench, &old, &claim, Takeover::Fresh, expected).await
}

/// A store that sets only what the claim has keeps the fingerprint of another payload, which the next request
/// doesn't match.
pub(super) async fn a_takeover_keeps_no_fingerprint(bench: &Bench<'_>) -> Check {
    for mode in [Takeover::Resume, Takeover::Unstarted, Takeover::Fresh] {
        let name = format!("unchecked-{mode:?}");
        let first = bench.claimed(&name).await?;
        let release = Release {
            forget_fingerprint: false,
            ..bench.release(&first)?
        };
        bench.applies("a release", release).await?;
        let released = bench.record(&first.id).await?;
        let mut claim = successor(bench, &name)?;
        claim.fingerprint = None;
        let write = take_over(&Version::of(&released), &claim, mode);
        let expected = transition(Some(&released), &write).ok_or("the write doesn't apply")?;
        bench.applies("a takeover", write).await?;
        bench.has(&first.id, expected).await?;
    }
    Ok(())
}

pub(super) async fn a_takeover_needs_the_exact_version(bench: &Bench<'_>) -> Check {
    let first = bench.claimed("version").await?;
    let seen = Version::of(&bench.record(&first.id).await?);
    let claim = successor(bench, "version")?;
    let stale = [
        Version {
            owner: Some("somebody".into()),
            ..seen.clone()
        },
        Version {
            status: Some("COMPLETED".into()),
            ..seen.clone()
        },
        Version {
            lease: seen.lease.map(|lease| lease - 1),
            ..seen.clone()
        },
        Version {
            expiration: seen.expiration.map(|expiration| expiration + 1),
            ..seen.clone()
        },
        Version {
            owner: None,
            ..seen.clone()
        },
        Version {
            lease: None,
            ..seen
        },
    ];
    for version in stale {
        for mode in [Takeover::Resume, Takeover::Unstarted, Takeover::Fresh] {
            let write = take_over(&version, &claim, mode);
            let what = format!("a takeover of {version:?}");
            bench.refused(&what, write).await?;
        }
    }
    Ok(())
}

pub(super) async fn an_absent_attribute_must_still_be_absent(bench: &Bench<'_>) -> Check {
    let first = bench.claimed("absent-lease").await?;
    bench.write(bench.completion(&first, "1")).await?;
    let seen = Version::of(&bench.record(&first.id).await?);
    same("a final record's lease", seen.lease, None)?;
    let claim = successor(bench, "absent-lease")?;
    let wrong = Version {
        lease: Some(0),
        ..seen
    };
    let write = take_over(&wrong, &claim, Takeover::Fresh);
    bench
        .refused("a takeover that expects a lease", write)
        .await
}

pub(super) async fn of_many_takeovers_at_once_one_applies(bench: &Bench<'_>) -> Check {
    let first = bench.claimed("takeover-race").await?;
    let seen = Version::of(&bench.record(&first.id).await?);
    let claims = (0..8)
        .map(|_| successor(bench, "takeover-race"))
        .collect::<Result<Vec<_>, _>>()?;
    let writes = claims.iter();
    let writes = writes.map(|claim| bench.write(take_over(&seen, claim, Takeover::Resume)));
    bench
        .one_wins(&first.id, &claims, join_all(writes).await)
        .await
}

pub(super) async fn the_predecessor_is_fenced_out(bench: &Bench<'_>) -> Check {
    let first = bench.claimed("fenced").await?;
    let seen = Version::of(&bench.record(&first.id).await?);
    let claim = successor(bench, "fenced")?;
    bench
        .write(take_over(&seen, &claim, Takeover::Resume))
        .await?;
    bench
        .refused("a stale completion", bench.completion(&first, "1"))
        .await?;
    bench
        .refused("a stale release", bench.release(&first)?)
        .await?;
    let renewal = bench.renewal(&first, claim.lease + Duration::from_mins(1));
    bench.refused("a stale renewal", renewal).await
}

pub(super) async fn a_late_claim_does_not_apply_after_a_release(bench: &Bench<'_>) -> Check {
    let first = bench.claimed("late").await?;
    bench.write(bench.release(&first)?).await?;
    bench
        .refused("the first claim, arriving again", first)
        .await
}

pub(super) async fn a_passed_deadline_writes_nothing(bench: &Bench<'_>) -> Check {
    let passed = Instant::now();
    let store = bench.store;
    let claim = bench.claim("too-late")?;
    let claimed = store.write(&claim.clone().into(), passed).await;
    not_sent("a claim", &claimed)?;
    same("the record", bench.load(&claim.id).await?, None)?;

    let held = bench.claimed("held").await?;
    let before = bench.load(&held.id).await?;
    let completion = bench.completion(&held, "1").into();
    let completed = store.write(&completion, passed).await;
    not_sent("a completion", &completed)?;
    let released = store.write(&bench.release(&held)?.into(), passed).await;
    not_sent("a release", &released)?;
    not_sent("a read", &store.load(&held.id, passed).await)?;
    same("the record", bench.load(&held.id).await?, before)
}

pub(super) async fn a_read_sees_the_write_before_it(bench: &Bench<'_>) -> Check {
    for round in 0..10 {
        let claim = bench.claimed(&format!("consistent-{round}")).await?;
        same(
            "the owner",
            bench.record(&claim.id).await?.owner,
            Some(claim.owner.clone()),
        )?;
        let completion = bench.completion(&claim, "1");
        bench.applies("a completion", completion.clone()).await?;
        same(
            "the outcome",
            bench.record(&claim.id).await?.outcome,
            Some(completion.outcome),
        )?;
    }
    Ok(())
}
