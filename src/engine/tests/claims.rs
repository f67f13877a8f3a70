//! Claims that lose every race, and a takeover whose reply can't be read.

use super::*;
use crate::engine::{Begun, Disposition, Run};
use crate::protocol::record::{RecordWrite, Release};

/// Others take over and release the record before each takeover arrives.
#[derive(Debug, Default)]
struct Contended {
    take_overs: AtomicU32,
}

impl Script for Contended {
    async fn write(
        &self,
        table: &MemoryStore,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let RecordWrite::TakeOver { claim, .. } = write else {
            return table.write(write, deadline).await;
        };
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
        matches!(lost, Err(Error::InFlight { lease, .. }) if lease.is_zero()),
        "{lost:?}"
    );
    let take_overs = once.store().script.take_overs.load(Ordering::Relaxed);
    assert_eq!(take_overs, 2, "after a create that met the record");
}

/// Takeovers apply, and their replies show a record that can't be understood.
#[derive(Debug)]
struct Garbled;

impl Script for Garbled {
    async fn write(
        &self,
        table: &MemoryStore,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let answer = table.write(write, deadline).await?;
        Ok(match (write, answer) {
            (RecordWrite::TakeOver { .. }, Answer::Applied(Some(found))) => {
                let reason = "`step:charge` is no map";
                Answer::Applied(Some(Found::unreadable(found.version, reason)))
            }
            (_, answer) => answer,
        })
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

/// A store that only keeps.
#[derive(Debug)]
struct Keeping;

impl Script for Keeping {}

async fn begin(once: &Idempotency<Scripted<Keeping>>) -> Run<Scripted<Keeping>> {
    match once.begin(key(), payload()).await {
        Ok(Begun::Run(run)) => run,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_began_counts_however_it_ended_after_one_that_did_not_start() {
    for is_by_hand in [false, true] {
        let once = engine(Keeping);
        let not_started = Disposition::Release(Some("not started".into()));
        begin(&once).await.end(not_started).await.unwrap();
        let run = begin(&once).await;
        assert_eq!(run.claim().attempt(), 1, "the first one didn't count");
        assert_eq!(record(&once).await.unwrap().last_error, None);
        if is_by_hand {
            let held = record(&once).await.unwrap();
            let id = once.record_id(&key()).unwrap();
            let tombstone = Owner::from_stored("released-by-hand");
            let release = Release::new(id, held.owner.unwrap(), tombstone);
            let table = &once.store().table;
            table.write(&release.into(), soon()).await.unwrap();
        } else {
            run.end(Disposition::Release(None)).await.unwrap();
        }
        let attempt = begin(&once).await.claim().attempt();
        assert_eq!(attempt, 2, "by hand: {is_by_hand}");
    }
}

/// The first claim applies, and its reply is lost.
#[derive(Debug, Default)]
struct WithoutReply {
    creates: AtomicU32,
    /// It is never answered, instead of with an error.
    hangs: bool,
}

impl Script for WithoutReply {
    async fn write(
        &self,
        table: &MemoryStore,
        write: &RecordWrite,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let answer = table.write(write, deadline).await;
        let is_claim = matches!(write, RecordWrite::Create(_));
        if !is_claim || self.creates.fetch_add(1, Ordering::Relaxed) > 0 {
            return answer;
        }
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Err(StoreError::Timeout)
    }
}

async fn run_with(
    once: &Idempotency<Scripted<WithoutReply>>,
    payload: &[u8],
) -> Result<Outcome<u32>, Error<Infallible>> {
    let payload = Fingerprint::bytes(payload);
    once.run(key(), payload, async |_| Ok(1)).await
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_reply_keeps_the_payload_that_ran_unprotected() {
    let once = Idempotency::builder(Scripted::new(WithoutReply::default()))
        .namespace("tests")
        .clock(TokioClock::start())
        .store_down(crate::StoreDown::FailOpen)
        .build()
        .unwrap();
    let first = run_with(&once, b"payload").await.unwrap();
    assert_eq!(first, Outcome::Unprotected(1));
    assert!(record(&once).await.unwrap().is_released());
    let other = run_with(&once, b"other").await;
    assert!(matches!(other, Err(Error::Mismatch)), "{other:?}");
    run_with(&once, b"payload").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_dropped_without_a_reply_keeps_its_payload() {
    let once = engine(WithoutReply {
        hangs: true,
        ..WithoutReply::default()
    });
    let dropped = tokio::time::timeout(Duration::from_millis(1), run_with(&once, b"payload"));
    dropped.await.unwrap_err();
    // The next call sends the release.
    let other = run_with(&once, b"other").await;
    assert!(matches!(other, Err(Error::Mismatch)), "{other:?}");
    assert!(record(&once).await.unwrap().is_released());
    run_with(&once, b"payload").await.unwrap();
}
