//! Files that say how far a command has come.

use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;

/// Writes a file anew, beside it first, so that an end in between leaves the old one. Nothing without
/// a file.
pub(crate) fn save(file: Option<&Path>, content: &impl Serialize) -> Result<(), Failure> {
    let Some(path) = file else { return Ok(()) };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let text = serde_json::to_vec(content).unwrap_or_default();
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|error| Failure::File {
            path: path.display().to_string(),
            error,
        })
}
