//! Says in words what a request asks of DynamoDB, and what the answer is. Pure.
//!
//! Here are the words for values and attributes, which requests and answers share. What differs from run to run gets a name of its own:
//! the first owner is "owner 1", the second payload "payload 2"; times count from the beginning of the run.

use lambda_idempotency::EpochMillis;
use serde_json::{Map, Value};

mod expressions;
mod replies;
mod requests;
mod statements;

const DAY: i64 = 86_400;

pub(super) struct Words {
    began: i64,
    shown: &'static [&'static str],
    owners: Vec<String>,
    payloads: Vec<String>,
}

/// The name of a hexadecimal text, by the order in which such texts came.
fn named(known: &mut Vec<String>, text: &str, kind: &str) -> String {
    let place = known.iter().position(|own| own == text).unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    });
    format!("{kind}\u{a0}{}", place + 1)
}

impl Words {
    pub(super) fn new(began: EpochMillis, shown: &'static [&'static str]) -> Self {
        Self {
            began: began.0,
            shown,
            owners: Vec::new(),
            payloads: Vec::new(),
        }
    }

    /// A time in milliseconds, counted from the beginning.
    pub(super) fn time(&self, millis: i64) -> String {
        let seconds = (millis - self.began) / 1_000;
        match seconds / DAY {
            0 => format!("{}:{:02}", seconds / 60, seconds % 60),
            days => format!("day\u{a0}{days}"),
        }
    }

    /// The attributes that are shown, in the order in which they are.
    fn attributes(&mut self, item: &Map<String, Value>) -> String {
        let shown = self
            .shown
            .iter()
            .filter_map(|name| Some((*name, item.get(*name)?)));
        let said: Vec<_> = shown
            .map(|(name, value)| self.assignment(name, value))
            .collect();
        said.join(", ")
    }

    fn assignment(&mut self, name: &str, value: &Value) -> String {
        match name {
            "in_progress_expiration" => format!("lease\u{a0}until\u{a0}{}", self.value(value)),
            _ => format!("{name}\u{a0}=\u{a0}{}", self.value(value)),
        }
    }

    fn value(&mut self, value: &Value) -> String {
        let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
        match (kind.as_str(), value) {
            ("M", Value::Object(entry)) => {
                let state = self.value(&entry["state"]);
                let result = entry
                    .get("result")
                    .map(|result| format!(", result {}", self.value(result)));
                format!("{state}{}", result.unwrap_or_default())
            }
            ("N", Value::String(number)) => match number.parse::<i64>() {
                Ok(millis) if millis > 1_000_000_000_000 => self.time(millis),
                Ok(seconds) if seconds > 1_000_000_000 => self.time(seconds * 1_000),
                _ => number.clone(),
            },
            ("S", Value::String(text)) => {
                let is_hex = text.chars().all(|c| c.is_ascii_hexdigit());
                match text.len() {
                    32 if is_hex => named(&mut self.owners, text, "owner"),
                    64 if is_hex => named(&mut self.payloads, text, "payload"),
                    _ => text.trim_matches('"').to_owned(),
                }
            }
            _ => value.to_string(),
        }
    }
}
