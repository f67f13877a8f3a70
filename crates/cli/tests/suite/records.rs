//! `get`, `explain`, `list`, and the commands that end a record.

pub(crate) mod cut;
mod ends;
mod explains;
mod finds;
mod keys;
mod lists;
mod races;
mod schema;

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::{
    Claim, Error, Fingerprint, Idempotency, OnCrash, Outcome, Step, StepError,
};

use crate::support::{self, dynamodb, key};

/// An order's reason, and the answer to its question.
pub(crate) const WHY: &str = "--reason 'ticket 17' --yes";
/// The times of all that was completed.
pub(crate) const EVER: &str =
    "--completed-since 2020-01-01T00:00:00Z --completed-before 2100-01-01T00:00:00Z";

fn store(table: &str) -> DynamoDbStore {
    DynamoDbStore::new(dynamodb().client(), table)
}

fn engine(table: &str) -> Idempotency {
    support::engine(store(table)).build().unwrap()
}

fn engine_an_hour_ago(table: &str) -> Idempotency {
    support::engine_an_hour_ago(store(table))
}

/// The id of a charge.
pub(crate) fn id(table: &str, token: &str) -> String {
    let id = engine(table).record_id(&key(token)).unwrap();
    id.as_str().to_owned()
}

pub(crate) async fn deliver(
    table: &str,
    token: &str,
) -> Result<Outcome<String>, Error<std::io::Error>> {
    support::deliver(&engine(table), token).await
}

/// Leaves the record of an attempt that died an hour ago, and returns its id.
pub(crate) async fn dead(table: &str, token: &str) -> String {
    support::cut_off(&engine_an_hour_ago(table), token).await
}

/// Leaves the record of an attempt that runs, and returns its id.
async fn alive(table: &str, token: &str) -> String {
    support::cut_off(&engine(table), token).await
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
