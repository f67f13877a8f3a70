//! The output of a run, under every error that an engine has.

use std::collections::BTreeSet;
use std::future::{Ready, ready};
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, Fault, FaultyStore, ManualClock};
use lambda_idempotency::{
    AtDeadline, Builder, Clock, Fingerprint, Idempotency, Key, Omission, OnCrash, Unrecorded,
    Verdict,
};
use proptest::prelude::*;

use super::canary::{Canary, Seen, any_canary};
use super::codes;
use crate::support::crash::kill;

/// Errors that only a transaction has, or that no test can bring about.
const ELSEWHERE: [&str; 6] = [
    "condition_failed",
    "invalid_payload",
    "no_entropy",
    "not_committed",
    "outcome_unknown",
    "retention_too_short",
];

const LEASE: Duration = Duration::from_mins(1);

/// A handler's own error, which quotes whatever it likes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Quoting(pub String);

struct Bench {
    store: FaultyStore,
    clock: ManualClock,
    secret: String,
}

impl Bench {
    fn new(canary: &Canary) -> Self {
        Self {
            store: FaultyStore::new(MemoryStore::new()),
            clock: ManualClock::default(),
            secret: canary.text(),
        }
    }

    fn builder(&self) -> Builder {
        let builder = Idempotency::builder(self.store.clone()).namespace("secrets");
        builder
            .clock(self.clock.clone())
            .lease(LEASE)
            .settings(|settings| settings.inline_limit = 200)
    }

    fn once(&self) -> Idempotency {
        self.builder().build().unwrap()
    }

    /// All of it secret, and another one for each name.
    fn key(&self, name: &str) -> Key {
        Key::new("charge", format!("{name}{}", self.secret)).scope(self.secret.as_str())
    }

    fn payload(&self) -> Fingerprint {
        Fingerprint::json(format!("{{\"card\":{:?}}}", self.secret).as_bytes())
    }

    fn fails(&self) -> Ready<Result<String, Quoting>> {
        ready(Err(Quoting(self.secret.clone())))
    }

    fn works(&self) -> Ready<Result<String, Quoting>> {
        ready(Ok(self.secret.clone()))
    }

    /// An attempt that dies: its lease runs out.
    async fn crash(&self, once: &Idempotency, key: Key) {
        let hanging = |_| std::future::pending::<Result<String, Quoting>>();
        kill(once.run(key, self.payload(), hanging)).await;
        self.clock.advance(LEASE * 2);
    }
}

async fn scenario(canary: &Canary) -> Seen {
    let mut seen = Seen::of(canary);
    let bench = Bench::new(canary);
    refused(&bench, &mut seen).await;
    crashed(&bench, &mut seen).await;
    stored(&bench, &mut seen).await;
    faults(&bench, &mut seen).await;
    seen.debug(&bench.store);
    seen
}

/// Duplicates, and keys that can't be used.
async fn refused(bench: &Bench, seen: &mut Seen) {
    let once = bench.once();
    for key in [bench.key("a"), Key::raw("charge", &bench.secret)] {
        seen.debug(&key);
        seen.debug(&once.record_id(&key).unwrap());
        seen.text(once.record_id(&key).unwrap());
        seen.error(
            once.run(key.clone(), bench.payload(), |_| bench.fails())
                .await
                .unwrap_err(),
        );
        let busy = once.run(key.clone(), bench.payload(), async |claim| {
            seen.debug(&claim);
            seen.error(
                once.run(key.clone(), bench.payload(), |_| bench.works())
                    .await
                    .unwrap_err(),
            );
            bench.works().await
        });
        Box::pin(busy).await.unwrap();
        once.run(key.clone(), bench.payload(), |_| bench.fails())
            .await
            .unwrap();
        let other = Fingerprint::bytes(bench.secret.as_bytes());
        seen.debug(&other);
        seen.error(
            once.run(key.clone(), other, |_| bench.works())
                .await
                .unwrap_err(),
        );
        let decoded = once.run(key.clone(), bench.payload(), async |_| {
            Ok::<u32, Quoting>(1)
        });
        seen.error(decoded.await.unwrap_err());
    }
    let secret = &bench.secret;
    for key in [
        Key::new("charge", format!("{secret}\n")),
        Key::new("charge", secret.repeat(30)),
        Key::new("charge", ""),
        Key::new("charge", secret).scope(""),
        Key::new("", secret),
        Key::raw("charge", secret.repeat(200)),
        Key::raw("charge", secret).scope(secret),
    ] {
        seen.error(once.run(key, None, |_| bench.works()).await.unwrap_err());
    }
    seen.error(once.run(None, None, |_| bench.works()).await.unwrap_err());
    seen.error(
        once.claimless()
            .run(bench.key("claimless"), None, |_| bench.works())
            .await
            .unwrap_err(),
    );
    let failed = || {
        once.run_with(
            bench.key("failed"),
            None,
            |_| bench.fails(),
            |_| Verdict::Fail,
        )
    };
    seen.error(failed().await.unwrap_err());
    seen.error(failed().await.unwrap_err());
    let drained = bench.once();
    assert_eq!(drained.drain(LEASE).await, 0);
    let handler = |_| ready(Ok::<String, Quoting>(String::new()));
    let late = drained.run_detached(bench.key("detached"), bench.payload(), handler);
    seen.error(late.await.unwrap_err());
}

/// Attempts that outlived their lease.
async fn crashed(bench: &Bench, seen: &mut Seen) {
    let interrupting = bench
        .builder()
        .on_crash(OnCrash::Interrupt)
        .build()
        .unwrap();
    let exhausting = bench
        .builder()
        .max_attempts(NonZeroU32::MIN)
        .build()
        .unwrap();
    for (once, name) in [(interrupting, "interrupted"), (exhausting, "exhausted")] {
        bench.crash(&once, bench.key(name)).await;
        seen.error(
            once.run(bench.key(name), bench.payload(), |_| bench.works())
                .await
                .unwrap_err(),
        );
    }
    let once = bench.once();
    bench.crash(&once, bench.key("taken over")).await;
    once.run(bench.key("taken over"), bench.payload(), |_| bench.works())
        .await
        .unwrap();
    let outlived = once.run(bench.key("outlived"), bench.payload(), async |_| {
        bench.clock.advance(LEASE * 2);
        bench.crash(&once, bench.key("outlived")).await;
        bench.works().await
    });
    seen.error(Box::pin(outlived).await.unwrap_err());
    let passed = bench.clock.now();
    bench.clock.advance(LEASE);
    let late = once.deadline(passed.into());
    seen.error(
        late.run(bench.key("late"), None, |_| bench.works())
            .await
            .unwrap_err(),
    );
    let ending = bench
        .builder()
        .settings(|settings| settings.at_deadline = AtDeadline::End);
    let soon = bench.clock.now() + Duration::from_secs(2);
    let ending = ending.build().unwrap().deadline(soon.into());
    let hangs = async |_| {
        std::future::pending::<()>().await;
        bench.works().await
    };
    let timed_out = ending.run(bench.key("timed out"), None, hangs);
    seen.error(timed_out.await.unwrap_err());
    // As `cargo lambda watch` sends it.
    let unknown = once.deadline(SystemTime::UNIX_EPOCH + Duration::from_mins(10));
    unknown
        .run(bench.key("unknown"), None, |_| bench.works())
        .await
        .unwrap();
}

/// Outcomes that can't be kept.
async fn stored(bench: &Bench, seen: &mut Seen) {
    let once = bench.once();
    // JSON has no such keys.
    let unfit = || {
        let value = std::collections::BTreeMap::from([(
            (bench.secret.clone(), 1_u8),
            bench.secret.clone(),
        )]);
        once.run(bench.key("unfit"), None, async |_| Ok::<_, Quoting>(value))
    };
    unfit().await.unwrap();
    seen.error(unfit().await.unwrap_err());
    let large = || {
        once.run(bench.key("large"), None, async |_| {
            Ok::<_, Quoting>(bench.secret.repeat(200))
        })
    };
    large().await.unwrap();
    assert!(large().await.unwrap().is_replayed());
    seen.debug(&Omission::Damaged);
}

/// A store that fails.
async fn faults(bench: &Bench, seen: &mut Seen) {
    let once = bench
        .builder()
        .settings(|settings| settings.unrecorded = Unrecorded::Fail)
        .build()
        .unwrap();
    // More than it has time for.
    for _ in 0..500 {
        bench.store.inject(Call::Complete, Fault::RequestLost);
    }
    seen.error(
        once.run(bench.key("unrecorded"), None, |_| bench.works())
            .await
            .unwrap_err(),
    );
    bench.store.calm();
    for _ in 0..20 {
        bench.store.inject(Call::Create, Fault::RequestLost);
        bench.store.inject(Call::Release, Fault::RequestLost);
    }
    seen.error(
        once.run(bench.key("lost"), None, |_| bench.works())
            .await
            .unwrap_err(),
    );
    let open = bench
        .builder()
        .on_store_unavailable(lambda_idempotency::OnStoreUnavailable::FailOpen)
        .build()
        .unwrap();
    open.run(bench.key("lost"), None, |_| bench.works())
        .await
        .unwrap();
    bench.store.calm();
}

/// Beside the codes of errors.
const EVENTS: [&str; 8] = [
    "claimed",
    "retried",
    "taken_over",
    "completed",
    "replayed",
    "released",
    "deadline_unknown",
    "unprotected",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_error_of_an_engine_tells_a_secret(canary in any_canary()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let seen = runtime.block_on(scenario(&canary));
        let all = codes::all();
        // An engine logs each, but for a handler's own without the setting.
        let logged = all.iter().copied().filter(|code| *code != "handler_failed" && !ELSEWHERE.contains(code));
        let events: Vec<_> = EVENTS.into_iter().chain(logged).collect();
        let codes: BTreeSet<_> = seen.assert_silent(&events).into_iter().chain(ELSEWHERE).collect();
        prop_assert_eq!(codes, all, "an error that this scenario never brings about");
    }
}
