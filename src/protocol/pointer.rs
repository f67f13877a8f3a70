//! A JSON pointer (RFC 6901) names one value of a text. The functions are pure.

use std::fmt;
use std::str::FromStr;

use crate::setup::BuildError;

#[cfg(test)]
mod tests;

#[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
mod part;

/// A JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)): names one value of a JSON
/// text, such as `/order/id` or `/items/0/id`. The empty pointer names the whole text.
///
/// ```
/// use lambda_idempotency::Pointer;
///
/// let order_id: Pointer = "/order/id".parse()?;
/// let error = "order.id".parse::<Pointer>().unwrap_err();
/// assert!(error.to_string().contains("it starts with `/`"));
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pointer(Vec<String>);

impl FromStr for Pointer {
    type Err = BuildError;

    fn from_str(text: &str) -> Result<Self, BuildError> {
        let names = match text.strip_prefix('/') {
            Some(names) => names.split('/').map(unescape).collect(),
            None => text.is_empty().then(Vec::new),
        };
        names
            .map(Self)
            .ok_or_else(|| BuildError::Pointer(text.to_owned()))
    }
}

impl Pointer {
    /// Returns the names on the way from the root, unescaped.
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns the part of a JSON text that it names, unchanged: a number keeps its digits.
    #[cfg(any(feature = "batch", feature = "http", feature = "invoke"))]
    #[doc(hidden)]
    pub fn find<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut names = self.0.iter();
        names.try_fold(text, |json, name| part::named(name, json))
    }
}

/// Writes the pointer as RFC 6901 has it.
impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|name| write!(f, "/{}", name.replace('~', "~0").replace('/', "~1")))
    }
}

/// Reads `~1` as a slash and `~0` as a tilde; a tilde before anything else is a mistake.
fn unescape(name: &str) -> Option<String> {
    let mut text = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '~' => match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(text)
}

/// Returns the rest of each pointer that leads through this member or element. The name is made
/// only where there are pointers.
pub(super) fn below<'a>(
    pointers: &[&'a [String]],
    name: impl FnOnce() -> String,
) -> Vec<&'a [String]> {
    if pointers.is_empty() {
        return Vec::new();
    }
    let name = name();
    let through = |pointer: &&'a [String]| match pointer.split_first() {
        Some((first, rest)) if *first == name => Some(rest),
        _ => None,
    };
    pointers.iter().filter_map(through).collect()
}

/// Returns whether one of them ends here.
pub(super) fn is_target(below: &[&[String]]) -> bool {
    below.iter().any(|rest| rest.is_empty())
}
