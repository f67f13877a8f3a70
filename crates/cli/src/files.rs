//! Files that a command reads, and those that say how far it has come.

use std::io;
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
        .map_err(|error| Failure::file(path, error))
}

/// Reads a file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::file(path, error))
}

/// Reads a file's text. Invalid UTF-8 is an error.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(bytes(path)?)
        .map_err(|error| Failure::file(path, io::Error::other(error.utf8_error())))
}
