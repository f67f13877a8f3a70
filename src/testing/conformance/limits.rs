//! Deadlines and consistency.

use tokio::time::Instant;

use super::{Bench, Check, ok, same, soon};
use crate::error::StoreError;
use crate::store::{Answer, Store};

fn timed_out<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Timeout))
}

pub(super) async fn a_passed_deadline_writes_nothing<S: Store>(bench: &Bench<'_, S>) -> Check {
    let passed = Instant::now();
    let store = bench.store;
    let claim = bench.claim("too-late")?;
    same(
        "a claim after its deadline times out",
        timed_out(&store.create(&claim, passed).await),
        true,
    )?;
    same("the record", bench.load(&claim.id).await?, None)?;

    let held = bench.claimed("held").await?;
    let before = bench.load(&held.id).await?;
    let completion = bench.completion(&held, "1");
    same(
        "a completion times out",
        timed_out(&store.complete(&completion, passed).await),
        true,
    )?;
    let release = bench.release(&held)?;
    same(
        "a release times out",
        timed_out(&store.release(&release, passed).await),
        true,
    )?;
    same(
        "a read times out",
        timed_out(&store.load(&held.id, passed).await),
        true,
    )?;
    same("the record", bench.load(&held.id).await?, before)
}

pub(super) async fn a_read_sees_the_write_before_it<S: Store>(bench: &Bench<'_, S>) -> Check {
    for round in 0..10 {
        let claim = bench.claimed(&format!("consistent-{round}")).await?;
        same(
            "the owner",
            bench.record(&claim.id).await?.owner,
            Some(claim.owner.clone()),
        )?;
        let completion = bench.completion(&claim, "1");
        same(
            "a completion",
            ok(bench.store.complete(&completion, soon()).await)?,
            Answer::Applied(()),
        )?;
        same(
            "the outcome",
            bench.record(&claim.id).await?.outcome,
            Some(completion.outcome),
        )?;
    }
    Ok(())
}
