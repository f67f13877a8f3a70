//! A duplicate that waits for another attempt, and then claims the key.

use std::collections::VecDeque;

use super::*;
use crate::engine::settings::InFlight;
use crate::protocol::record::RecordWrite;

/// Names the record that a claim meets.
#[derive(Clone, Copy, Debug)]
enum Meets {
    /// Another attempt at work, until its lease is over.
    Running,
    /// Another attempt that was released.
    Released,
    Itself,
}

/// Each write of a claim meets the next of these.
#[derive(Debug)]
struct Race {
    meets: Mutex<VecDeque<Meets>>,
    claims: AtomicU32,
}

/// The lease of the attempts that are met: the wait ends with it at the latest.
const BUSY: Duration = Duration::from_secs(1);

impl Script for Race {
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        let (RecordWrite::Create(claim) | RecordWrite::TakeOver { claim, .. }) = write else {
            return at.table.write(write, at.deadline).await;
        };
        let number = self.claims.fetch_add(1, Ordering::Relaxed);
        let meets = self.meets.lock().unwrap().pop_front();
        let met = match meets {
            Some(Meets::Running) => {
                let mut other = others(claim, number + 1);
                other.lease = claim.started_at + BUSY;
                Found::readable(Record::claimed(&other))
            }
            Some(Meets::Released) => released_by_another(claim, number),
            Some(Meets::Itself) | None => {
                at.table.sweep(EpochMillis(i64::MAX));
                return at.table.write(&claim.clone().into(), at.deadline).await;
            }
        };
        let record = met.content.as_ref().unwrap().as_ref().clone();
        at.table.sweep(EpochMillis(i64::MAX));
        let left = NewClaim {
            lease: record.lease.unwrap(),
            ..others(claim, record.attempt)
        };
        at.table.write(&left.into(), at.deadline).await?;
        Ok(Answer::Refused(Some(met)))
    }
}

/// The number of claims that a duplicate sends, which waits for an attempt at work; and its end.
async fn claims(meets: &[Meets]) -> (u32, Result<Outcome<i32>, Error<Infallible>>) {
    let race = Race {
        meets: Mutex::new(meets.iter().copied().collect()),
        claims: AtomicU32::new(0),
    };
    let once = bench(race, |builder| builder.in_flight(InFlight::WaitUpTo(LEASE)));
    let ended = once.run(key(), payload(), async |_| Ok(1)).await;
    (once.store.script.claims.load(Ordering::Relaxed), ended)
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_has_waited_may_lose_as_many_races_as_one_that_comes_anew() {
    use Meets::{Itself, Released, Running};
    let (sent, ended) = claims(&[Released, Released, Running, Released, Released, Itself]).await;
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(sent, 6);

    let (sent, ended) = claims(&[Running, Released, Released, Released]).await;
    assert_matches!(ended, Err(Error::InFlight { .. }));
    assert_eq!(sent, 4);
}
