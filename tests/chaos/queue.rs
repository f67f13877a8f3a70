//! A queue as SQS is one: what isn't acknowledged comes again, what comes too often is put aside, and now and then it delivers
//! twice what it need not.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::night::{AGAIN, DUPLICATE, FIRST, Night, between};
use crate::pool::{CALM_TIMEOUT, TIMEOUT};
use crate::support::events;

/// The time for which a message is hidden beyond the functions' timeout: for the margin, as the documentation asks for.
const MARGIN: Duration = Duration::from_millis(1_200);

/// The number of receives after which a message is put aside: in trouble, and when it is over.
const MOST_RECEIVES: u32 = 10;
const MOST_CALM_RECEIVES: u32 = 5;

/// Of a hundred receives, and of a hundred acknowledgements, so many leave the message where it is.
const DOUBLED: u32 = 12;
const KEPT: u32 = 4;

/// The payment that a message is about, and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub payment_id: String,
    pub amount: u64,
    pub body: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Acknowledged(SystemTime),
    Dead,
}

/// A message, and where it is.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: String,
    pub subject: Subject,
    visible_at: Instant,
    receives: u32,
    /// The next delivery is the queue's own doing.
    is_doubled: bool,
    pub end: Option<End>,
}

pub struct Queue {
    night: Arc<Night>,
    /// The name under which its deliveries are counted.
    counted: String,
    state: Mutex<State>,
}

struct State {
    dice: Rng,
    messages: Vec<Message>,
    delivered: HashSet<String>,
}

impl Queue {
    pub fn new(night: &Arc<Night>, name: &str) -> Self {
        Self {
            night: Arc::clone(night),
            counted: format!("deliveries: {name}"),
            state: Mutex::new(State {
                dice: night.dice(&format!("the queue of {name}")),
                messages: Vec::new(),
                delivered: HashSet::new(),
            }),
        }
    }

    pub fn send(&self, subject: Subject, delay: Duration) {
        let mut state = self.state();
        let message = Message {
            id: format!("message-{}", state.messages.len()),
            subject,
            visible_at: Instant::now() + delay,
            receives: 0,
            is_doubled: false,
            end: None,
        };
        state.messages.push(message);
    }

    /// Up to so many messages as an event, and their ids.
    pub fn receive(&self, most: usize) -> Option<(Value, Vec<String>)> {
        let mut state = self.state();
        let State {
            dice,
            messages,
            delivered,
        } = &mut *state;
        let now = Instant::now();
        let is_troubled = self.night.is_troubled();
        let most_receives = if is_troubled {
            MOST_RECEIVES
        } else {
            MOST_CALM_RECEIVES
        };
        let (mut records, mut ids) = (Vec::new(), Vec::new());
        for message in messages.iter_mut() {
            if message.end.is_some() || message.visible_at > now || ids.len() == most {
                continue;
            }
            if message.receives >= most_receives {
                message.end = Some(End::Dead);
                self.night.report.count("message dead");
                continue;
            }
            message.receives += 1;
            let is_new = delivered.insert(message.subject.payment_id.clone());
            self.night.report.count(&self.counted);
            self.night.report.count(match message {
                _ if is_new => FIRST,
                Message { receives: 1, .. }
                | Message {
                    is_doubled: true, ..
                } => DUPLICATE,
                _ => AGAIN,
            });
            message.is_doubled = is_troubled && dice.u32(0..100) < DOUBLED;
            let hidden = if message.is_doubled {
                between(dice, 0, 300)
            } else if is_troubled {
                TIMEOUT + MARGIN
            } else {
                CALM_TIMEOUT + MARGIN
            };
            message.visible_at = now + hidden;
            records.push(message.record());
            ids.push(message.id.clone());
        }
        (!ids.is_empty()).then(|| (json!({ "Records": records }), ids))
    }

    /// The function answered, and named those that failed.
    pub fn answered(&self, ids: &[String], failed: &[String]) {
        let at = SystemTime::now();
        let mut state = self.state();
        let State { dice, messages, .. } = &mut *state;
        let is_troubled = self.night.is_troubled();
        let mut kept = Vec::new();
        for message in messages.iter_mut().filter(|it| ids.contains(&it.id)) {
            if failed.contains(&message.id) {
                // In the calm, five receives outlast a lease that a dead process left.
                let (least, most) = if is_troubled { (50, 1_500) } else { (700, 800) };
                message.visible_at = Instant::now() + between(dice, least, most);
                continue;
            }
            // The first acknowledgement is the one to be held against the effect.
            message.end.get_or_insert(End::Acknowledged(at));
            if is_troubled && dice.u32(0..100) < KEPT {
                kept.push((message.subject.clone(), between(dice, 0, 4_000)));
            }
        }
        drop(state);
        for (subject, delay) in kept {
            self.send(subject, delay);
        }
    }

    /// The ids of the messages that were put aside.
    pub fn put_aside(&self) -> Vec<String> {
        let messages = self.messages().into_iter();
        let dead = messages.filter(|message| message.end == Some(End::Dead));
        dead.map(|message| message.id).collect()
    }

    /// They come again.
    pub fn redrive(&self) {
        for message in &mut self.state().messages {
            if message.end == Some(End::Dead) {
                (message.end, message.receives) = (None, 0);
                message.visible_at = Instant::now();
            }
        }
    }

    /// Everything that was ever done is sent once more, as in a replay by hand.
    pub fn replay(&self) {
        let done = |message: &Message| matches!(message.end, Some(End::Acknowledged(_)));
        let mut seen = HashSet::new();
        let messages = self.messages();
        let done = messages.into_iter().filter(done);
        for message in done.filter(|it| seen.insert(it.subject.body.clone())) {
            self.send(message.subject, Duration::ZERO);
        }
    }

    /// Returns the number of messages that are neither done nor put aside.
    pub fn open(&self) -> usize {
        let state = self.state();
        state.messages.iter().filter(|it| it.end.is_none()).count()
    }

    pub fn messages(&self) -> Vec<Message> {
        self.state().messages.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }
}

impl Message {
    fn record(&self) -> Value {
        let mut record = events::message(&self.id, self.subject.body.clone());
        record["attributes"]["ApproximateReceiveCount"] = json!(self.receives.to_string());
        record
    }
}
