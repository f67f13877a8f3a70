//! The promises of a run, row by row of the protocol's "results that need a rule".

use std::convert::Infallible;
use std::fmt::Debug;
use std::io::Error as HandlerError;
use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::join_all;
use lambda_idempotency::protocol::record::{Found, Record, Status};
use lambda_idempotency::store::{MemoryStore, Store};
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{
    Builder, Clock, Error, Fingerprint, Idempotency, InFlight, Key, KeyError, Omission, OnCrash,
    OnMissingKey, Outcome, Verdict,
};
use tokio::time::Instant;

use crate::support::crash::kill;

mod contended;
mod crashes;
mod deadlines;
mod detached;
mod dropped;
mod duplicates;
mod failures;
mod renewals;
mod replays;
mod switch;
mod times;
mod unprotected;

const LEASE: Duration = Duration::from_mins(1);
const MARGIN: Duration = Duration::from_secs(1);

/// An engine in memory, with a clock to set by hand.
struct Bench {
    clock: ManualClock,
    store: MemoryStore,
    once: Idempotency,
}

fn bench() -> Bench {
    bench_with(|builder| builder)
}

fn bench_with(settings: impl FnOnce(Builder) -> Builder) -> Bench {
    let clock = ManualClock::default();
    let store = MemoryStore::new();
    let builder = Idempotency::builder(store.clone())
        .namespace("engine")
        .lease(LEASE)
        .settings(|settings| settings.skew_margin = MARGIN)
        .clock(clock.clone());
    let once = settings(builder).build().unwrap();
    Bench { clock, store, once }
}

fn key() -> Key {
    Key::new("charge", "order-1")
}

fn payload() -> Fingerprint {
    Fingerprint::bytes(b"payload")
}

impl Bench {
    async fn run<T>(&self, value: T) -> Result<Outcome<T>, Error<Infallible>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        self.once
            .run(key(), payload(), |_| async { Ok(value) })
            .await
    }

    /// An attempt whose process dies while its handler runs.
    async fn crash(&self) {
        let never = |_| std::future::pending::<Result<i32, Infallible>>();
        let attempt = self.once.run(key(), payload(), never);
        kill(attempt).await;
    }

    async fn found(&self) -> Option<Found> {
        let id = self.once.record_id(&key()).unwrap();
        self.once
            .store()
            .load(&id, Instant::now() + LEASE)
            .await
            .unwrap()
    }

    async fn record(&self) -> Record {
        let found = self.found().await.expect("a record");
        *found.content.expect("a readable one")
    }
}

fn value<T: Debug>(outcome: Result<Outcome<T>, Error<Infallible>>) -> T {
    outcome.unwrap().into_inner()
}
