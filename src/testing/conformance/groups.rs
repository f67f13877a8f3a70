//! The grouped calls: the same conditions, one answer a request, in their order.

use super::{Bench, Check, ok, owner, same, soon};
use crate::record::{NewClaim, Status};
use crate::store::{Answer, Store};

/// Claims that are written already, and claims that are not, in turn.
async fn mixed<S: Store>(
    bench: &Bench<'_, S>,
    name: &str,
) -> Result<Vec<(NewClaim, bool)>, String> {
    let mut claims = Vec::new();
    for position in 0..6 {
        let name = format!("{name}-{position}");
        let written = position % 2 == 0;
        claims.push(if written {
            (bench.claimed(&name).await?, true)
        } else {
            (bench.claim(&name)?, false)
        });
    }
    Ok(claims)
}

pub(super) async fn grouped_claims_answer_in_order<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claims = mixed(bench, "create-all").await?;
    let mut group = Vec::new();
    for (claim, _) in &claims {
        group.push(NewClaim {
            owner: owner()?,
            ..claim.clone()
        });
    }
    let answers = bench.store.create_all(&group, soon()).await;
    same("the number of answers", answers.len(), group.len())?;
    for ((claim, taken), answer) in claims.iter().zip(answers) {
        let stands = bench.load(&claim.id).await?;
        let expected = if *taken {
            Answer::Refused(stands)
        } else {
            Answer::Applied(())
        };
        same("a claim in a group", ok(answer)?, expected)?;
    }
    for ((claim, taken), written) in claims.iter().zip(&group) {
        let owner = if *taken { &claim.owner } else { &written.owner };
        same(
            "the owner",
            bench.record(&claim.id).await?.owner.as_ref(),
            Some(owner),
        )?;
    }
    Ok(())
}

pub(super) async fn grouped_completions_answer_in_order<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claims = mixed(bench, "complete-all").await?;
    let group: Vec<_> = claims
        .iter()
        .map(|(claim, _)| bench.completion(claim, "1"))
        .collect();
    let answers = bench.store.complete_all(&group, soon()).await;
    same("the number of answers", answers.len(), group.len())?;
    for ((claim, held), answer) in claims.iter().zip(answers) {
        let expected = if *held {
            Answer::Applied(())
        } else {
            Answer::Refused(None)
        };
        same("a completion in a group", ok(answer)?, expected)?;
        let status = bench
            .load(&claim.id)
            .await?
            .and_then(|found| found.version.status);
        same(
            "the status",
            status.as_deref(),
            held.then_some(Status::Completed.as_str()),
        )?;
    }
    Ok(())
}

pub(super) async fn grouped_releases_answer_in_order<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claims = mixed(bench, "release-all").await?;
    let group = claims
        .iter()
        .map(|(claim, _)| bench.release(claim))
        .collect::<Result<Vec<_>, _>>()?;
    let answers = bench.store.release_all(&group, soon()).await;
    same("the number of answers", answers.len(), group.len())?;
    for ((claim, held), answer) in claims.iter().zip(answers) {
        let expected = if *held {
            Answer::Applied(())
        } else {
            Answer::Refused(None)
        };
        same("a release in a group", ok(answer)?, expected)?;
        let lease = bench
            .load(&claim.id)
            .await?
            .and_then(|found| found.version.lease);
        same("the lease", lease, held.then_some(0))?;
    }
    Ok(())
}

pub(super) async fn grouped_reads_answer_in_order<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claims = mixed(bench, "load-all").await?;
    let ids: Vec<_> = claims.iter().map(|(claim, _)| claim.id.clone()).collect();
    let answers = bench.store.load_all(&ids, soon()).await;
    same("the number of answers", answers.len(), ids.len())?;
    for ((claim, written), answer) in claims.iter().zip(answers) {
        let owner = ok(answer)?.and_then(|found| found.version.owner);
        same(
            "the owner",
            owner.as_deref(),
            written.then_some(claim.owner.as_str()),
        )?;
    }
    Ok(())
}

/// More than DynamoDB takes in one batch statement (25) or one batch read (100).
pub(super) async fn a_large_group_is_taken<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claims = (0..120)
        .map(|n| bench.claim(&format!("large-{n}")))
        .collect::<Result<Vec<_>, _>>()?;
    for answer in bench.store.create_all(&claims, soon()).await {
        same("a claim in a large group", ok(answer)?, Answer::Applied(()))?;
    }
    let ids: Vec<_> = claims.iter().map(|claim| claim.id.clone()).collect();
    for (claim, answer) in claims.iter().zip(bench.store.load_all(&ids, soon()).await) {
        let owner = ok(answer)?.and_then(|found| found.version.owner);
        same("the owner", owner.as_deref(), Some(claim.owner.as_str()))?;
    }
    Ok(())
}

pub(super) async fn an_empty_group_is_answered<S: Store>(bench: &Bench<'_, S>) -> Check {
    same(
        "no claims",
        bench.store.create_all(&[], soon()).await.len(),
        0,
    )?;
    same(
        "no completions",
        bench.store.complete_all(&[], soon()).await.len(),
        0,
    )?;
    same(
        "no releases",
        bench.store.release_all(&[], soon()).await.len(),
        0,
    )?;
    same("no reads", bench.store.load_all(&[], soon()).await.len(), 0)
}
