//! Defects made on purpose, on the wire.

use serde_json::Value;

use crate::lane::Tables;
use crate::payments::Form;
use crate::support::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    None,
    /// Every eighth transaction is answered as if it had committed, and isn't forwarded.
    ForgedOrders,
    /// Every eighth entry of the ledger is answered as if it had been written, and isn't forwarded.
    ForgedEntries,
    /// A claim is taken whatever stands there.
    OpenClaims,
    /// The transaction commits whoever holds the claim.
    NoFence,
    /// The functions run their handlers unprotected.
    SwitchedOff,
}

impl Defect {
    /// Returns the form of the worker that shows it; `None` where the orders do.
    pub fn at_the_worker(self) -> Option<Form> {
        match self {
            Self::ForgedEntries => Some(Form::Keyed),
            Self::SwitchedOff => Some(Form::Unkeyed),
            _ => None,
        }
    }

    pub fn switches_off(self) -> bool {
        self == Self::SwitchedOff
    }

    /// Returns the fault by which the defect meets this request; `number` counts the requests.
    pub fn fault(
        self,
        tables: &Tables,
        operation: &str,
        request: &Value,
        number: u64,
    ) -> Option<Fault> {
        let forges = match self {
            Self::None | Self::SwitchedOff => return None,
            // Groups are refused, since only single requests are tampered with.
            _ if operation == "BatchExecuteStatement" => return Some(Fault::DENY),
            Self::ForgedOrders => operation == "TransactWriteItems",
            Self::ForgedEntries => {
                operation == "PutItem" && request["TableName"] == tables.effects.as_str()
            }
            Self::OpenClaims | Self::NoFence => false,
        };
        (forges && number.is_multiple_of(8)).then_some(Fault::Reply("{}"))
    }

    pub fn rewrite(self, tables: &Tables, operation: &str, mut request: Value) -> Value {
        match (self, operation) {
            (Self::OpenClaims, "PutItem") if request["TableName"] == tables.records.as_str() => {
                always_hold(&mut request);
            }
            (Self::NoFence, "TransactWriteItems") => {
                let actions = request["TransactItems"]
                    .as_array_mut()
                    .into_iter()
                    .flatten();
                for action in actions {
                    for kind in ["Put", "Update"] {
                        if action[kind].is_object() {
                            always_hold(&mut action[kind]);
                        }
                    }
                }
            }
            _ => {}
        }
        request
    }
}

/// The condition still names everything that it is sent with, and holds in any case.
fn always_hold(write: &mut Value) {
    if let Some(condition) = write["ConditionExpression"].as_str() {
        write["ConditionExpression"] = format!("({condition}) OR (NOT ({condition}))").into();
    }
}
