//! `take_over`: only the exact version that was observed.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Bench, Check, ok, same, soon};
use crate::record::{NewClaim, Record, Takeover, Version};
use crate::store::{Answer, Store};

/// A successor's claim.
fn successor<S: Store>(bench: &Bench<'_, S>, name: &str) -> Result<NewClaim, String> {
    let mut claim = bench.claim(name)?;
    claim.attempt = 2;
    claim.started_at = bench.now + Duration::from_secs(90);
    claim.lease = bench.now + Duration::from_secs(150);
    Ok(claim)
}

pub(super) async fn a_resumed_record_keeps_its_last_error<S: Store>(bench: &Bench<'_, S>) -> Check {
    let first = bench.claimed("resume").await?;
    ok(bench.store.release(&bench.release(&first)?, soon()).await)?;
    let released = bench.record(&first.id).await?;
    let claim = successor(bench, "resume")?;
    let seen = Version::of(&released);
    let answer = ok(bench
        .store
        .take_over(&seen, &claim, Takeover::Resume, soon())
        .await)?;
    let expected = Record {
        last_error: released.last_error,
        ..Record::claimed(&claim)
    };
    same("the record", bench.record(&first.id).await?, expected)?;
    let stands = bench.load(&first.id).await?.ok_or("the record is gone")?;
    same("the answer", answer, Answer::Applied(stands))
}

pub(super) async fn a_fresh_takeover_keeps_nothing<S: Store>(bench: &Bench<'_, S>) -> Check {
    let first = bench.claimed("fresh-takeover").await?;
    ok(bench
        .store
        .complete(&bench.completion(&first, "\"old\""), soon())
        .await)?;
    let seen = Version::of(&bench.record(&first.id).await?);
    let mut claim = successor(bench, "fresh-takeover")?;
    claim.attempt = 1;
    let answer = ok(bench
        .store
        .take_over(&seen, &claim, Takeover::Fresh, soon())
        .await)?;
    same(
        "the record",
        bench.record(&first.id).await?,
        Record::claimed(&claim),
    )?;
    let stands = bench.load(&first.id).await?.ok_or("the record is gone")?;
    same("the answer", answer, Answer::Applied(stands))
}

pub(super) async fn a_takeover_needs_the_exact_version<S: Store>(bench: &Bench<'_, S>) -> Check {
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
        for mode in [Takeover::Resume, Takeover::Fresh] {
            let write = bench.store.take_over(&version, &claim, mode, soon());
            bench
                .refused(&format!("a takeover of {version:?}"), &first.id, write)
                .await?;
        }
    }
    Ok(())
}

pub(super) async fn an_absent_attribute_must_still_be_absent<S: Store>(
    bench: &Bench<'_, S>,
) -> Check {
    let first = bench.claimed("absent-lease").await?;
    ok(bench
        .store
        .complete(&bench.completion(&first, "1"), soon())
        .await)?;
    let seen = Version::of(&bench.record(&first.id).await?);
    same("a final record's lease", seen.lease, None)?;
    let claim = successor(bench, "absent-lease")?;
    let wrong = Version {
        lease: Some(0),
        ..seen
    };
    let write = bench
        .store
        .take_over(&wrong, &claim, Takeover::Fresh, soon());
    bench
        .refused("a takeover that expects a lease", &first.id, write)
        .await
}

pub(super) async fn of_many_takeovers_at_once_one_applies<S: Store>(bench: &Bench<'_, S>) -> Check {
    let first = bench.claimed("takeover-race").await?;
    let seen = Version::of(&bench.record(&first.id).await?);
    let claims = (0..8)
        .map(|_| successor(bench, "takeover-race"))
        .collect::<Result<Vec<_>, _>>()?;
    let writes = claims.iter().map(|claim| {
        bench
            .store
            .take_over(&seen, claim, Takeover::Resume, soon())
    });
    let mut winners = Vec::new();
    for (claim, answer) in claims.iter().zip(join_all(writes).await) {
        if let Answer::Applied(_) = ok(answer)? {
            winners.push(claim.owner.clone());
        }
    }
    let held_by = bench.record(&first.id).await?.owner;
    same("the winners", winners, held_by.into_iter().collect())
}

pub(super) async fn the_predecessor_is_fenced_out<S: Store>(bench: &Bench<'_, S>) -> Check {
    let first = bench.claimed("fenced").await?;
    let seen = Version::of(&bench.record(&first.id).await?);
    let claim = successor(bench, "fenced")?;
    ok(bench
        .store
        .take_over(&seen, &claim, Takeover::Resume, soon())
        .await)?;
    let (id, store) = (&first.id, bench.store);
    bench
        .refused(
            "a stale completion",
            id,
            store.complete(&bench.completion(&first, "1"), soon()),
        )
        .await?;
    bench
        .refused(
            "a stale release",
            id,
            store.release(&bench.release(&first)?, soon()),
        )
        .await?;
    let renewal = bench.renewal(&first, claim.lease + Duration::from_mins(1));
    bench
        .refused("a stale renewal", id, store.renew(&renewal, soon()))
        .await
}

pub(super) async fn a_late_claim_does_not_apply_after_a_release<S: Store>(
    bench: &Bench<'_, S>,
) -> Check {
    let first = bench.claimed("late").await?;
    ok(bench.store.release(&bench.release(&first)?, soon()).await)?;
    bench
        .refused(
            "the first claim, arriving again",
            &first.id,
            bench.store.create(&first, soon()),
        )
        .await
}
