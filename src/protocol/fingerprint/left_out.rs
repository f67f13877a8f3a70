//! Follows the pointers to fields that don't count, while a payload is read. The functions are
//! pure.

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

/// Tells whether one of them ends here.
pub(super) fn is_target(below: &[&[String]]) -> bool {
    below.iter().any(|rest| rest.is_empty())
}
