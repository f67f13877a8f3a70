//! The JSON schema of what the commands print.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::audit;
use crate::doctor;
use crate::plan;
use crate::records::{Explanation, RecordView, Report, Rerun, list};

type Make = fn(&mut SchemaGenerator) -> Schema;

/// The commands that print JSON, with what they print. `list`, and `rerun` of a list,
/// print one such document on each line.
pub(crate) const COMMANDS: [(&str, Make); 12] = [
    ("get", SchemaGenerator::subschema_for::<RecordView>),
    ("explain", SchemaGenerator::subschema_for::<Explanation>),
    ("list", SchemaGenerator::subschema_for::<list::Entry>),
    ("release", SchemaGenerator::subschema_for::<Report>),
    ("complete", SchemaGenerator::subschema_for::<Report>),
    ("fail", SchemaGenerator::subschema_for::<Report>),
    ("settle-step", SchemaGenerator::subschema_for::<Report>),
    ("redact", SchemaGenerator::subschema_for::<Report>),
    ("rerun", |generator| {
        let one = generator.subschema_for::<Report>();
        let of_a_list = generator.subschema_for::<Rerun>();
        json_schema!({"anyOf": [one, of_a_list]})
    }),
    ("doctor", SchemaGenerator::subschema_for::<doctor::Report>),
    ("audit", SchemaGenerator::subschema_for::<audit::Report>),
    ("plan", SchemaGenerator::subschema_for::<plan::Report>),
];

/// Returns the schema of what any command prints with `--json`.
pub fn of_all() -> Schema {
    document(|generator| {
        let printed = COMMANDS.iter().map(|(command, make)| {
            let mut schema = make(generator);
            schema.insert("title".to_owned(), json!(command));
            schema
        });
        json_schema!({"anyOf": printed.collect::<Vec<_>>()})
    })
}

/// Returns the schema of what this command prints with `--json`; `None` for one that prints none.
pub fn of(command: &str) -> Option<Schema> {
    let (_, make) = COMMANDS.iter().find(|(name, _)| *name == command)?;
    Some(document(make))
}

/// A schema with the definitions that it needs.
fn document(make: impl FnOnce(&mut SchemaGenerator) -> Schema) -> Schema {
    let mut generator = SchemaGenerator::default();
    let mut schema = make(&mut generator);
    let definitions = generator.take_definitions(true);
    schema.insert("$defs".to_owned(), Value::Object(definitions));
    if let Some(dialect) = &generator.settings().meta_schema {
        schema.insert("$schema".to_owned(), json!(dialect));
    }
    schema
}
