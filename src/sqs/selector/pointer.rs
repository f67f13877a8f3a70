//! JSON pointers over the text itself, so that a number keeps the digits that it was sent with. Pure.

use std::collections::HashMap;
use std::fmt;

use serde_json::value::RawValue;

use super::SelectorError;

/// The names on the way from the body's root, unescaped.
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    pub(super) fn parse(pointer: &str) -> Result<Self, SelectorError> {
        let refused = || SelectorError::Pointer {
            pointer: pointer.to_owned(),
        };
        if pointer.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let names = pointer.strip_prefix('/').ok_or_else(refused)?.split('/');
        let names = names.map(|name| unescape(name).ok_or_else(refused));
        Ok(Self(names.collect::<Result<_, _>>()?))
    }

    /// The JSON text of what it points at.
    pub(super) fn find<'a>(&self, text: &'a str) -> Option<&'a str> {
        self.0.iter().try_fold(text, |json, name| {
            match json.trim_start().bytes().next()? {
                b'{' => {
                    let members: HashMap<String, &RawValue> = serde_json::from_str(json).ok()?;
                    members.get(name).map(|value| value.get())
                }
                b'[' => {
                    let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
                    items.get(index(name)?).map(|value| value.get())
                }
                _ => None,
            }
        })
    }
}

fn unescape(name: &str) -> Option<String> {
    let mut rest = name.split('~');
    let mut plain = rest.next()?.to_owned();
    for part in rest {
        let (escaped, after) = match part.split_at_checked(1)? {
            ("0", after) => ('~', after),
            ("1", after) => ('/', after),
            _ => return None,
        };
        plain.push(escaped);
        plain.push_str(after);
    }
    Some(plain)
}

/// RFC 6901, 4: digits without a leading zero.
fn index(name: &str) -> Option<usize> {
    let plain = name == "0" || !name.starts_with(['0', '+']);
    plain.then(|| name.parse().ok()).flatten()
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(pointer: &str, text: &'a str) -> Option<&'a str> {
        Pointer::parse(pointer).unwrap().find(text)
    }

    #[test]
    fn the_examples_of_the_rfc_hold() {
        let text = r#"{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8}"#;
        for (pointer, found) in [
            ("", text),
            ("/foo", r#"["bar", "baz"]"#),
            ("/foo/0", r#""bar""#),
            ("/", "0"),
            ("/a~1b", "1"),
            ("/c%d", "2"),
            ("/e^f", "3"),
            ("/g|h", "4"),
            ("/i\\j", "5"),
            ("/k\"l", "6"),
            ("/ ", "7"),
            ("/m~0n", "8"),
        ] {
            assert_eq!(find(pointer, text), Some(found), "{pointer}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let text = r#"{"a": [1], "b": "text", "c": null}"#;
        for pointer in [
            "/x", "/a/1", "/a/-", "/a/00", "/a/+0", "/a/x", "/b/0", "/c/d", "/A",
        ] {
            assert_eq!(find(pointer, text), None, "{pointer}");
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        for pointer in ["a", "a/b", "$.a", "/a~", "/a~2", "/~"] {
            let error = Pointer::parse(pointer).unwrap_err();
            assert!(error.to_string().contains("no JSON pointer"), "{error}");
        }
    }
}
