//! The layer of one event and one answer: what an event that comes again does to the world, and what its caller gets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lambda_idempotency::invoke::{Invocation, InvokeError, InvokeLayer};
use lambda_idempotency::store::{MemoryStore, Store};
use lambda_idempotency::testing::TestInvocation;
use lambda_idempotency::{AtDeadline, Builder, Idempotency};
use lambda_runtime::{Diagnostic, LambdaEvent};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tower::{Service, ServiceExt};

use crate::on_each_server;
use crate::support::{Server, VirtualClock, builder_on};

mod answers;
mod errors;
mod hooks;
mod policies;
mod retention;
mod s3_batch;
mod sources;
mod time;

#[derive(Clone, Debug, Deserialize)]
struct Settlement {
    settlement_id: String,
    amount: u64,
}

#[derive(Debug, thiserror::Error)]
enum SettleError {
    #[error("account closed")]
    Closed,
    #[error("bank unreachable")]
    Unreachable,
}

impl From<SettleError> for Diagnostic {
    fn from(error: SettleError) -> Self {
        Diagnostic {
            error_type: format!("{error:?}"),
            error_message: error.to_string(),
        }
    }
}

type Event = LambdaEvent<Box<RawValue>>;
type Failed = InvokeError<SettleError>;

trait Function: Service<Event, Response = Box<RawValue>, Error = Failed> + Clone {}
impl<F> Function for F where F: Service<Event, Response = Box<RawValue>, Error = Failed> + Clone {}

/// Counts the runs of a handler.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicU32>);

impl Runs {
    /// This run's number, from 1.
    fn count(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Since the last call.
    fn take(&self) -> u32 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn builder<S: Store>(store: S) -> Builder {
    builder_on(store, "invoke").settings(|settings| settings.at_deadline = AtDeadline::End)
}

fn engine() -> Idempotency {
    builder(MemoryStore::new()).build().unwrap()
}

/// The layer that most tests wrap a handler in.
fn settle(once: &Idempotency) -> InvokeLayer<Settlement, SettleError> {
    InvokeLayer::new(once.clone())
        .operation("settle")
        .key(|settlement: &Settlement| settlement.settlement_id.clone())
}

/// A function that is deliberately not idempotent: each run has its own answer.
fn settling(once: &Idempotency, runs: &Runs) -> impl Function + use<> {
    counting(settle(once), runs)
}

/// The same, in this layer.
fn counting(layer: InvokeLayer<Settlement, SettleError>, runs: &Runs) -> impl Function + use<> {
    let runs = runs.clone();
    layer.handler(move |event: Invocation<Settlement>| {
        let answer = json!({ "run": runs.count(), "amount": event.payload.amount });
        async move { Ok(answer) }
    })
}

fn settlement(id: &str, amount: u64) -> Value {
    json!({ "settlement_id": id, "amount": amount })
}

fn event(payload: &Value) -> Event {
    TestInvocation::json(payload).unwrap().event()
}

/// Invokes the function; its answer's text.
async fn invoke(function: &impl Function, payload: &Value) -> Result<String, Failed> {
    let answer = function.clone().oneshot(event(payload)).await?;
    Ok(answer.get().to_owned())
}

/// Invokes the function, which must fail, and returns the error that its caller gets.
async fn failure(function: &impl Function, payload: &Value) -> Diagnostic {
    invoke(function, payload).await.unwrap_err().into()
}

async fn error_type(function: &impl Function, payload: &Value) -> String {
    failure(function, payload).await.error_type
}
