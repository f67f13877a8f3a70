//! Encodes and decodes the journal. Each step is an attribute of its own, so that a note writes one
//! step and can't touch another.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::layout::{Item, STEP_PREFIX};
use super::members::{Members, missing, unknown};
use super::value::{number, string};
use crate::protocol::clock::EpochMillis;
use crate::protocol::journal::{Journal, StepEntry, StepNote, StepResult, StepState};
use crate::protocol::record::Omission;

/// Names the member of an entry that a store compares.
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

/// Names the attribute that holds a step's entry.
pub(super) fn attribute(step: &str) -> String {
    format!("{STEP_PREFIX}{step}")
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

/// Decodes the steps of an item, strictly: a step that can't be understood might be one that must
/// not run again.
pub(super) fn decode(item: &Item) -> Result<Journal, String> {
    let mut journal = Journal::default();
    for (attribute, value) in item {
        let Some(name) = attribute.strip_prefix(STEP_PREFIX) else {
            continue;
        };
        let entry = Members::of(value).and_then(read);
        let entry = entry.map_err(|reason| format!("`{attribute}`: {reason}"))?;
        journal.put(StepNote {
            name: name.to_owned(),
            entry,
        });
    }
    Ok(journal)
}

fn read(members: Members<'_>) -> Result<StepEntry, String> {
    let state = match members.required_text(STATE)? {
        PENDING => StepState::Pending,
        FAILED => StepState::Failed,
        CONFIRMED => StepState::Confirmed(result(members)?),
        _ => return Err(unknown(STATE)),
    };
    Ok(StepEntry {
        state,
        revision: members.count(REVISION)?,
        tries: members.count(TRIES)?,
        last_error: members.text(LAST_ERROR)?.map(str::to_owned),
        at: EpochMillis(members.number(AT)?),
    })
}

fn result(members: Members<'_>) -> Result<StepResult, String> {
    if let Some(text) = members.text(RESULT)? {
        return Ok(StepResult::Text(text.to_owned()));
    }
    let reason = members.text(OMITTED)?.ok_or_else(|| missing(RESULT))?;
    let reason = Omission::parse(reason).map(StepResult::Omitted);
    reason.ok_or_else(|| unknown(OMITTED))
}
