//! `create` and `load`.

use futures_util::future::join_all;

use super::{Bench, Check, ok, same, soon};
use crate::record::Record;
use crate::store::{Answer, Store};

pub(super) async fn a_claim_on_a_fresh_key_applies_and_is_read_back_whole<S: Store>(
    bench: &Bench<'_, S>,
) -> Check {
    let claim = bench.claimed("fresh").await?;
    same(
        "the record",
        bench.record(&claim.id).await?,
        Record::claimed(&claim),
    )
}

pub(super) async fn a_claim_on_a_taken_key_is_refused_with_what_it_met<S: Store>(
    bench: &Bench<'_, S>,
) -> Check {
    let first = bench.claimed("taken").await?;
    let second = bench.claim("taken")?;
    bench
        .refused(
            "a second claim",
            &first.id,
            bench.store.create(&second, soon()),
        )
        .await?;
    let completion = bench.completion(&first, "1");
    ok(bench.store.complete(&completion, soon()).await)?;
    bench
        .refused(
            "a claim on a completed record",
            &first.id,
            bench.store.create(&second, soon()),
        )
        .await
}

pub(super) async fn a_repeated_claim_meets_itself<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claim = bench.claimed("repeated").await?;
    bench
        .refused(
            "the same claim again",
            &claim.id,
            bench.store.create(&claim, soon()),
        )
        .await
}

pub(super) async fn of_many_claims_at_once_one_applies<S: Store>(bench: &Bench<'_, S>) -> Check {
    let claims = (0..8)
        .map(|_| bench.claim("race"))
        .collect::<Result<Vec<_>, _>>()?;
    let answers = join_all(claims.iter().map(|claim| bench.store.create(claim, soon()))).await;
    let mut winners = Vec::new();
    for (claim, answer) in claims.iter().zip(answers) {
        if ok(answer)? == Answer::Applied(()) {
            winners.push(claim.owner.clone());
        }
    }
    let held_by = bench.record(&bench.id("race")?).await?.owner;
    same("the winners", winners, held_by.into_iter().collect())
}

pub(super) async fn an_absent_key_is_read_as_absent<S: Store>(bench: &Bench<'_, S>) -> Check {
    same(
        "a record that was never written",
        bench.load(&bench.id("absent")?).await?,
        None,
    )
}

pub(super) async fn a_claim_without_a_fingerprint_has_none<S: Store>(
    bench: &Bench<'_, S>,
) -> Check {
    let mut claim = bench.claim("unchecked")?;
    claim.fingerprint = None;
    ok(bench.store.create(&claim, soon()).await)?;
    same(
        "the fingerprint",
        bench.record(&claim.id).await?.fingerprint,
        None,
    )
}
