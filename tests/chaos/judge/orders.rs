//! The exactly-once form: one order, one event, one answer for each key.

use std::time::SystemTime;

use serde_json::Value;

use super::Story;

/// The answer that a client got under a key.
#[derive(Clone, Debug)]
pub struct Answer {
    pub body: Value,
    pub at: SystemTime,
}

/// All that is known of one key.
pub struct Order {
    pub story: Option<Story>,
    pub answers: Vec<Answer>,
    /// The number of clients that never had an answer.
    pub unanswered: usize,
    /// The time by which the order stood.
    pub placed_at: Option<SystemTime>,
    /// The quantity in the table of orders.
    pub quantity: Option<i64>,
    /// The numbers of writes of the order and of its event, as the streams of their tables tell.
    pub writes: usize,
    pub event_writes: usize,
    /// The attempts that were told that they had not committed.
    pub not_committed: Vec<i64>,
    /// Whether the order itself, and not the fence, kept a transaction from committing again.
    pub is_stopped_by_itself: bool,
}

impl Order {
    pub fn broken(self) -> Vec<String> {
        let mut broken = Vec::new();
        if self.unanswered > 0 {
            broken.push(format!("{} clients had no answer", self.unanswered));
        }
        let Some(first) = self.answers.first() else {
            broken.push("nobody was told that it is placed".to_owned());
            return broken;
        };
        for answer in &self.answers {
            if answer.body != first.body {
                broken.push(format!("two answers: {} and {}", first.body, answer.body));
            }
            if self.placed_at.is_none_or(|placed_at| placed_at > answer.at) {
                broken.push(format!(
                    "answered at {:?}, before its effect: placed {:?}",
                    answer.at, self.placed_at
                ));
            }
        }
        if self.quantity != first.body["quantity"].as_i64() {
            broken.push(format!(
                "{:?} in the table, {} in the answer",
                self.quantity, first.body
            ));
        }
        if (self.writes, self.event_writes) != (1, 1) {
            broken.push(format!(
                "the order was written {} times, its event {} times",
                self.writes, self.event_writes
            ));
        }
        if self.is_stopped_by_itself {
            broken.push("only the order itself kept it from being placed again".to_owned());
        }
        match self.story {
            Some(story) => {
                if !story.is_completed() {
                    broken.push(format!("no outcome is stored: {:?}", story.end));
                }
                if self.not_committed.contains(&story.end.attempt) {
                    broken.push("it committed, and was told that it had not".to_owned());
                }
                broken.extend(story.broken);
            }
            None => broken.push("it was placed without a record".to_owned()),
        }
        broken
    }
}
