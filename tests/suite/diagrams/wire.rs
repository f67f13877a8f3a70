//! The wire between an execution environment and DynamoDB: each request and its answer is an event of the trace.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lambda_idempotency::Clock;
use lambda_idempotency::testing::ManualClock;
use serde_json::Value;

use super::trace::{Event, Lane, Style, Trace};
use super::words::Words;
use crate::support::Fault;
use crate::support::proxy::Meddler;

/// What all participants of a run share.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) trace: Trace,
    pub(super) clock: ManualClock,
    words: Arc<Mutex<Words>>,
    /// The keys of the charges, in the order in which they came.
    charged: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    /// Shows these attributes of a record, and no others.
    pub(super) fn new(shown: &'static [&'static str]) -> Self {
        let clock = ManualClock::default();
        let words = Words::new(clock.now(), shown);
        Self {
            trace: Trace::default(),
            clock,
            words: Arc::new(Mutex::new(words)),
            charged: Arc::default(),
        }
    }

    /// Lets time pass, and says so.
    pub(super) fn passes(&self, time: Duration) {
        self.clock.advance(time);
        let now = self.words.lock().unwrap().time(self.clock.now().0);
        let text = format!("{} s pass; it is {now}", time.as_secs());
        self.trace.push(Event::Later(text));
    }

    /// The provider's receipt: the same for the same key.
    pub(super) fn receipt(&self, key: &str) -> String {
        let mut charged = self.charged.lock().unwrap();
        let place = charged.iter().position(|own| own == key);
        let place = place.unwrap_or_else(|| {
            charged.push(key.to_owned());
            charged.len() - 1
        });
        format!("receipt {}", 17 + place)
    }

    /// A key of 64 hexadecimal digits, by its beginning.
    pub(super) fn short(key: &str) -> String {
        format!("{}…", key.chars().take(6).collect::<String>())
    }
}

/// The wire of one participant.
pub(super) struct Wire {
    pub(super) stage: Stage,
    pub(super) from: Lane,
    pub(super) dynamodb: Lane,
    /// The next requests of these operations meet these faults.
    pub(super) faults: Mutex<VecDeque<(&'static str, Fault)>>,
    /// That the answer of the request under way is lost.
    pub(super) loses: Mutex<bool>,
}

impl Meddler for Wire {
    fn fault(&self, operation: &str, _: &Value) -> Fault {
        let mut faults = self.faults.lock().unwrap();
        let is_next = faults
            .front()
            .is_some_and(|(wanted, _)| *wanted == operation);
        let fault = if is_next {
            faults.pop_front().unwrap().1
        } else {
            Fault::Pass
        };
        *self.loses.lock().unwrap() = fault == Fault::LoseReply;
        fault
    }

    fn answered(&self, operation: &str, request: &Value, status: u16, reply: &Value) {
        let mut words = self.stage.words.lock().unwrap();
        let sent = words.request(operation, request);
        let (from, to) = (self.from, self.dynamodb);
        self.stage.trace.push(Event::Arrow {
            from,
            to,
            style: Style::Call,
            lines: sent,
        });
        let lines = words.reply(operation, status, reply);
        let is_lost = std::mem::take(&mut *self.loses.lock().unwrap());
        let style = match (is_lost, Words::refused(status, reply)) {
            (true, _) => Style::Lost,
            (false, true) => Style::Refused,
            (false, false) => Style::Reply,
        };
        self.stage.trace.push(Event::Arrow {
            from: to,
            to: from,
            style,
            lines,
        });
    }
}
