//! Checks deadlines and consistency.

use tokio::time::Instant;

use super::bench::{Bench, Check, same};
use crate::store::StoreError;

fn times_out<T>(what: &str, result: &Result<T, StoreError>) -> Check {
    let times_out = matches!(result, Err(StoreError::NotSent | StoreError::Timeout));
    same(what, times_out, true)
}

pub(super) async fn a_passed_deadline_writes_nothing(bench: &Bench<'_>) -> Check {
    let passed = Instant::now();
    let store = bench.store;
    let claim = bench.claim("too-late")?;
    let claimed = store.write(&claim.clone().into(), passed).await;
    times_out("a claim after its deadline times out", &claimed)?;
    same("the record", bench.load(&claim.id).await?, None)?;

    let held = bench.claimed("held").await?;
    let before = bench.load(&held.id).await?;
    let completion = bench.completion(&held, "1").into();
    let completed = store.write(&completion, passed).await;
    times_out("a completion times out", &completed)?;
    let released = store.write(&bench.release(&held)?.into(), passed).await;
    times_out("a release times out", &released)?;
    times_out("a read times out", &store.load(&held.id, passed).await)?;
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
