//! Claims that lose every race, and a takeover whose reply can't be read.

use super::*;
use crate::engine::{Begun, Disposition, Run};
use crate::protocol::record::{RecordWrite, Release, WITHOUT_REPLY};

#[tokio::test(start_paused = true)]
async fn a_claim_that_lost_three_races_is_in_flight() {
    let take_overs = Arc::new(AtomicU32::new(0));
    let sent = Arc::clone(&take_overs);
    // Others take over and release the record before each takeover arrives.
    let once = engine(Replies::default().on_write(move |write| {
        let RecordWrite::TakeOver { claim, .. } = write else {
            return None;
        };
        let number = sent.fetch_add(1, Ordering::Relaxed);
        assert!(number < 10, "the engine tries without end");
        Some(Ok(Answer::Refused(Some(released_by_another(
            claim, number,
        )))))
    }));
    fail(&once).await;
    let lost = once.run(key(), payload(), async |_| Ok::<_, Infallible>(1));
    let lost = lost.await;
    assert_matches!(lost, Err(Error::InFlight { lease, .. }) if lease.is_zero());
    let take_overs = take_overs.load(Ordering::Relaxed);
    assert_eq!(take_overs, 2, "after a create that met the record");
}

/// Takeovers apply, and their replies show a record that can't be understood.
#[derive(Debug)]
struct Garbled;

impl Script for Garbled {
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        let answer = at.table.write(write, at.deadline).await?;
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
    assert_matches!(
        &unreadable,
        Err(Error::Unreadable(reason)) if reason == "`step:charge` is no map"
    );
    assert_eq!(ran.into_inner(), 0);
    let record = record(&once).await.unwrap();
    assert_eq!(record.attempt, 2, "the takeover applied");
    assert!(record.is_released());
}

async fn begin(once: &Idempotency) -> Run {
    match once.begin(key(), payload()).await {
        Ok(Begun::Run(run)) => run,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_began_counts_however_it_ended_after_one_that_did_not_start() {
    for is_by_hand in [false, true] {
        let once = engine(Replies::default());
        let not_started = Disposition::Release(Some("not started".into()));
        begin(&once).await.end(not_started).await.unwrap();
        let run = begin(&once).await;
        assert_eq!(run.claim().attempt(), 1, "the first one didn't count");
        assert_eq!(record(&once).await.unwrap().last_error, None);
        if is_by_hand {
            let held = record(&once).await.unwrap();
            let id = once.record_id(&key()).unwrap();
            let tombstone = Owner::from_stored("released-by-hand");
            let release = Release {
                id,
                owner: held.owner.unwrap(),
                tombstone,
                last_error: None,
                forget_fingerprint: false,
            };
            let table = &once.store.table;
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
    /// The first reply to each release is lost, too, and the SDK sends it again.
    resends: bool,
}

impl Script for WithoutReply {
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        if self.resends && matches!(write, RecordWrite::Release(_)) {
            at.table.write(write, at.deadline).await?;
        }
        let answer = at.table.write(write, at.deadline).await;
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

async fn run_with(once: &Idempotency, payload: &[u8]) -> Result<Outcome<u32>, Error<Infallible>> {
    let payload = Fingerprint::bytes(payload);
    once.run(key(), payload, async |_| Ok(1)).await
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_reply_keeps_the_payload_that_ran_unprotected() {
    for resends in [false, true] {
        let script = WithoutReply {
            resends,
            ..WithoutReply::default()
        };
        let once = Idempotency::builder(Scripted::new(script))
            .namespace("tests")
            .clock(TokioClock::start())
            .on_store_unavailable(crate::OnStoreUnavailable::FailOpen)
            .build()
            .unwrap();
        let first = run_with(&once, b"payload").await.unwrap();
        assert_eq!(first, Outcome::Unprotected(1));
        let released = record(&once).await.unwrap();
        assert!(released.is_released());
        assert_eq!(released.last_error.as_deref(), Some(WITHOUT_REPLY));
        let other = run_with(&once, b"other").await;
        assert_matches!(other, Err(Error::Mismatch));
        run_with(&once, b"payload").await.unwrap();
    }
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
    assert_matches!(other, Err(Error::Mismatch));
    assert!(record(&once).await.unwrap().is_released());
    run_with(&once, b"payload").await.unwrap();
}

/// The next claim gets no answer, and arrives in the table when the engine has given up, or never.
#[derive(Debug, Default)]
struct Late {
    is_next: AtomicBool,
    is_takeover: bool,
    arrives: bool,
    releases: AtomicU32,
    /// No release is answered any more.
    is_silent: AtomicBool,
}

const LATE: Duration = Duration::from_millis(600);

impl Script for Late {
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        if matches!(write, RecordWrite::Release(_)) {
            self.releases.fetch_add(1, Ordering::Relaxed);
            if self.is_silent.load(Ordering::Relaxed) {
                return Err(StoreError::Timeout);
            }
        }
        let is_claim = match write {
            RecordWrite::Create(_) => !self.is_takeover,
            RecordWrite::TakeOver { .. } => self.is_takeover,
            _ => false,
        };
        if !is_claim || !self.is_next.swap(false, Ordering::Relaxed) {
            return at.table.write(write, at.deadline).await;
        }
        let (table, write) = (at.table.clone(), write.clone());
        if self.arrives {
            tokio::spawn(async move {
                sleep(LATE).await;
                table.write(&write, soon()).await
            });
        }
        sleep(LATE / 2).await;
        Err(StoreError::Timeout)
    }
}

async fn one(once: &Idempotency, token: &str) -> Result<Outcome<u32>, Error<Infallible>> {
    let key = Key::new("charge", token);
    once.run(key, payload(), async |_| Ok(1)).await
}

/// Makes a claim that is late: of a new key, or of one that an attempt has released.
async fn late(arrives: bool, is_takeover: bool) -> Bench<Late> {
    let once = engine(Late {
        is_takeover,
        arrives,
        ..Late::default()
    });
    if is_takeover {
        fail(&once).await;
    }
    let script = &once.store.script;
    script.is_next.store(true, Ordering::Relaxed);
    let lost = one(&once, "order-1").await;
    assert_matches!(lost, Err(Error::Store(_)));
    script.releases.store(0, Ordering::Relaxed);
    once
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_after_its_release_is_released_by_a_later_call() {
    for is_takeover in [false, true] {
        for next in ["another", "order-1"] {
            let once = late(true, is_takeover).await;
            sleep(2 * LATE).await;
            let arrived = record(&once).await.unwrap();
            assert!(!arrived.is_released(), "{is_takeover} {next} {arrived:?}");
            one(&once, next).await.unwrap();
            if next == "another" {
                let released = record(&once).await.unwrap();
                assert_eq!(released.last_error.as_deref(), Some(WITHOUT_REPLY));
                assert_eq!(released.fingerprint, Some(payload()));
            }
            assert_eq!(one(&once, "order-1").await.unwrap().into_inner(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_dropped_and_arrives_after_its_release_is_released_by_a_later_call() {
    for is_takeover in [false, true] {
        let once = engine(Late {
            is_takeover,
            arrives: true,
            ..Late::default()
        });
        if is_takeover {
            fail(&once).await;
        }
        once.store.script.is_next.store(true, Ordering::Relaxed);
        let dropped = tokio::time::timeout(LATE / 4, one(&once, "order-1"));
        dropped.await.unwrap_err();
        // The release comes before the claim.
        one(&once, "another-1").await.unwrap();
        sleep(2 * LATE).await;
        let arrived = record(&once).await.unwrap();
        assert!(!arrived.is_released(), "{is_takeover} {arrived:?}");
        one(&once, "another-2").await.unwrap();
        assert!(record(&once).await.unwrap().is_released(), "{is_takeover}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_claim_that_may_arrive_is_not_sent_by_each_call_though_none_is_answered() {
    let once = late(false, false).await;
    let script = &once.store.script;
    let mut sent = Vec::new();
    for second in 0..30 {
        one(&once, &format!("another-{second}")).await.unwrap();
        if script.releases.swap(0, Ordering::Relaxed) > 0 {
            sent.push(second);
            script.is_silent.store(true, Ordering::Relaxed);
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(sent, [1, 5, 9, 13, 17, 21, 25, 29]);
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_claim_that_may_arrive_is_sent_three_times_more_and_not_by_each_call() {
    let once = late(false, false).await;
    let mut sent = Vec::new();
    for second in 0..60 {
        one(&once, &format!("another-{second}")).await.unwrap();
        let script = &once.store.script;
        if script.releases.swap(0, Ordering::Relaxed) > 0 {
            sent.push(second);
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(sent, [1, 5, 21]);
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_claim_that_may_arrive_ends_with_the_next_attempt_and_leaves_it_alone() {
    let once = late(false, false).await;
    one(&once, "order-1").await.unwrap();
    for second in 0..30 {
        one(&once, &format!("another-{second}")).await.unwrap();
        sleep(Duration::from_secs(1)).await;
    }
    let releases = once.store.script.releases.load(Ordering::Relaxed);
    assert_eq!(releases, 2, "before the next attempt, and once after it");
    assert!(!record(&once).await.unwrap().is_released());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_dropped_while_no_send_is_under_way_needs_no_release() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let once = engine(Replies::default().on_write(move |write| match write {
        RecordWrite::Release(_) => panic!("a release is sent"),
        RecordWrite::Create(_) if !over.load(Ordering::Relaxed) => {
            Some(Err(StoreError::Throttled("too many requests".into())))
        }
        _ => None,
    }));
    let run = |token| {
        once.run(Key::new("charge", token), payload(), async |_| {
            Ok::<_, Infallible>(1)
        })
    };
    let dropped = tokio::time::timeout(Duration::from_millis(10), run("order-1"));
    dropped.await.unwrap_err();
    is_over.store(true, Ordering::Relaxed);
    run("order-2").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_denied_after_one_that_no_record_refused_is_released() {
    let sent = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let counts = Arc::clone(&sent);
    let once = engine(Replies::default().on_write(move |write| match write {
        RecordWrite::Create(_) if counts.0.fetch_add(1, Ordering::Relaxed) == 0 => {
            Some(Ok(Answer::Refused(None)))
        }
        RecordWrite::Create(_) => Some(Err(StoreError::Denied("no permission".into()))),
        RecordWrite::Release(_) => {
            counts.1.fetch_add(1, Ordering::Relaxed);
            None
        }
        _ => None,
    }));
    let denied = one(&once, "order-1").await;
    assert_matches!(denied, Err(Error::Store(StoreError::Denied(_))));
    let (creates, releases) = &*sent;
    assert_eq!(creates.load(Ordering::Relaxed), 2);
    assert_eq!(releases.load(Ordering::Relaxed), 1);
}

/// The first completion has no end, and each later one is denied.
#[derive(Debug, Default)]
struct DeniedLater(AtomicU32);

impl Script for DeniedLater {
    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        if !matches!(write, RecordWrite::Complete(_)) {
            return at.table.write(write, at.deadline).await;
        }
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            std::future::pending::<()>().await;
        }
        Err(StoreError::Denied("no permission".into()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_is_denied_when_a_later_call_sends_it_ends_the_claims_too() {
    let once = engine(DeniedLater::default());
    let dropped = tokio::time::timeout(Duration::from_millis(1), one(&once, "order-1"));
    dropped.await.unwrap_err();
    let refused = one(&once, "order-2").await;
    assert_matches!(refused, Err(Error::Store(StoreError::Denied(_))));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_no_record_refuses_in_the_last_round_is_released_by_the_next_call() {
    let sent = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let counts = Arc::clone(&sent);
    let once = engine(Replies::default().on_write(move |write| {
        let is_refused = match write {
            RecordWrite::Create(_) => counts.0.fetch_add(1, Ordering::Relaxed) < 3,
            RecordWrite::Release(_) => {
                counts.1.fetch_add(1, Ordering::Relaxed);
                true
            }
            _ => false,
        };
        is_refused.then_some(Ok(Answer::Refused(None)))
    }));
    let lost = one(&once, "order-1").await;
    assert_matches!(lost, Err(Error::InFlight { .. }));
    one(&once, "another").await.unwrap();
    let (creates, releases) = &*sent;
    assert_eq!(creates.load(Ordering::Relaxed), 4);
    assert_eq!(releases.load(Ordering::Relaxed), 1);
}
