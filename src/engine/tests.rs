//! The engine on a store that answers late, wrongly or not at all, in virtual time.

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scripted::{At, Replies, Script, Scripted};
use tokio::time::{Instant, sleep};

use crate::engine::error::Error;
use crate::idempotency::{Builder, Idempotency, Outcome};
use crate::protocol::clock::{Clock, EpochMillis, SystemClock};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;
use crate::protocol::record::{Found, NewClaim, Owner, RELEASED, Record};
use crate::store::transaction::{Commit, Committed, Write};
use crate::store::{Answer, Store, StoreError};

#[cfg(feature = "batch")]
mod batches;
mod bindings;
mod claims;
mod commits;
mod counts;
mod deadlines;
mod fences;
mod refusals;
mod renewals;
mod replays;
mod scripted;
mod shadow;
mod steps;
mod tokens;
mod waits;

const LEASE: Duration = Duration::from_mins(1);

/// A clock that moves with tokio's, which a test pauses.
#[derive(Clone, Copy, Debug)]
struct TokioClock {
    began: Instant,
    at: EpochMillis,
}

impl TokioClock {
    fn start() -> Self {
        Self {
            began: Instant::now(),
            at: SystemClock.now(),
        }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> EpochMillis {
        self.at + self.began.elapsed()
    }
}

/// An engine whose claims last for `LEASE`, on a store that answers by this script.
fn engine<P: Script>(script: P) -> Bench<P> {
    bench(script, |builder| builder)
}

fn bench<P: Script>(script: P, set: impl FnOnce(Builder) -> Builder) -> Bench<P> {
    let store = Scripted::new(script);
    let builder = Idempotency::builder(store.clone())
        .namespace("tests")
        .lease(LEASE)
        .clock(TokioClock::start());
    Bench {
        once: set(builder).build().unwrap(),
        store,
    }
}

/// An engine and its store.
struct Bench<P> {
    once: Idempotency,
    store: Scripted<P>,
}

impl<P> Bench<P> {
    fn claimless(&self) -> Self {
        Self {
            once: self.once.claimless(),
            store: self.store.clone(),
        }
    }
}

impl<P> Deref for Bench<P> {
    type Target = Idempotency;

    fn deref(&self) -> &Idempotency {
        &self.once
    }
}

fn key() -> Key {
    Key::new("charge", "order-1")
}

fn payload() -> Fingerprint {
    Fingerprint::bytes(b"payload")
}

/// An attempt whose handler fails, so that its claim is released.
async fn fail(once: &Idempotency) {
    let failed = once.run(key(), payload(), async |_| Err::<i32, _>("down"));
    assert_matches!(failed.await, Err(Error::Handler("down")));
}

/// An attempt whose handler has one write to commit.
async fn write(once: &Idempotency) -> Result<Outcome<i32>, Error<Infallible>> {
    let handler = async |claim: crate::Claim| {
        claim.write(Write::new("a business write")).unwrap();
        Ok(1)
    };
    once.run(key(), payload(), handler).await
}

/// The record as it stands in the store's table.
async fn record(once: &Idempotency) -> Option<Record> {
    let id = once.record_id(&key()).unwrap();
    let found = once.store().load(&id, soon()).await.unwrap();
    found.map(|found| *found.content.unwrap())
}

/// The deadline of a call that a test makes itself.
fn soon() -> Instant {
    Instant::now() + LEASE
}

/// The claim of another attempt on the same key, with this number.
fn others(claim: &NewClaim, attempt: u32) -> NewClaim {
    NewClaim {
        owner: Owner::from_stored("another attempt"),
        attempt,
        ..claim.clone()
    }
}

/// Makes the record of another attempt that was released; each `number` gives another record.
fn released_by_another(claim: &NewClaim, number: u32) -> Found {
    let mut record = Record::claimed(claim);
    record.owner = Some(Owner::from_stored(format!("tombstone {number}")));
    record.lease = Some(RELEASED);
    Found::readable(record)
}
