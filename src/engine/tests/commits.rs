//! Transactions without a confirmation: what the record says of them, and the time to ask it.

use super::*;
use crate::protocol::record::{RecordWrite, Takeover};

/// The record that the release meets.
#[derive(Clone, Copy, Debug)]
enum Left {
    Nothing,
    AnotherFirstAttempt,
    Successor,
}

/// No send of a transaction is answered, and its record is not left as it was.
#[derive(Debug)]
struct Unanswered {
    committed: bool,
    left: Left,
}

impl Script for Unanswered {
    async fn commit(&self, at: At<'_>, commit: Commit<'_>) -> Result<Committed, StoreError> {
        let At { table, deadline } = at;
        let completion = &commit.record.unwrap().completion;
        let found = table.load(&completion.id, deadline).await?;
        let held =
            found.filter(|found| found.version.owner.as_deref() == Some(completion.owner.as_str()));
        // A repeated send meets what the first one left.
        if let Some(held) = held {
            let record = held.content.unwrap();
            let claim = NewClaim {
                id: completion.id.clone(),
                owner: completion.owner.clone(),
                fingerprint: record.fingerprint.clone(),
                attempt: record.attempt,
                lease: record.lease.unwrap(),
                expiration: record.expiration,
                started_at: record.started_at.unwrap(),
            };
            if self.committed {
                table.write(&completion.clone().into(), deadline).await?;
            }
            match self.left {
                Left::Nothing => table.sweep(EpochMillis(i64::MAX)),
                Left::AnotherFirstAttempt => {
                    table.sweep(EpochMillis(i64::MAX));
                    table.write(&others(&claim, 1).into(), deadline).await?;
                }
                Left::Successor => {
                    let next = RecordWrite::TakeOver {
                        seen: held.version,
                        mode: Takeover::Resume,
                        claim: others(&claim, record.attempt + 1),
                    };
                    table.write(&next, deadline).await?;
                }
            }
        }
        Err(StoreError::Unavailable("no reply".into()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_tells_nothing_of_the_transaction_leaves_it_unknown() {
    for committed in [true, false] {
        for left in [Left::Nothing, Left::AnotherFirstAttempt] {
            let once = engine(Unanswered { committed, left });
            let unknown = write(&once).await;
            assert_matches!(
                unknown,
                Err(Error::OutcomeUnknown(_)),
                "{left:?}, committed: {committed}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_of_the_same_record_proves_that_nothing_was_committed() {
    let once = engine(Unanswered {
        committed: false,
        left: Left::Successor,
    });
    let lost = write(&once).await;
    assert_matches!(lost, Err(Error::LeaseLost));
}

/// No transaction is answered before its deadline, and a release takes its time.
#[derive(Debug)]
struct Silent {
    release_takes: Duration,
}

impl Script for Silent {
    async fn commit(&self, at: At<'_>, _: Commit<'_>) -> Result<Committed, StoreError> {
        tokio::time::sleep_until(at.deadline).await;
        Err(StoreError::Timeout)
    }

    async fn write(&self, at: At<'_>, write: &RecordWrite) -> Result<Answer, StoreError> {
        if matches!(write, RecordWrite::Release(_)) {
            tokio::time::timeout_at(at.deadline, sleep(self.release_takes))
                .await
                .map_err(|_| StoreError::Timeout)?;
        }
        at.table.write(write, at.deadline).await
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_second_of_the_time_is_kept_for_finding_out_whether_it_committed() {
    let once = engine(Silent {
        release_takes: Duration::from_millis(400),
    });
    let began = Instant::now();
    let ended = write(&once).await;
    assert_matches!(ended, Err(Error::NotCommitted(_)));
    assert!(record(&once).await.unwrap().is_released());
    let took = began.elapsed();
    assert!(took < LEASE, "the claim's time was over: {took:?}");
    assert!(
        took + Duration::from_secs(1) > LEASE,
        "the rest is for the transaction: {took:?}"
    );
}

/// The first send gets no answer, each later one is refused permanently.
fn denied_later() -> Replies {
    let was_sent = AtomicBool::new(false);
    Replies::default().on_commit(move || {
        Err(if was_sent.swap(true, Ordering::Relaxed) {
            StoreError::Rejected("no permission any more".into())
        } else {
            StoreError::Unavailable("no reply".into())
        })
    })
}

#[tokio::test(start_paused = true)]
async fn after_a_send_without_an_answer_a_denial_is_proven_by_a_released_record() {
    for is_bound in [false, true] {
        let once = engine(denied_later());
        if is_bound {
            let derives = async |claim: crate::Claim| {
                claim.derive_key("charge");
                Err::<i32, _>("down")
            };
            once.run(key(), payload(), derives).await.unwrap_err();
        }
        let ended = write(&once.claimless()).await;
        assert_matches!(ended, Err(Error::NotCommitted(_)));
        let record = record(&once).await.unwrap();
        assert!(record.is_released());
        assert_eq!(record.fingerprint.is_some(), is_bound);
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_without_an_answer_counts_though_its_outcome_was_too_large() {
    let sends = AtomicU32::new(0);
    let replies = Replies::default().on_commit(move || {
        Err(match sends.fetch_add(1, Ordering::Relaxed) {
            0 => StoreError::Unavailable("no reply".into()),
            1 => StoreError::TooLarge,
            _ => StoreError::Rejected("no permission any more".into()),
        })
    });
    let once = engine(replies.on_write(|write| {
        let denied = || Err(StoreError::Denied("no permission".into()));
        matches!(write, RecordWrite::Release(_)).then(denied)
    }));
    let ended = write(&once).await;
    assert_matches!(ended, Err(Error::OutcomeUnknown(_)));
}

/// Takes two sends with one token for two, and answers none.
#[derive(Debug, Default)]
struct WithoutTokens(AtomicU32);

impl Script for WithoutTokens {
    async fn commit(&self, _: At<'_>, _: Commit<'_>) -> Result<Committed, StoreError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(StoreError::Unavailable("no reply".into()))
    }

    fn honours_tokens(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn where_neither_a_record_nor_a_token_tells_two_sends_apart_one_is_sent() {
    for is_disabled in [true, false] {
        let once = bench(WithoutTokens::default(), |builder| {
            builder.disabled(is_disabled)
        });
        let ended = write(&once).await;
        let sends = once.store.script.0.load(Ordering::Relaxed);
        assert_eq!(sends == 1, is_disabled, "{sends} {ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_proves_a_denial_leaves_time_for_a_read() {
    let once = engine(denied_later().on_write(|_| Some(Err(StoreError::Timeout))));
    let began = Instant::now();
    let ended = write(&once.claimless()).await;
    assert_matches!(ended, Err(Error::OutcomeUnknown(_)));
    // Half of the store's ten seconds.
    let (took, half) = (began.elapsed(), Duration::from_secs(5));
    assert!(took > half.mul_f64(0.9) && took < 2 * half, "{took:?}");
}

/// An engine that is switched off: its transactions have no record.
fn disabled(script: Replies) -> Idempotency {
    let lease = Duration::from_hours(1);
    bench(script, |builder| builder.disabled(true).lease(lease)).once
}

#[tokio::test(start_paused = true)]
async fn without_a_record_a_denial_after_a_send_without_an_answer_proves_nothing() {
    let disabled = disabled(denied_later());
    let ended = write(&disabled).await;
    assert_matches!(ended, Err(Error::OutcomeUnknown(_)));
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_a_record_that_meets_one_was_not_committed_and_is_not_to_be_sent_again() {
    let disabled = disabled(Replies::default().on_commit(|| Ok(Committed::Fenced(None))));
    let ended = write(&disabled).await;
    assert_matches!(&ended, Err(Error::NotCommitted(StoreError::Rejected(_))));
}

#[tokio::test(start_paused = true)]
async fn where_each_send_was_answered_no_release_is_needed_to_know_that_nothing_was_written() {
    let denied = || StoreError::Denied("no permission".into());
    let all_denied = Replies::default()
        .on_write(move |write| matches!(write, RecordWrite::Release(_)).then(|| Err(denied())))
        .on_commit(move || Err(denied()));
    let ended = write(&engine(all_denied)).await;
    assert_matches!(ended, Err(Error::NotCommitted(_)));
}

/// DynamoDB remembers the token for 10 minutes: a later send would count as another transaction.
#[tokio::test(start_paused = true)]
async fn without_a_record_a_transaction_is_not_sent_for_longer_than_its_token_is_remembered() {
    let unanswered = Replies::default();
    let disabled =
        disabled(unanswered.on_commit(|| Err(StoreError::Unavailable("no reply".into()))));
    let began = Instant::now();
    let ended = write(&disabled).await;
    assert_matches!(ended, Err(Error::OutcomeUnknown(_)));
    let (took, longest) = (began.elapsed(), Duration::from_mins(5));
    assert!(took > longest.mul_f64(0.9) && took <= longest, "{took:?}");
}
