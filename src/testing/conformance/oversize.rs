//! Checks `keep` and `fetch`: a large outcome beside its record. A store that keeps none answers
//! `TooLarge`.

use tokio::time::Instant;

use super::bench::{Bench, Check, ok, owner, same, soon};
use crate::protocol::packed::{LargeOutcome, Place};
use crate::store::StoreError;

fn large(bench: &Bench<'_>, name: &str, bytes: usize) -> Result<LargeOutcome, String> {
    let claim = bench.claim(name)?;
    Ok(LargeOutcome {
        id: claim.id,
        owner: claim.owner,
        content: (0..=u8::MAX).cycle().take(bytes).collect(),
        expiration: bench.in_a_day(),
    })
}

/// Keeps an outcome; `None` in a store that keeps none.
async fn kept(bench: &Bench<'_>, outcome: &LargeOutcome) -> Result<Option<Place>, String> {
    match bench.store.keep(outcome, soon()).await {
        Err(StoreError::TooLarge) => Ok(None),
        place => ok(place).map(Some),
    }
}

pub(super) async fn what_is_kept_comes_back_byte_for_byte(bench: &Bench<'_>) -> Check {
    for bytes in [1, 300_000] {
        let outcome = large(bench, &format!("oversize-{bytes}"), bytes)?;
        let Some(place) = kept(bench, &outcome).await? else {
            return Ok(());
        };
        same(
            "the same again",
            kept(bench, &outcome).await?,
            Some(place.clone()),
        )?;
        let fetched = ok(bench.store.fetch(&outcome.id, &place, soon()).await)?;
        if fetched.as_ref() != Some(&outcome.content) {
            return Err(format!("{bytes} bytes didn't come back as they were"));
        }
        same("the record", bench.load(&outcome.id).await?, None)?;
    }
    Ok(())
}

pub(super) async fn each_owner_has_an_outcome_of_its_own(bench: &Bench<'_>) -> Check {
    let one = large(bench, "two-owners", 10)?;
    let other = LargeOutcome {
        owner: owner()?,
        content: b"another".to_vec(),
        ..one.clone()
    };
    let (Some(_), Some(place)) = (kept(bench, &one).await?, kept(bench, &other).await?) else {
        return Ok(());
    };
    let fetched = ok(bench.store.fetch(&one.id, &place, soon()).await)?;
    same("the other's", fetched, Some(other.content))?;
    let nobody = Place::Entry(owner()?);
    let fetched = ok(bench.store.fetch(&one.id, &nobody, soon()).await)?;
    same("nobody's", fetched, None)
}

pub(super) async fn nothing_is_kept_after_the_deadline(bench: &Bench<'_>) -> Check {
    let outcome = large(bench, "late-large", 10)?;
    let refused = bench.store.keep(&outcome, Instant::now()).await;
    let refused = matches!(
        refused,
        Err(StoreError::NotSent | StoreError::Timeout | StoreError::TooLarge)
    );
    same("it times out", refused, true)?;
    let place = Place::Entry(outcome.owner.clone());
    let fetched = ok(bench.store.fetch(&outcome.id, &place, soon()).await)?;
    same("what is there", fetched, None)
}
