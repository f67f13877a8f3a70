//! The participants of a run: engines on one table, each behind a wire of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::{Error, Fingerprint, Idempotency, Key, Outcome};

use super::trace::{Event, Lane, Style};
use super::wire::{Stage, Wire};
use crate::support::{Fault, Proxy, Server};

/// What a diagram of a record shows of it.
pub(super) const SHOWN: &[&str] = &["status", "owner", "in_progress_expiration", "data"];
pub(super) const LEASE: Duration = Duration::from_mins(1);

/// A table, and the lane that it stands on.
pub(super) struct Table {
    pub(super) stage: Stage,
    pub(super) server: Server,
    pub(super) name: String,
    pub(super) lane: Lane,
}

/// An execution environment.
#[derive(Clone)]
pub(super) struct Environment {
    pub(super) stage: Stage,
    pub(super) once: Idempotency<DynamoDbStore>,
    pub(super) lane: Lane,
}

impl Table {
    pub(super) async fn on(lane: Lane, shown: &'static [&'static str]) -> Self {
        let server = Server::dynoxide().await;
        let name = server.idempotency_table().await;
        Self {
            stage: Stage::new(shown),
            server,
            name,
            lane,
        }
    }

    /// A wire of this lane's, on which the next requests of these operations meet these faults.
    pub(super) async fn wire<const N: usize>(
        &self,
        lane: Lane,
        faults: [(&'static str, Fault); N],
    ) -> Proxy {
        let wire = Wire {
            stage: self.stage.clone(),
            from: lane,
            dynamodb: self.lane,
            faults: Mutex::new(VecDeque::from(faults)),
            loses: Mutex::new(false),
        };
        Proxy::meddled_with(&self.server, Arc::new(wire)).await
    }

    pub(super) async fn environment(&self, lane: Lane) -> Environment {
        self.disturbed(lane, []).await
    }

    pub(super) async fn disturbed<const N: usize>(
        &self,
        lane: Lane,
        faults: [(&'static str, Fault); N],
    ) -> Environment {
        let wire = self.wire(lane, faults).await;
        let store = DynamoDbStore::new(wire.server().client(), &self.name);
        let once = Idempotency::builder(store)
            .namespace("payments")
            .lease(LEASE)
            .clock(self.stage.clock.clone())
            .build()
            .unwrap();
        Environment {
            stage: self.stage.clone(),
            once,
            lane,
        }
    }
}

pub(super) fn key() -> Key {
    Key::new("charge", "A-17")
}

pub(super) fn payload(text: &str) -> Fingerprint {
    Fingerprint::bytes(text.as_bytes())
}

impl Environment {
    fn arrow(&self, from: Lane, to: Lane, style: Style, text: impl Into<String>) {
        self.stage.trace.arrow(from, to, style, text);
    }

    /// The message arrives.
    pub(super) fn delivered(&self, text: &str) {
        self.arrow(0, self.lane, Style::Call, text);
    }

    /// The handler begins, and has its effect at a provider, which answers with a receipt.
    pub(super) fn charges(&self, provider: Lane, key: &str) -> String {
        let receipt = self.stage.receipt(key);
        let text = format!("charge 12.50, key {}", Stage::short(key));
        self.arrow(self.lane, provider, Style::Call, text);
        self.arrow(provider, self.lane, Style::Reply, &receipt);
        receipt
    }

    pub(super) fn begins(&self) {
        self.stage.trace.push(Event::Begins(self.lane));
    }

    pub(super) fn ends(&self) {
        self.stage.trace.push(Event::Ends(self.lane));
    }

    pub(super) fn dies(&self, why: &str) {
        self.stage
            .trace
            .push(Event::Dies(self.lane, why.to_owned()));
    }

    /// Answers the delivery as the engine did.
    pub(super) fn answers(&self, answer: &Result<Outcome<String>, Error<std::io::Error>>) {
        let (style, text) = match answer {
            Ok(Outcome::Executed(value)) => (Style::Reply, value.clone()),
            Ok(outcome) => {
                let how = if outcome.is_replayed() {
                    "replayed"
                } else {
                    "unprotected"
                };
                (Style::Reply, format!("{} ({how})", outcome.get()))
            }
            // Without the link to the page of the error.
            Err(error) => {
                let text = error.to_string();
                let words = text.split(" See http").next().unwrap();
                (Style::Refused, words.to_owned())
            }
        };
        self.arrow(self.lane, 0, style, text);
    }
}
