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
use lambda_idempotency::testing::{Call, Fault, FaultyStore, ManualClock};
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
    table: MemoryStore,
    /// The wire to the table.
    store: FaultyStore,
    once: Idempotency,
}

fn bench() -> Bench {
    bench_with(|builder| builder)
}

fn bench_with(settings: impl FnOnce(Builder) -> Builder) -> Bench {
    let (clock, table) = (ManualClock::default(), MemoryStore::new());
    let store = FaultyStore::new(table.clone());
    let once = settings(builder(&store, &clock)).build().unwrap();
    Bench {
        clock,
        table,
        store,
        once,
    }
}

fn builder(store: &FaultyStore, clock: &ManualClock) -> Builder {
    Idempotency::builder(store.clone())
        .namespace("engine")
        .lease(LEASE)
        .settings(|settings| settings.skew_margin = MARGIN)
        .clock(clock.clone())
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

    /// An attempt whose handler fails.
    async fn fails(&self) {
        let failed = self.once.run(key(), payload(), |_| async {
            Err::<i32, _>(HandlerError::other("down"))
        });
        let failed = failed.await;
        assert_matches!(failed, Err(Error::Handler(_)));
    }

    /// A request with the same key and another payload.
    async fn other(&self) -> Result<Outcome<i32>, Error<Infallible>> {
        let other = Fingerprint::bytes(b"other");
        self.once.run(key(), other, |_| async { Ok(1) }).await
    }

    /// An attempt whose process dies while its handler runs.
    async fn crash(&self) {
        let never = |_| std::future::pending::<Result<i32, Infallible>>();
        let attempt = self.once.run(key(), payload(), never);
        kill(attempt).await;
    }

    async fn found(&self) -> Option<Found> {
        let id = self.once.record_id(&key()).unwrap();
        let deadline = Instant::now() + LEASE;
        self.store.load(&id, deadline).await.unwrap()
    }

    async fn record(&self) -> Record {
        let found = self.found().await.expect("a record");
        *found.content.expect("a readable one")
    }
}

/// A request whose outcome is the number of its attempt.
async fn attempt(once: &Idempotency, key: Key) -> Result<Outcome<u32>, Error<Infallible>> {
    once.run(key, payload(), |claim| async move { Ok(claim.attempt()) })
        .await
}

fn value<T: Debug>(outcome: Result<Outcome<T>, Error<Infallible>>) -> T {
    outcome.unwrap().into_inner()
}
