//! The JSON schema of each command's output.

use schemars::{Schema, SchemaGenerator};

use crate::audit;
use crate::doctor;
use crate::plan;
use crate::records::{Explanation, RecordView, Report, list};

type Make = fn(&mut SchemaGenerator) -> Schema;

/// The commands that print JSON, with what they print. `list` prints one such document on each line.
pub(crate) const COMMANDS: [(&str, Make); 11] = [
    ("get", SchemaGenerator::root_schema_for::<RecordView>),
    ("explain", SchemaGenerator::root_schema_for::<Explanation>),
    ("list", SchemaGenerator::root_schema_for::<list::Entry>),
    ("release", SchemaGenerator::root_schema_for::<Report>),
    ("complete", SchemaGenerator::root_schema_for::<Report>),
    ("fail", SchemaGenerator::root_schema_for::<Report>),
    ("settle-step", SchemaGenerator::root_schema_for::<Report>),
    ("redact", SchemaGenerator::root_schema_for::<Report>),
    ("doctor", SchemaGenerator::root_schema_for::<doctor::Report>),
    ("audit", SchemaGenerator::root_schema_for::<audit::Report>),
    ("plan", SchemaGenerator::root_schema_for::<plan::Report>),
];

/// The schema of what this command prints with `--json`; `None` for one that prints none.
pub fn of(command: &str) -> Option<Schema> {
    let (_, schema) = COMMANDS.iter().find(|(name, _)| *name == command)?;
    Some(schema(&mut SchemaGenerator::default()))
}

/// The commands that print JSON.
pub fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| *name)
}
