//! The same metric for each operation, and for all of a service together: alarms look at the latter.

use std::error::Error;

use serde_json::{Value, json};

/// Adds the set of dimensions without `operation` to each document, one a line.
pub(crate) fn roll_up(documents: &[u8]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let mut lines = Vec::with_capacity(documents.len() + 64);
    for document in documents.split(|byte| *byte == b'\n') {
        if document.is_empty() {
            continue;
        }
        let mut document: Value = serde_json::from_slice(document)?;
        let sets = document.pointer_mut("/_aws/CloudWatchMetrics/0/Dimensions");
        if let Some(sets) = sets.and_then(Value::as_array_mut)
            && let Some(names) = sets.first().and_then(Value::as_array)
            && names.contains(&json!("operation"))
        {
            let fewer = names.iter().filter(|name| *name != "operation").cloned();
            let fewer = Value::Array(fewer.collect());
            sets.push(fewer);
        }
        serde_json::to_writer(&mut lines, &document)?;
        lines.push(b'\n');
    }
    Ok(lines)
}
