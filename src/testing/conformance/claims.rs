//! Checks claims on fresh keys, and reads.

use futures_util::future::join_all;

use super::bench::{Bench, Check, same};
use crate::protocol::record::Record;

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
