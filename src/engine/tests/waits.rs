//! A duplicate that waits for another attempt, and then claims the key.

use std::collections::VecDeque;

use super::*;
use crate::engine::settings::InFlight;
use crate::engine::{Begun, Disposition};
use crate::protocol::clock::EpochSeconds;
use crate::protocol::record::{RecordWrite, Status};

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

/// Commits a record as a transaction does: the claim, and its completion.
#[derive(Debug)]
struct Committing;

impl Script for Committing {
    async fn commit(&self, at: At<'_>, commit: Commit<'_>) -> Result<Committed, StoreError> {
        let At { table, deadline } = at;
        let record = commit.record.unwrap();
        let claim = record.claim.as_ref().unwrap();
        if let Answer::Refused(found) = table.write(claim, deadline).await? {
            return Ok(Committed::Fenced(found));
        }
        let completion = record.completion.clone();
        table.write(&completion.into(), deadline).await?;
        Ok(Committed::Applied)
    }
}

/// Runs without a claim beside a claim on the same key, which ends so after a second, or goes on. Returns how
/// often the handler ran, how long its run took, and the run's end.
async fn beside_a_claim(
    reads_first: bool,
    end: Option<Disposition>,
) -> (u32, Duration, Result<Outcome<i32>, Error<Infallible>>) {
    let once = bench(Committing, |builder| {
        builder.in_flight(InFlight::WaitUpTo(LEASE / 2))
    });
    let Ok(Begun::Run(claimed)) = once.begin(key(), payload()).await else {
        panic!("it is new")
    };
    claimed
        .engine
        .reads_first
        .store(reads_first, Ordering::Relaxed);
    let (began, runs) = (Instant::now(), AtomicU32::new(0));
    let claimless = once.claimless();
    let beside = async {
        let ended = claimless.run(key(), payload(), async |_| {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok(1)
        });
        (ended.await, began.elapsed())
    };
    let claimed = async {
        sleep(Duration::from_secs(1)).await;
        match end {
            Some(end) => drop(claimed.end(end).await.unwrap()),
            None => sleep(LEASE / 2).await,
        }
    };
    let ((ended, took), ()) = tokio::join!(beside, claimed);
    (runs.load(Ordering::Relaxed), took, ended)
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_claim_waits_for_a_claim_as_one_with_a_claim_does() {
    for reads_first in [false, true] {
        let done = Disposition::Complete(Ok("2".to_owned()));
        let (runs, _, ended) = beside_a_claim(reads_first, Some(done)).await;
        assert_matches!(ended, Ok(Outcome::Replayed(2, _)));
        assert_eq!(runs, u32::from(!reads_first));

        let released = Disposition::Release(None);
        let (runs, took, ended) = beside_a_claim(reads_first, Some(released)).await;
        assert_eq!(ended.unwrap(), Outcome::Executed(1));
        assert!(took >= Duration::from_secs(1), "{took:?}");
        assert_eq!(runs, 1);

        let (runs, took, ended) = beside_a_claim(reads_first, None).await;
        assert_matches!(ended, Err(Error::InFlight { .. }));
        assert!(took >= LEASE / 2 && took < LEASE, "{took:?}");
        assert_eq!(runs, u32::from(!reads_first));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_open_transaction_met_a_claim_is_in_flight_at_once() {
    let once = bench(Committing, |builder| {
        builder.in_flight(InFlight::WaitUpTo(LEASE / 2))
    });
    // As a store does that opens no transaction, whatever the handler makes of it.
    let handler = async |claim: crate::Claim| {
        claim.write(Write::new("a business write")).unwrap();
        let mut held = Record::new(Status::InProgress, EpochSeconds(i64::MAX / 1_000));
        held.lease = Some(claim.now() + LEASE);
        assert!(!claim.unwritten().unwrap().meet(Found::readable(held)));
        Ok::<_, Infallible>(1)
    };
    let began = Instant::now();
    let met = once.claimless().run(key(), payload(), handler).await;
    assert_matches!(met, Err(Error::InFlight { .. }));
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(record(&once).await.is_none());
}
