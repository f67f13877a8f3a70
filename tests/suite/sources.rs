//! The sources of batches beside SQS: what an event as AWS documents it does to the world, and what is asked for again.

use std::sync::{Arc, Mutex};

use lambda_idempotency::Idempotency;
use lambda_idempotency::batch::{BatchError, BatchLayer, Message, Source};
use lambda_runtime::{Context, LambdaEvent};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::Service;

use crate::on_each_server;
use crate::support::{Server, builder_on};

mod bad_input;
mod kafka;
mod pipes;
mod spans;
mod whole;

async fn engine(server: &Server) -> Idempotency {
    builder_on(server.store().await, "sources").build().unwrap()
}

/// The ids of the records that took effect, and of those that the handler is to fail on.
#[derive(Clone, Default)]
struct World {
    effects: Arc<Mutex<Vec<String>>>,
    failing: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn fail_on(&self, ids: &[&str]) {
        *self.failing.lock().unwrap() = ids.iter().map(|id| (*id).to_owned()).collect();
    }

    /// Sorted, since records may run side by side.
    fn take(&self) -> Vec<String> {
        let mut effects = std::mem::take(&mut *self.effects.lock().unwrap());
        effects.sort();
        effects
    }

    fn handle(&self, id: &str) -> Result<(), &'static str> {
        if self
            .failing
            .lock()
            .unwrap()
            .iter()
            .any(|failing| failing == id)
        {
            return Err("it fails");
        }
        self.effects.lock().unwrap().push(id.to_owned());
        Ok(())
    }
}

fn layer<Src: Source>(once: &Idempotency) -> BatchLayer<Src, Value, &'static str> {
    BatchLayer::new(once.clone())
}

/// Delivers an event to a handler that this world decides on.
async fn deliver<Src: Source + DeserializeOwned>(
    layer: BatchLayer<Src, Value, &'static str>,
    world: &World,
    event: &str,
) -> Result<Src::Reply, BatchError> {
    let world = world.clone();
    let mut worker = layer.handler(move |message: Message<Src, Value>| {
        let result = world.handle(message.id());
        async move { result }
    });
    let event = serde_json::from_str(event).unwrap();
    worker
        .call(LambdaEvent::new(event, Context::default()))
        .await
}

const NOTHING: [&str; 0] = [];
