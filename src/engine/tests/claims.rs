//! Claims that lose every race, and a takeover whose reply can't be read.

use super::*;
use crate::record::{Takeover, Version};

/// Others take over and release the record before each takeover arrives.
#[derive(Debug, Default)]
struct Contended {
    take_overs: AtomicU32,
}

impl Script for Contended {
    async fn take_over(
        &self,
        _: &MemoryStore,
        _: &Version,
        claim: &NewClaim,
        _: Takeover,
        _: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let number = self.take_overs.fetch_add(1, Ordering::Relaxed);
        assert!(number < 10, "the engine tries without end");
        Ok(Answer::Refused(Some(released_by_another(claim, number))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_lost_three_races_is_in_flight() {
    let once = engine(Contended::default());
    fail(&once).await;
    let lost = once.run(key(), payload(), async |_| Ok::<_, Infallible>(1));
    let lost = lost.await;
    assert!(
        matches!(lost, Err(Error::InFlight { retry_after }) if retry_after.is_zero()),
        "{lost:?}"
    );
    let take_overs = once.store().script.take_overs.load(Ordering::Relaxed);
    assert_eq!(take_overs, 2, "after a create that met the record");
}

/// Takeovers apply, and their replies show a record that can't be understood.
#[derive(Debug)]
struct Garbled;

impl Script for Garbled {
    async fn take_over(
        &self,
        table: &MemoryStore,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let answer = table.take_over(seen, claim, mode, deadline).await?;
        Ok(answer.map(|found| Found::unreadable(found.version, "`step:charge` is no map")))
    }
}

#[tokio::test(start_paused = true)]
async fn a_takeover_whose_reply_cannot_be_read_is_released_and_does_not_run() {
    let once = engine(Garbled);
    fail(&once).await;
    let ran = AtomicU32::new(0);
    let run = once.run(key(), payload(), async |_| {
        Ok::<_, Infallible>(ran.fetch_add(1, Ordering::Relaxed))
    });
    let unreadable = run.await;
    assert!(
        matches!(&unreadable, Err(Error::Unreadable(reason)) if reason == "`step:charge` is no map"),
        "{unreadable:?}"
    );
    assert_eq!(ran.into_inner(), 0);
    let record = record(&once).await.unwrap();
    assert_eq!(record.attempt, 2, "the takeover applied");
    assert!(record.is_released());
}
