//! Checks the grouped calls: the same conditions, one answer for each request, in their order.

use tokio::time::Instant;

use super::bench::{Bench, Check, not_sent, ok, owner, same, soon};
use crate::protocol::key::RecordId;
use crate::protocol::record::{Found, NewClaim, RecordWrite, Status};
use crate::store::{Answer, StoreError};

/// Sends writes as one group, and alone those that it left open. One of these that has applied in the
/// group meets its own owner.
async fn write_all(bench: &Bench<'_>, group: &[RecordWrite]) -> Vec<Result<Answer, StoreError>> {
    let mut answers = bench.store.write_all(group, soon()).await;
    for (write, answer) in group.iter().zip(&mut answers) {
        let Err(left) = &*answer else { continue };
        if !left.is_left_to_caller() {
            continue;
        }
        let may_have_applied = left.is_uncertain();
        let own = match write {
            RecordWrite::Release(release) => &release.tombstone,
            write => write.owner(),
        };
        *answer = match bench.store.write(write, soon()).await {
            Ok(Answer::Refused(Some(found)))
                if may_have_applied && found.version.owner.as_deref() == Some(own.as_str()) =>
            {
                Ok(Answer::Applied(Some(found)))
            }
            alone => alone,
        };
    }
    answers
}

/// Reads records as one group, and alone those that it left open.
async fn load_all(bench: &Bench<'_>, ids: &[RecordId]) -> Vec<Result<Option<Found>, StoreError>> {
    let mut answers = bench.store.load_all(ids, soon()).await;
    for (id, answer) in ids.iter().zip(&mut answers) {
        if matches!(answer, Err(StoreError::NotSent)) {
            *answer = bench.store.load(id, soon()).await;
        }
    }
    answers
}

/// Makes claims, of which every second one is written.
async fn mixed(bench: &Bench<'_>, name: &str) -> Result<Vec<(NewClaim, bool)>, String> {
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

/// Sends one write for each claim in a group: each must be refused with the record that it meets,
/// unless `applies` says otherwise.
async fn answered(
    bench: &Bench<'_>,
    claims: &[(NewClaim, bool)],
    write: impl Fn(&NewClaim) -> Result<RecordWrite, String>,
    applies: impl Fn(bool) -> bool,
) -> Result<Vec<RecordWrite>, String> {
    let group = claims.iter().map(|(claim, _)| write(claim));
    let group = group.collect::<Result<Vec<_>, _>>()?;
    let mut before = Vec::new();
    for (claim, _) in claims {
        before.push(bench.load(&claim.id).await?);
    }
    let answers = write_all(bench, &group).await;
    same("the number of answers", answers.len(), group.len())?;
    for (((_, written), before), answer) in claims.iter().zip(before).zip(answers) {
        match ok(answer)? {
            Answer::Applied(_) => same("a write in a group applies", true, applies(*written))?,
            refused @ Answer::Refused(_) => {
                same("a write in a group applies", false, applies(*written))?;
                same("what it met", refused, Answer::Refused(before))?;
            }
        }
    }
    Ok(group)
}

pub(super) async fn grouped_claims_answer_in_order(bench: &Bench<'_>) -> Check {
    let claims = mixed(bench, "create-all").await?;
    let another = |claim: &NewClaim| {
        let owner = owner()?;
        Ok(RecordWrite::Create(NewClaim {
            owner,
            ..claim.clone()
        }))
    };
    let group = answered(bench, &claims, another, |written| !written).await?;
    for ((claim, taken), write) in claims.iter().zip(&group) {
        let owner = if *taken { &claim.owner } else { write.owner() };
        let record = bench.record(&claim.id).await?;
        same("the owner", record.owner.as_ref(), Some(owner))?;
    }
    Ok(())
}

pub(super) async fn grouped_completions_answer_in_order(bench: &Bench<'_>) -> Check {
    let claims = mixed(bench, "complete-all").await?;
    let complete = |claim: &NewClaim| Ok(bench.completion(claim, "1").into());
    answered(bench, &claims, complete, |written| written).await?;
    for (claim, held) in &claims {
        let found = bench.load(&claim.id).await?;
        let status = found.and_then(|found| found.version.status);
        let expected = held.then_some(Status::Completed.as_str());
        same("the status", status.as_deref(), expected)?;
    }
    Ok(())
}

pub(super) async fn grouped_releases_answer_in_order(bench: &Bench<'_>) -> Check {
    let claims = mixed(bench, "release-all").await?;
    let release = |claim: &NewClaim| Ok(bench.release(claim)?.into());
    answered(bench, &claims, release, |written| written).await?;
    for (claim, held) in &claims {
        let found = bench.load(&claim.id).await?;
        let lease = found.and_then(|found| found.version.lease);
        same("the lease", lease, held.then_some(0))?;
    }
    Ok(())
}

/// Sends one request of each kind that may be grouped, in one group.
pub(super) async fn a_mixed_group_answers_in_order(bench: &Bench<'_>) -> Check {
    let (held, ended) = (
        bench.claimed("mixed-held").await?,
        bench.claimed("mixed-ended").await?,
    );
    let group = [
        bench.completion(&held, "1").into(),
        bench.claim("mixed-new")?.into(),
        bench.release(&ended)?.into(),
    ];
    let answers = write_all(bench, &group).await;
    for answer in answers {
        same(
            "a write in a mixed group applies",
            ok(answer)?.is_applied(),
            true,
        )?;
    }
    let statuses = [
        bench.record(&held.id).await?.status,
        bench.record(&ended.id).await?.status,
    ];
    same(
        "the statuses",
        statuses,
        [Status::Completed, Status::InProgress],
    )?;
    bench
        .refused(
            "a claim on what a group completed",
            bench.claim("mixed-held")?,
        )
        .await
}

pub(super) async fn grouped_reads_answer_in_order(bench: &Bench<'_>) -> Check {
    let claims = mixed(bench, "load-all").await?;
    let ids: Vec<_> = claims.iter().map(|(claim, _)| claim.id.clone()).collect();
    let answers = load_all(bench, &ids).await;
    same("the number of answers", answers.len(), ids.len())?;
    for ((claim, written), answer) in claims.iter().zip(answers) {
        let owner = ok(answer)?.and_then(|found| found.version.owner);
        let expected = written.then_some(claim.owner.as_str());
        same("the owner", owner.as_deref(), expected)?;
    }
    Ok(())
}

/// Sends more than DynamoDB takes in one batch statement (25) or one batch read (100).
pub(super) async fn a_large_group_is_taken(bench: &Bench<'_>) -> Check {
    let claims = (0..120).map(|n| bench.claim(&format!("large-{n}")));
    let claims = claims.collect::<Result<Vec<_>, _>>()?;
    let writes: Vec<_> = claims.iter().cloned().map(RecordWrite::Create).collect();
    for answer in write_all(bench, &writes).await {
        same(
            "a claim in a large group applies",
            ok(answer)?.is_applied(),
            true,
        )?;
    }
    let ids: Vec<_> = claims.iter().map(|claim| claim.id.clone()).collect();
    for (claim, answer) in claims.iter().zip(load_all(bench, &ids).await) {
        let owner = ok(answer)?.and_then(|found| found.version.owner);
        same("the owner", owner.as_deref(), Some(claim.owner.as_str()))?;
    }
    Ok(())
}

pub(super) async fn an_empty_group_is_answered(bench: &Bench<'_>) -> Check {
    same(
        "no writes",
        bench.store.write_all(&[], soon()).await.len(),
        0,
    )?;
    same("no reads", bench.store.load_all(&[], soon()).await.len(), 0)
}

pub(super) async fn a_group_after_its_deadline_is_not_sent(bench: &Bench<'_>) -> Check {
    let held = bench.claimed("late-group-held").await?;
    let before = bench.load(&held.id).await?;
    let new = [bench.claim("late-group-1")?, bench.claim("late-group-2")?];
    let [first, second] = new.clone();
    let writes: [RecordWrite; 3] = [
        first.into(),
        second.into(),
        bench.completion(&held, "1").into(),
    ];
    let ids = writes.each_ref().map(|write| write.id().clone());
    let passed = Instant::now();
    let written = bench.store.write_all(&writes, passed).await;
    same("the number of answers", written.len(), writes.len())?;
    for answer in &written {
        not_sent("a write of a group", answer)?;
    }
    let read = bench.store.load_all(&ids, passed).await;
    same("the number of answers", read.len(), ids.len())?;
    for answer in &read {
        not_sent("a read of a group", answer)?;
    }
    for claim in &new {
        same("the record", bench.load(&claim.id).await?, None)?;
    }
    same("the record", bench.load(&held.id).await?, before)
}
