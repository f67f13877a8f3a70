//! The journal in an item: each step is an attribute of its own, so that a note writes one step and can't touch another.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{number, string};
use super::layout::Item;
use crate::clock::EpochMillis;
use crate::journal::{Journal, StepEntry, StepNote, StepResult, StepState};
use crate::record::Omission;

/// What the names of steps' attributes begin with. No other attribute's does.
const PREFIX: &str = "step:";

/// The member of an entry that a store compares.
pub(super) const REVISION: &str = "revision";

const STATE: &str = "state";
const TRIES: &str = "tries";
const AT: &str = "at";
const RESULT: &str = "result";
const OMITTED: &str = "omitted";
const LAST_ERROR: &str = "last_error";

const PENDING: &str = "PENDING";
const CONFIRMED: &str = "CONFIRMED";
const FAILED: &str = "FAILED";

/// The attribute that holds a step's entry.
pub(super) fn attribute(step: &str) -> String {
    format!("{PREFIX}{step}")
}

pub(super) fn encode(entry: &StepEntry) -> AttributeValue {
    let state = match entry.state {
        StepState::Pending => PENDING,
        StepState::Confirmed(_) => CONFIRMED,
        StepState::Failed => FAILED,
    };
    let mut members = HashMap::from([
        (STATE.to_owned(), string(state)),
        (REVISION.to_owned(), number(entry.revision)),
        (TRIES.to_owned(), number(entry.tries)),
        (AT.to_owned(), number(entry.at.0)),
    ]);
    let result = match &entry.state {
        StepState::Confirmed(StepResult::Text(text)) => Some((RESULT, text.as_str())),
        StepState::Confirmed(StepResult::Omitted(reason)) => Some((OMITTED, reason.as_str())),
        StepState::Pending | StepState::Failed => None,
    };
    let error = entry.last_error.as_deref().map(|kind| (LAST_ERROR, kind));
    for (name, text) in result.into_iter().chain(error) {
        members.insert(name.to_owned(), string(text));
    }
    AttributeValue::M(members)
}

/// The steps of an item. Strict: a step that can't be understood might be one that must not fire again.
pub(super) fn decode(item: &Item) -> Result<Journal, String> {
    let mut journal = Journal::default();
    for (attribute, value) in item {
        let Some(name) = attribute.strip_prefix(PREFIX) else {
            continue;
        };
        let entry = match value {
            AttributeValue::M(members) => Entry { members }.read(),
            _ => Err("it is not a map".to_owned()),
        };
        let entry = entry.map_err(|reason| format!("`{attribute}`: {reason}"))?;
        journal.put(StepNote {
            name: name.to_owned(),
            entry,
        });
    }
    Ok(journal)
}

struct Entry<'a> {
    members: &'a HashMap<String, AttributeValue>,
}

impl Entry<'_> {
    fn read(&self) -> Result<StepEntry, String> {
        let state = match self.text(STATE)?.ok_or_else(|| missing(STATE))? {
            PENDING => StepState::Pending,
            FAILED => StepState::Failed,
            CONFIRMED => StepState::Confirmed(self.result()?),
            other => return Err(format!("unknown state {other:?}")),
        };
        let count = |name: &str| {
            u32::try_from(self.number(name)?).map_err(|_| format!("`{name}` is no count"))
        };
        Ok(StepEntry {
            state,
            revision: count(REVISION)?,
            tries: count(TRIES)?,
            last_error: self.text(LAST_ERROR)?.map(str::to_owned),
            at: EpochMillis(self.number(AT)?),
        })
    }

    fn result(&self) -> Result<StepResult, String> {
        if let Some(text) = self.text(RESULT)? {
            return Ok(StepResult::Text(text.to_owned()));
        }
        let reason = self.text(OMITTED)?.ok_or_else(|| missing(RESULT))?;
        let reason = Omission::parse(reason);
        reason
            .map(StepResult::Omitted)
            .ok_or_else(|| format!("unknown reason in `{OMITTED}`"))
    }

    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.members.get(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` is not a string")),
        }
    }

    fn number(&self, name: &str) -> Result<i64, String> {
        match self.members.get(name) {
            None => Err(missing(name)),
            Some(AttributeValue::N(digits)) => digits
                .parse()
                .map_err(|_| format!("`{name}` is not a whole number")),
            Some(_) => Err(format!("`{name}` is not a number")),
        }
    }
}

fn missing(name: &str) -> String {
    format!("`{name}` is missing")
}
