//! Leases that are renewed while the handler runs. The engine's clock and the runtime's go together here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32};

use lambda_idempotency::{AtDeadline, Begun, Claim, Disposition, EpochMillis, OnStoreUnavailable};

use super::*;
use crate::secrets::Log;

mod disturbed;
mod outlived;

/// The lease, and how long an attempt may take.
const RENEWED: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_mins(10);

/// A third of the lease, as renewals come.
const TICK: Duration = Duration::from_secs(10);

/// An engine whose clock follows the runtime's, which is paused.
struct Bench {
    store: FaultyStore,
    once: Idempotency,
    clock: Paused,
}

#[derive(Clone, Debug)]
struct Paused {
    start: Instant,
    epoch: EpochMillis,
    /// By how many milliseconds it was put forward, or back.
    step: Arc<AtomicI64>,
}

impl Clock for Paused {
    fn now(&self) -> EpochMillis {
        let now = self.epoch + self.start.elapsed();
        EpochMillis(now.0 + self.step.load(Ordering::SeqCst))
    }
}

impl Bench {
    fn new() -> Self {
        Self::with(|once| once)
    }

    fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let store = FaultyStore::new(MemoryStore::new());
        let clock = Paused {
            start: Instant::now(),
            epoch: ManualClock::default().now(),
            step: Arc::default(),
        };
        let once = Idempotency::builder(store.clone())
            .namespace("engine")
            .renewed_lease(RENEWED)
            .settings(|settings| {
                settings.max_duration = LONGEST;
                settings.skew_margin = MARGIN;
            })
            .clock(clock.clone());
        let once = settings(once).build().unwrap();
        Self { store, once, clock }
    }

    async fn record(&self) -> Record {
        let id = self.once.record_id(&key()).unwrap();
        let found = self.store.load(&id, Instant::now() + LEASE).await.unwrap();
        *found.unwrap().content.unwrap()
    }

    /// Returns the time that the stored lease has left, without the margin.
    async fn left(&self) -> Duration {
        let lease = self.record().await.lease.unwrap();
        lease.saturating_since(self.clock.now() + MARGIN)
    }

    async fn run<T, Fut>(
        &self,
        handler: impl FnOnce(Claim) -> Fut,
    ) -> Result<T, Error<HandlerError>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
        Fut: Future<Output = T>,
    {
        let run = self.once.run(key(), payload(), |claim| {
            let work = handler(claim);
            async { Ok(work.await) }
        });
        run.await.map(Outcome::into_inner)
    }

    /// An engine on the same table, without a renewed lease.
    fn another(&self) -> Builder {
        Idempotency::builder(self.store.clone())
            .namespace("engine")
            .settings(|settings| settings.skew_margin = MARGIN)
            .clock(self.clock.clone())
    }

    /// An attempt of another process.
    async fn elsewhere(&self) -> Result<i32, Error<HandlerError>> {
        let once = self.another().build().unwrap();
        let run = once.run(key(), payload(), |_| async { Ok(2) });
        run.await.map(Outcome::into_inner)
    }
}

fn in_flight_for(result: Result<i32, Error<HandlerError>>) -> Duration {
    match result {
        Err(Error::InFlight { lease, .. }) => lease,
        other => panic!("in flight, not {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_short_and_holds_for_as_long_as_the_handler_runs() {
    let bench = &Bench::new();
    let value = bench.run(|claim| async move {
        assert_eq!(claim.remaining(), Some(LONGEST));
        for _ in 0..20 {
            assert!(bench.left().await + TICK + MARGIN > RENEWED);
            assert!(in_flight_for(bench.elsewhere().await) <= RENEWED + MARGIN);
            assert!(!claim.is_over());
            tokio::time::sleep(TICK).await;
        }
        1
    });
    assert_eq!(value.await.unwrap(), 1);
    assert_eq!(bench.elsewhere().await.unwrap(), 1, "a replay");
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_lease_was_renewed_does_not_fail_open() {
    let bench = &Bench::with(|once| once.on_store_unavailable(OnStoreUnavailable::FailOpen));
    let run = bench.run(|_| async {
        tokio::time::sleep(3 * RENEWED).await;
        for call in [Call::Create, Call::Release] {
            bench.store.inject(call, Fault::RequestLost);
        }
        let handler = |_| async { Ok::<_, Infallible>(2) };
        let beside = bench.once.run(key(), payload(), handler).await;
        assert_matches!(beside, Err(Error::Store(_)));
        1
    });
    assert_eq!(run.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_blocks_its_key_for_the_short_lease_alone() {
    let bench = &Bench::new();
    let begun = crate::support::Begun::default();
    let attempt = bench.run(|_| async {
        tokio::time::sleep(LONGEST / 2).await;
        begun.then_never::<i32>().await
    });
    begun.cut_off(attempt).await;
    let wait = in_flight_for(bench.elsewhere().await);
    assert!(wait <= RENEWED + MARGIN, "{wait:?}");
    tokio::time::sleep(wait).await;
    assert_eq!(bench.elsewhere().await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_ended_after_the_longest_duration() {
    let bench = &Bench::new();
    let seen = &OnceLock::new();
    let began = bench.clock.now();
    let run = bench.run(|claim| {
        seen.set(claim).unwrap();
        std::future::pending::<i32>()
    });
    assert_matches!(run.await, Err(Error::TimedOut));
    let claim = seen.get().unwrap();
    assert_eq!(claim.now().saturating_since(began), LONGEST);
    assert!(claim.is_over());
    assert_eq!(claim.deadline(), claim.lease_end());
    assert_eq!(bench.elsewhere().await.unwrap(), 2, "at once");
}

#[tokio::test(start_paused = true)]
async fn the_expiration_follows_the_lease_where_the_retention_is_shorter() {
    let bench = &Bench::with(|once| once.retention(Duration::from_secs(1)));
    let run = bench.run(|_| async {
        tokio::time::sleep(LONGEST / 2).await;
        let record = bench.record().await;
        assert!(record.expiration.to_millis() >= record.lease.unwrap() + MARGIN);
        1
    });
    assert_eq!(run.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_tried_again_before_the_lease_is_over() {
    let bench = &Bench::new();
    // No answer for the whole of its turn; then one whose reply is lost.
    bench.store.inject(Call::Renew, Fault::Delayed(LONGEST));
    bench.store.inject(Call::Renew, Fault::ReplyLost);
    let run = bench.run(|claim| async move {
        tokio::time::sleep(2 * RENEWED).await;
        assert!(!claim.is_over());
        1
    });
    assert_eq!(run.await.unwrap(), 1);
    assert!(bench.record().await.completed_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_key_another_took_over_is_ended_at_once_and_has_no_further_effect() {
    for (time, is_put_right) in [(None, false), (Some(Duration::from_mins(90)), true)] {
        let (log, _capture) = Log::capture();
        let mut bench = Bench::new();
        if let Some(time) = time {
            let going_on = bench
                .another()
                .settings(|settings| settings.at_deadline = AtDeadline::GoOn);
            let deadline = bench.clock.now() + time;
            bench.once = going_on.build().unwrap().deadline(deadline.into());
        }
        let (bench, effects) = (&bench, &AtomicU32::new(0));
        let run = bench.run(|claim| async move {
            // The wait for the first renewal begins.
            tokio::task::yield_now().await;
            // A thread that is blocked, while another process goes on.
            let blocked = (time.unwrap_or(RENEWED) + MARGIN).as_millis();
            let blocked = i64::try_from(blocked).unwrap();
            bench.clock.step.store(blocked, Ordering::SeqCst);
            let elsewhere = bench.elsewhere().now_or_never();
            assert_eq!(elsewhere.unwrap().unwrap(), 2);
            if is_put_right {
                bench.clock.step.store(0, Ordering::SeqCst);
            }
            let step = claim.step("charge", |_| async { Ok::<_, HandlerError>(1) });
            step.now_or_never().unwrap().unwrap_err();
            tokio::task::yield_now().await;
            effects.fetch_add(1, Ordering::SeqCst)
        });
        assert_matches!(run.await, Err(Error::LeaseLost));
        assert!(bench.clock.start.elapsed() <= Duration::from_secs(1));
        assert_eq!(effects.load(Ordering::SeqCst), 0);
        assert_eq!(bench.elsewhere().await.unwrap(), 2, "a replay");
        assert!(log.text().contains("lease_lost"));
        // With the clock put right, the step's note is refused, and no renewal is sent.
        assert_eq!(log.text().contains("renewal_refused"), !is_put_right);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_is_renewed_before_its_handler_goes_on() {
    let (log, _capture) = Log::capture();
    let bench = &Bench::new();
    let run = bench.run(|claim| async move {
        // A thread that is blocked. Nobody takes over.
        tokio::time::advance(RENEWED + MARGIN).await;
        assert!(!claim.is_over());
        in_flight_for(bench.elsewhere().await);
        1
    });
    assert_eq!(run.await.unwrap(), 1);
    assert!(log.text().contains("renewal_late"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_begins_half_a_second_late_is_warned_of() {
    for (late, is_warned) in [(499, false), (500, true)] {
        let (log, _capture) = Log::capture();
        let bench = &Bench::new();
        let run = bench.run(|_| async {
            tokio::time::sleep(TICK / 2).await;
            tokio::time::advance(TICK / 2 + Duration::from_millis(late)).await;
            1
        });
        assert_eq!(run.await.unwrap(), 1);
        assert_eq!(log.text().contains("renewal_late"), is_warned, "{late}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_released_in_the_time_of_its_renewed_lease() {
    let bench = &Bench::new();
    let run = bench.run(|claim| async move {
        tokio::time::sleep(2 * RENEWED).await;
        let slow = Fault::Delayed(Duration::from_secs(2));
        bench.store.inject(Call::Release, slow);
        assert_eq!(claim.attempt(), 2, "on purpose: it is the first");
    });
    let panicked = AssertUnwindSafe(run).catch_unwind().await;
    assert!(panicked.is_err());
    assert!(bench.record().await.is_released());
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_lease_cannot_be_renewed_is_ended_before_another_may_begin() {
    let (log, _capture) = Log::capture();
    let bench = &Bench::new();
    for _ in 0..100 {
        bench.store.inject(Call::Renew, Fault::Delayed(LONGEST));
    }
    let began = bench.clock.now();
    let run = bench.run(|_| std::future::pending::<i32>());
    assert_matches!(run.await, Err(Error::TimedOut));
    let took = bench.clock.now().saturating_since(began);
    assert!(took >= RENEWED && took < RENEWED + MARGIN, "{took:?}");
    assert_eq!(bench.elsewhere().await.unwrap(), 2);
    // Nothing kept them from their turns.
    assert!(!log.text().contains("renewal_late"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_lost_fence_ends_the_handler_before_the_lease_is_over() {
    let bench = &Bench::new();
    let began = bench.clock.now();
    let run = bench.run(|claim| async move {
        // By hand, as an operator does who is sure that nothing runs.
        let record = bench.record().await;
        let id = bench.once.record_id(&key()).unwrap();
        let owner = record.owner.unwrap();
        let tombstone = lambda_idempotency::protocol::record::Owner::random().unwrap();
        let release = lambda_idempotency::protocol::record::Release {
            id,
            owner,
            tombstone,
            last_error: None,
            forget_fingerprint: false,
        };
        let deadline = Instant::now() + LEASE;
        bench.store.write(&release.into(), deadline).await.unwrap();
        assert!(!claim.is_over());
        std::future::pending::<()>().await;
    });
    assert_matches!(run.await, Err(Error::LeaseLost));
    assert_eq!(bench.clock.now().saturating_since(began), TICK);
}

#[tokio::test(start_paused = true)]
async fn a_completion_is_sent_for_as_long_as_the_renewed_lease_lasts() {
    let bench = &Bench::new();
    let run = bench.run(|_| async {
        tokio::time::sleep(LONGEST / 2).await;
        for _ in 0..8 {
            bench.store.inject(Call::Complete, Fault::RequestLost);
        }
        1
    });
    assert_eq!(run.await.unwrap(), 1);
    assert!(bench.record().await.completed_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_invocations_claim_lasts_until_its_deadline_and_is_not_renewed() {
    let bench = &Bench::new();
    let deadline = bench.clock.now() + LONGEST;
    let once = bench.once.deadline(deadline.into());
    let run = once.run(key(), payload(), |claim| async move {
        assert_eq!(claim.lease_end(), Some(deadline.into()));
        assert_eq!(claim.deadline(), Some(deadline.into()));
        tokio::time::sleep(RENEWED).await;
        assert_eq!(bench.record().await.lease, Some(deadline + MARGIN));
        Ok::<_, Infallible>(1)
    });
    assert_eq!(run.await.unwrap().into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_closure_is_renewed_by_its_caller() {
    let bench = &Bench::new();
    let Begun::Run(run) = bench.once.begin(key(), payload()).await.unwrap() else {
        panic!("it is new");
    };
    run.while_renewed(Box::pin(tokio::time::sleep(LONGEST / 2)))
        .await;
    assert!(bench.left().await + TICK + MARGIN > RENEWED);
    run.end(Disposition::Complete(Ok("1".to_owned())))
        .await
        .unwrap();
    assert_eq!(bench.elsewhere().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_hangs_ends_with_its_deadline_where_nothing_is_renewed() {
    let clock = ManualClock::default();
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("engine")
        .settings(|settings| settings.at_deadline = AtDeadline::End)
        .clock(clock.clone());
    let once = once.build().unwrap();
    let end = std::time::SystemTime::now() + Duration::from_mins(1);
    let Begun::Run(run) = once.deadline(end).begin(key(), payload()).await.unwrap() else {
        panic!("it is new");
    };
    let hanging = run.while_renewed(Box::pin(std::future::pending::<()>()));
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        clock.advance(Duration::from_hours(1));
    };
    let both = futures_util::future::join(hanging, later);
    let ended = tokio::time::timeout(Duration::from_hours(2), both).await;
    assert_eq!(ended.unwrap().0, None);
}

#[tokio::test(start_paused = true)]
async fn the_expiration_follows_each_renewal_by_the_retention() {
    let retention = Duration::from_mins(5);
    let bench = &Bench::with(|once| {
        once.settings(|settings| settings.max_duration = Duration::MAX)
            .retention(retention)
    });
    let run = bench.run(|_| async {
        for _ in 0..2 {
            let record = bench.record().await;
            let expected = record.lease.unwrap() + retention;
            assert_eq!(record.expiration, expected.ceil_seconds());
            tokio::time::sleep(RENEWED * 3).await;
        }
        1
    });
    assert_eq!(run.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_begins_late_in_its_lease_is_renewed_in_time() {
    let bench = &Bench::new();
    let Begun::Run(run) = bench.once.begin(key(), payload()).await.unwrap() else {
        panic!("it is new");
    };
    tokio::time::sleep(TICK * 5 / 2).await;
    let work = run.while_renewed(Box::pin(tokio::time::sleep(2 * RENEWED)));
    let looking = async {
        tokio::time::sleep(RENEWED).await;
        in_flight_for(bench.elsewhere().await);
    };
    tokio::join!(work, looking);
    assert!(!run.claim().is_over());
}
