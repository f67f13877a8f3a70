//! Describes why a JSON text doesn't decode, without quoting it. Pure.

/// Gives the place of the error, and its kind or the field that is missing. The parser's own
/// message is not fit for logs, because it quotes the text.
pub(crate) fn unquoted(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let what = match missing_field(&message) {
        Some(name) => format!("missing field `{name}`"),
        None => format!("{:?} error", error.classify()),
    };
    let (line, column) = (error.line(), error.column());
    format!("{what} at line {line}, column {column}")
}

/// Finds the field that a text lacks. Its name is one of the decoded type, not of the text; a name
/// that no Rust field has may be a part of the text in a message of the caller's own code.
fn missing_field(message: &str) -> Option<&str> {
    let (name, place) = message.strip_prefix("missing field `")?.split_once('`')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (place.starts_with(" at line ") && name.chars().all(is_name)).then_some(name)
}
