//! The writes that DynamoDB took, and their times: noted on the wire, behind everything that the wire does to a reply.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use serde_json::Value;

use crate::lane::Tables;
use crate::night::Night;

/// The notes for the judge.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// The time by which each owner's claim stood.
    pub claimed_at: HashMap<String, SystemTime>,
    /// The effects of each payment or order: their ids, and the time by which each stood.
    pub effects: HashMap<String, Vec<(String, SystemTime)>>,
    /// Orders whose transaction was held up by the order that stood there, and by nothing else.
    pub stopped_by_the_order: Vec<String>,
}

pub struct Tape {
    night: Arc<Night>,
    tables: Tables,
    notes: Mutex<Notes>,
}

impl Tape {
    pub fn of(night: &Arc<Night>, tables: Tables) -> Self {
        Self {
            night: Arc::clone(night),
            tables,
            notes: Mutex::default(),
        }
    }

    pub fn notes(&self) -> Notes {
        self.notes.lock().expect("not poisoned").clone()
    }

    pub fn note(&self, operation: &str, request: &Value, status: u16, reply: &Value) {
        let applied = status == 200;
        match operation {
            "PutItem" if request["TableName"] == self.tables.effects.as_str() => {
                let item = &request["Item"];
                if applied {
                    self.effect(&item["payment_id"]["S"], &item["entry_id"]["S"]);
                }
            }
            "PutItem" if applied => self.claim(&request["Item"]["owner"]["S"]),
            "UpdateItem" if applied && request["ReturnValues"] == "ALL_NEW" => {
                self.claim(&reply["Attributes"]["owner"]["S"]);
            }
            "UpdateItem" if !applied && request["ReturnValues"] != "ALL_NEW" => {
                self.refused(request, reply);
            }
            "BatchExecuteStatement" if applied => self.statements(request, reply),
            "TransactWriteItems" => {
                let order_id = &request["TransactItems"][1]["Put"]["Item"]["order_id"]["S"];
                if applied {
                    self.effect(order_id, order_id);
                } else {
                    self.cancelled(order_id, request, reply);
                }
            }
            _ => {}
        }
    }

    fn statements(&self, request: &Value, reply: &Value) {
        let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
        let statements = list(&request["Statements"]);
        for (statement, answer) in statements.iter().zip(list(&reply["Responses"])) {
            let is_claim = text(&statement["Statement"]).starts_with("INSERT");
            if answer["Error"].is_null() && is_claim {
                let parameters = list(&statement["Parameters"]);
                // The only value of this shape: 128 bits in hex.
                let owner = parameters.iter().find(|value| is_owner(text(&value["S"])));
                self.claim(&owner.expect("an owner")["S"]);
            } else if answer["Error"]["Code"] == "ConditionalCheckFailed" && !is_claim {
                self.refused(statement, &answer["Error"]);
            }
        }
    }

    fn cancelled(&self, order_id: &Value, request: &Value, reply: &Value) {
        let failed = |reason: &Value| reason["Code"] == "ConditionalCheckFailed";
        let reasons = &reply["CancellationReasons"];
        if failed(&reasons[0]) {
            self.refused(request, &reasons[0]);
        } else if failed(&reasons[1]) || failed(&reasons[2]) {
            let mut notes = self.notes.lock().expect("not poisoned");
            notes.stopped_by_the_order.push(text(order_id).to_owned());
        }
    }

    /// A write under the fence that met something else. A stale owner's is one that had the claim, and met another who has it.
    fn refused(&self, write: &Value, reply: &Value) {
        let notes = self.notes.lock().expect("not poisoned");
        let had_the_claim = |owner: &str| notes.claimed_at.contains_key(owner);
        let stands = text(&reply["Item"]["owner"]["S"]);
        let write = write.to_string();
        let is_stale = write
            .split('"')
            .any(|word| word != stands && had_the_claim(word));
        if had_the_claim(stands) && is_stale {
            self.night.report.count("write of a stale owner fenced");
        }
    }

    fn claim(&self, owner: &Value) {
        let mut notes = self.notes.lock().expect("not poisoned");
        let now = SystemTime::now();
        notes.claimed_at.insert(text(owner).to_owned(), now);
    }

    /// The first time counts: a repeated request says that it stands already.
    fn effect(&self, of: &Value, id: &Value) {
        let mut notes = self.notes.lock().expect("not poisoned");
        let effects = notes.effects.entry(text(of).to_owned()).or_default();
        if effects.iter().all(|(known, _)| known != text(id)) {
            effects.push((text(id).to_owned(), SystemTime::now()));
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_owner(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
