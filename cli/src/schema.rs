//! The JSON schema of each command's output.

use schemars::{Schema, schema_for};

use crate::records;

/// The commands that print JSON, with the schema of what they print. `list` prints one such document
/// on each line.
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("get", schema_for!(records::RecordView)),
        ("explain", schema_for!(records::Explanation)),
        ("list", schema_for!(records::list::Entry)),
        ("order", schema_for!(records::Report)),
    ]
}
