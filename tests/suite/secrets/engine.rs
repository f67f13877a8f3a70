//! The output of a run, under every error that an engine has.

use std::collections::BTreeSet;
use std::future::{Ready, ready};
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, Fault, FaultyStore, ManualClock};
use lambda_idempotency::{
    AtDeadline, Builder, Clock, Fingerprint, Idempotency, Key, Omission, OnCrash,
    OnStoreUnavailable, Unrecorded, Verdict,
};

use super::canary::{Canary, Seen, with_secrets};
use crate::reference::codes;
use crate::support::crash::kill;

/// Errors that only a transaction has, or that no test can bring about.
const ELSEWHERE: &str = "condition_failed invalid_payload no_entropy not_committed \
    outcome_unknown retention_too_short";

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
        self.once_with(|once| once)
    }

    fn once_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Idempotency {
        settings(self.builder()).build().unwrap()
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
        seen.fails(once.run(key.clone(), bench.payload(), |_| bench.fails()))
            .await;
        let busy = once.run(key.clone(), bench.payload(), async |claim| {
            seen.debug(&claim);
            seen.fails(once.run(key.clone(), bench.payload(), |_| bench.works()))
                .await;
            bench.works().await
        });
        Box::pin(busy).await.unwrap();
        once.run(key.clone(), bench.payload(), |_| bench.fails())
            .await
            .unwrap();
        let other = Fingerprint::bytes(bench.secret.as_bytes());
        seen.debug(&other);
        seen.fails(once.run(key.clone(), other, |_| bench.works()))
            .await;
        let decoded = once.run(key.clone(), bench.payload(), async |_| {
            Ok::<u32, Quoting>(1)
        });
        seen.fails(decoded).await;
    }
    let secret = &bench.secret;
    for key in [
        Key::new("charge", format!("{secret}\n")),
        Key::new("charge", secret.repeat(30)),
        Key::new("charge", ""),
        Key::new("charge", secret).scope(""),
        Key::new("", secret),
        Key::new("charge\n", secret),
        Key::raw("charge", secret.repeat(200)),
        Key::raw("charge", secret).scope(secret),
    ] {
        seen.fails(once.run(key, None, |_| bench.works())).await;
    }
    seen.fails(once.run(None, None, |_| bench.works())).await;
    let claimless = once.claimless();
    let key = bench.key("claimless");
    seen.fails(claimless.run(key, None, |_| bench.works()))
        .await;
    let key = || bench.key("failed");
    let failed = || once.run_with(key(), None, |_| bench.fails(), |_| Verdict::Fail);
    seen.fails(failed()).await;
    seen.fails(failed()).await;
    let drained = bench.once();
    assert_eq!(drained.drain(LEASE).await, 0);
    let handler = |_| ready(Ok::<String, Quoting>(String::new()));
    let late = drained.run_detached(bench.key("detached"), bench.payload(), handler);
    seen.fails(late).await;
}

/// Attempts that outlived their lease.
async fn crashed(bench: &Bench, seen: &mut Seen) {
    let interrupting = bench.once_with(|once| once.on_crash(OnCrash::Interrupt));
    let exhausting = bench.once_with(|once| once.max_attempts(NonZeroU32::MIN));
    for (once, name) in [(interrupting, "interrupted"), (exhausting, "exhausted")] {
        bench.crash(&once, bench.key(name)).await;
        seen.fails(once.run(bench.key(name), bench.payload(), |_| bench.works()))
            .await;
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
    seen.fails(Box::pin(outlived)).await;
    let passed = bench.clock.now();
    bench.clock.advance(LEASE);
    let late = once.deadline(passed.into());
    seen.fails(late.run(bench.key("late"), None, |_| bench.works()))
        .await;
    let ending =
        bench.once_with(|once| once.settings(|settings| settings.at_deadline = AtDeadline::End));
    let soon = bench.clock.now() + Duration::from_secs(2);
    let ending = ending.deadline(soon.into());
    let hangs = async |_| {
        std::future::pending::<()>().await;
        bench.works().await
    };
    let timed_out = ending.run(bench.key("timed out"), None, hangs);
    seen.fails(timed_out).await;
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
    seen.fails(unfit()).await;
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
    let once =
        bench.once_with(|once| once.settings(|settings| settings.unrecorded = Unrecorded::Fail));
    // More than it has time for.
    for _ in 0..500 {
        bench.store.inject(Call::Complete, Fault::RequestLost);
    }
    seen.fails(once.run(bench.key("unrecorded"), None, |_| bench.works()))
        .await;
    bench.store.calm();
    for _ in 0..20 {
        bench.store.inject(Call::Create, Fault::RequestLost);
        bench.store.inject(Call::Release, Fault::RequestLost);
    }
    seen.fails(once.run(bench.key("lost"), None, |_| bench.works()))
        .await;
    let open = bench.once_with(|once| once.on_store_unavailable(OnStoreUnavailable::FailOpen));
    open.run(bench.key("lost"), None, |_| bench.works())
        .await
        .unwrap();
    bench.store.calm();
}

/// Beside the codes of errors.
const EVENTS: &str =
    "claimed retried taken_over completed replayed released deadline_unknown unprotected";

#[test]
fn no_error_of_an_engine_tells_a_secret() {
    let files = ["src/engine/error.rs", "src/protocol/key/error.rs"].into_iter();
    let all: BTreeSet<_> = files.flat_map(|path| codes(path, "code(&self)")).collect();
    // An engine logs each, but for a handler's own without the setting.
    let is_logged = |code: &&str| !ELSEWHERE.contains(*code) && *code != "handler_failed";
    let logged = all.iter().map(String::as_str).filter(is_logged);
    let events: Vec<_> = [EVENTS].into_iter().chain(logged).collect();
    with_secrets(scenario, |seen| {
        let seen = seen.assert_silent(&events.join(" ")).into_iter();
        let codes = seen.chain(ELSEWHERE.split(' ')).map(str::to_owned);
        let codes: BTreeSet<_> = codes.collect();
        assert_eq!(codes, all, "an error that this scenario never brings about");
    });
}
