//! JSON pointers (RFC 6901): which fields of a payload don't count. Pure.

/// A pointer to one field, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPointer(Vec<String>);

impl JsonPointer {
    /// `None` for what is no pointer, and for the one to the whole document.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let tokens = text.strip_prefix('/')?.split('/');
        tokens.map(unescape).collect::<Option<_>>().map(Self)
    }

    pub(super) fn tokens(&self) -> &[String] {
        &self.0
    }
}

/// `~1` is a slash, `~0` a tilde, and a tilde before anything else a mistake.
#[cfg(any(feature = "http", test))]
fn unescape(token: &str) -> Option<String> {
    let mut text = String::with_capacity(token.len());
    let mut chars = token.chars();
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

/// What is left of the pointers that go on through this member or element. The name is made only where there are pointers.
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

/// Whether one of them ends here.
pub(super) fn is_target(below: &[&[String]]) -> bool {
    below.iter().any(|rest| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_taken_apart_as_the_rfc_says() {
        let tokens = |text| JsonPointer::parse(text).map(|pointer| pointer.0);
        let some = |tokens: &[&str]| Some(tokens.iter().map(|&token| token.to_owned()).collect());
        assert_eq!(tokens("/a/b"), some(&["a", "b"]));
        assert_eq!(tokens("/a~1b/m~0n/~01"), some(&["a/b", "m~n", "~1"]));
        assert_eq!(tokens("/"), some(&[""]));
        for wrong in ["", "a", "#/a", "/~", "/a~2"] {
            assert_eq!(tokens(wrong), None, "{wrong}");
        }
    }
}
