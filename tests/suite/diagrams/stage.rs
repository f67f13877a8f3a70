//! The participants of a run: a table on the embedded DynamoDB, and engines on it, each behind a wire that notes its requests and their
//! answers as arrows of a Mermaid diagram.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::testing::ManualClock;
use lambda_idempotency::{Clock, Error, Fingerprint, Idempotency, Key, Outcome};
use serde_json::Value;

use super::words::{Words, number};
use crate::support::proxy::Meddler;
use crate::support::{Fault, Proxy, Server};

pub(super) const TABLE: &str = "DynamoDB";
const LEASE: Duration = Duration::from_mins(1);
/// Characters of all lines that fit side by side on a phone.
const CHARACTERS: usize = 48;

/// A file of `docs/diagrams`.
pub(super) struct Diagram {
    pub(super) name: &'static str,
    pub(super) text: String,
}

/// The state that all participants of a run share; its clones share it too.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) clock: ManualClock,
    lanes: &'static [&'static str],
    lines: Arc<Mutex<Vec<String>>>,
    words: Arc<Mutex<Words>>,
    /// The keys of the charges, in the order in which they came.
    charged: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    pub(super) fn line(&self, line: impl Into<String>) {
        self.lines.lock().unwrap().push(line.into());
    }

    /// `->>` is a request or a delivery, `-->>` an answer. The text is broken between words.
    pub(super) fn arrow(&self, from: &str, arrow: &str, to: &str, text: &str) {
        let place = |of: &str| self.lanes.iter().position(|lane| *lane == of).unwrap();
        let width = place(from).abs_diff(place(to)) * CHARACTERS / (self.lanes.len() - 1);
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let line = lines.last_mut().unwrap();
            if line.is_empty() {
                line.push_str(word);
            } else if word == "\n" || line.chars().count() + 1 + word.chars().count() > width {
                lines.push(word.trim().to_owned());
            } else {
                *line = format!("{line} {word}");
            }
        }
        let text = lines.join("<br/>").replace('\u{a0}', " ");
        self.line(format!("{from}{arrow}{to}: {text}"));
    }

    /// Lets the lease run out, and says so.
    pub(super) fn lease_ends(&self) {
        self.clock.advance(LEASE + Duration::from_secs(2));
        let now = self.words.lock().unwrap().seconds(self.clock.now());
        let (first, last) = (self.lanes[0], self.lanes[self.lanes.len() - 1]);
        self.line(format!(
            "Note over {first},{last}: {now} s after the start,<br/>the lease is over"
        ));
    }

    /// A key of 64 hexadecimal digits, by its beginning.
    pub(super) fn short(key: &str) -> String {
        format!("key\u{a0}{}…", &key[..6])
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    pub(super) fn diagram(&self, name: &'static str, title: &str, description: &str) -> Diagram {
        let head = [
            format!("accTitle: {title}"),
            format!("accDescr: {description}"),
        ];
        let participants = self.lanes.iter().map(|lane| format!("participant {lane}"));
        let lines = head.into_iter().chain(participants).chain(self.take());
        let text = lines.fold("sequenceDiagram\n".to_owned(), |text, line| {
            text + "    " + &line + "\n"
        });
        Diagram { name, text }
    }
}

/// The wire of one participant.
struct Wire {
    stage: Stage,
    from: &'static str,
}

impl Meddler for Wire {
    fn fault(&self, _: &str, _: &Value) -> Fault {
        Fault::Pass
    }

    fn answered(&self, operation: &str, request: &Value, status: u16, reply: &Value) {
        let mut words = self.stage.words.lock().unwrap();
        let sent = words.request(operation, request);
        let (from, said) = (self.from, words.reply(&sent, status, reply));
        self.stage.arrow(from, "->>", TABLE, &sent.join(" \n "));
        self.stage.arrow(TABLE, "-->>", from, &said);
    }
}

pub(super) struct Table {
    pub(super) stage: Stage,
    pub(super) server: Server,
    name: String,
}

/// An execution environment.
#[derive(Clone)]
pub(super) struct Environment {
    pub(super) stage: Stage,
    pub(super) once: Idempotency,
    lane: &'static str,
}

impl Table {
    /// Of a record, these attributes are shown.
    pub(super) async fn on(lanes: &'static [&'static str], shown: &'static [&'static str]) -> Self {
        let server = Server::dynoxide().await;
        let name = server.idempotency_table().await;
        let clock = ManualClock::default();
        let words = Words::new(clock.now(), shown);
        let stage = Stage {
            clock,
            lanes,
            lines: Arc::default(),
            words: Arc::new(Mutex::new(words)),
            charged: Arc::default(),
        };
        Self {
            stage,
            server,
            name,
        }
    }

    pub(super) async fn wire(&self, from: &'static str) -> Proxy {
        let stage = self.stage.clone();
        Proxy::meddled_with(&self.server, Arc::new(Wire { stage, from })).await
    }

    pub(super) async fn environment(&self, lane: &'static str) -> Environment {
        let wire = self.wire(lane).await;
        let store = DynamoDbStore::new(wire.server().client(), &self.name);
        let once = Idempotency::builder(store)
            .namespace("payments")
            // As a message of a queue is told.
            .settings(|settings| settings.max_retry_after = Duration::MAX)
            .lease(LEASE);
        let once = once.clock(self.stage.clock.clone()).build().unwrap();
        let stage = self.stage.clone();
        Environment { stage, once, lane }
    }

    pub(super) async fn two_environments(&self) -> [Environment; 2] {
        [
            self.environment("Lambda 1").await,
            self.environment("Lambda 2").await,
        ]
    }
}

pub(super) fn key() -> Key {
    Key::new("charge", "A-17")
}

pub(super) fn payload(text: &str) -> Fingerprint {
    Fingerprint::bytes(text.as_bytes())
}

impl Environment {
    /// The message or the request arrives.
    pub(super) fn delivered(&self, text: &str) {
        self.stage
            .arrow(self.stage.lanes[0], "->>", self.lane, text);
    }

    pub(super) fn replies(&self, text: &str) {
        self.stage
            .arrow(self.lane, "-->>", self.stage.lanes[0], text);
    }

    /// A call of the provider, which stands on the last lane.
    pub(super) fn calls(&self, request: &str, reply: &str) {
        let provider = self.stage.lanes[self.stage.lanes.len() - 1];
        self.stage.arrow(self.lane, "->>", provider, request);
        self.stage.arrow(provider, "-->>", self.lane, reply);
    }

    /// Charges at the provider, whose receipt is the same for the same key.
    pub(super) fn charges(&self, key: &str) -> String {
        let number = number(&mut self.stage.charged.lock().unwrap(), key);
        let receipt = format!("receipt {}", 16 + number);
        self.calls(
            &format!("charge\u{a0}12.50, {}", Stage::short(key)),
            &receipt,
        );
        receipt
    }

    /// The handler begins.
    pub(super) fn begins(&self) {
        self.stage.line(format!("activate {}", self.lane));
    }

    pub(super) fn ends(&self) {
        self.stage.line(format!("deactivate {}", self.lane));
    }

    pub(super) fn dies(&self, why: &str) {
        self.ends();
        self.stage
            .line(format!("Note over {}: dies<br/>{why}", self.lane));
    }

    /// Answers the delivery as the engine did.
    pub(super) fn answers(&self, answer: &Result<Outcome<String>, Error<std::io::Error>>) {
        match answer {
            Ok(Outcome::Executed(value)) => self.replies(value),
            Ok(outcome) => {
                assert!(outcome.is_replayed());
                self.replies(&format!("{} (replayed)", outcome.get()));
            }
            // Without the link to the page of the error.
            Err(error) => self.replies(error.to_string().split(" See http").next().unwrap()),
        }
    }
}
