//! `get`, `explain`, `list`, and the commands that end a record.

mod cut;
mod ends;
mod explains;
mod finds;
mod keys;
mod lists;
mod races;
mod schema;

use std::time::{Duration, SystemTime};

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::testing::{Crash, ManualClock};
use lambda_idempotency::{
    Claim, Error, Fingerprint, Idempotency, Key, OnCrash, Outcome, Step, StepError,
};

use crate::support::{PATIENCE, dynamodb};

/// The operator's reason in each of these tests.
const WHY: [&str; 2] = ["--reason", "ticket 17"];

/// A worker's engine on the table, as a function in production has it.
fn engine(table: &str) -> Idempotency {
    let store = DynamoDbStore::new(dynamodb().client(), table);
    let engine = Idempotency::builder(store).namespace("payments");
    let engine = engine.settings(|settings| settings.store_timeout = PATIENCE);
    engine.build().unwrap()
}

/// The same, an hour ago.
fn engine_an_hour_ago(table: &str) -> Idempotency {
    let store = DynamoDbStore::new(dynamodb().client(), table);
    let engine = Idempotency::builder(store).namespace("payments");
    let engine = engine.settings(|settings| settings.store_timeout = PATIENCE);
    let hour_ago = SystemTime::now() - Duration::from_hours(1);
    let clock = ManualClock::at(hour_ago.into());
    engine.clock(clock).build().unwrap()
}

fn key(token: &str) -> Key {
    Key::new("charge", token)
}

/// The id of a charge.
pub(crate) fn id(table: &str, token: &str) -> String {
    let id = engine(table).record_id(&key(token)).unwrap();
    id.as_str().to_owned()
}

/// A delivery: a handler that answers with its attempt.
pub(crate) async fn deliver(
    table: &str,
    token: &str,
) -> Result<Outcome<String>, Error<std::io::Error>> {
    let handler = async |claim: Claim| Ok(format!("receipt of attempt {}", claim.attempt()));
    let payload = Fingerprint::json(b"{}");
    engine(table).run(key(token), payload, handler).await
}

/// Leaves the record of an attempt that died an hour ago, and returns its id.
pub(crate) async fn dead(table: &str, token: &str) -> String {
    let (once, crash) = (engine_an_hour_ago(table), Crash::new());
    let payload = Fingerprint::json(b"{}");
    let attempt = once.run(key(token), payload, async |_claim| {
        crash.here::<Result<String, std::io::Error>>().await
    });
    crash.cut_off(attempt).await.unwrap();
    id(table, token)
}

/// Leaves the record of an attempt that runs, and returns its id.
async fn alive(table: &str, token: &str) -> String {
    let (once, crash) = (engine(table), Crash::new());
    let payload = Fingerprint::json(b"{}");
    let attempt = once.run(key(token), payload, async |_claim| {
        crash.here::<Result<String, std::io::Error>>().await
    });
    crash.cut_off(attempt).await.unwrap();
    id(table, token)
}

/// A delivery whose handler charges in a step that must not be repeated.
async fn deliver_in_steps(
    once: &Idempotency,
    token: &str,
    charge: impl AsyncFn() -> Result<String, std::io::Error>,
) -> Result<Outcome<String>, Error<StepError<std::io::Error>>> {
    let payload = Fingerprint::json(b"{}");
    let run = async |claim: Claim| {
        let step = Step::named("charge").on_crash(OnCrash::Interrupt);
        claim.step(step, async |_key| charge().await).await
    };
    once.run(key(token), payload, run).await
}
