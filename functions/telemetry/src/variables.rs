//! The variables that set a function up. An empty one counts as not set.

use std::env;
use std::str::FromStr;

/// Returns the text of a variable.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the text of a variable that has no default.
///
/// # Errors
///
/// When it is not set. The error says `what` to set it to.
pub fn needed(name: &str, what: &str) -> Result<String, String> {
    variable(name).ok_or_else(|| format!("set {name} to {what}"))
}

/// Returns the number in a variable.
///
/// # Errors
///
/// When it is set to something else.
pub fn number<N: FromStr>(name: &str) -> Result<Option<N>, String> {
    parsed(name, "a whole number")
}

/// Returns what a variable switches on or off.
///
/// # Errors
///
/// When it is set to something else than `true` or `false`.
pub fn flag(name: &str) -> Result<Option<bool>, String> {
    parsed(name, "true or false")
}

fn parsed<T: FromStr>(name: &str, what: &str) -> Result<Option<T>, String> {
    let parse = |text: String| text.parse().map_err(|_| format!("{name} must be {what}"));
    variable(name).map(parse).transpose()
}
