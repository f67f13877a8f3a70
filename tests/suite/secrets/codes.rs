//! Which errors there are, by the library's own list.

use std::collections::BTreeSet;

/// All of `Error::code`, read from where it says them.
pub fn all() -> BTreeSet<&'static str> {
    let source = include_str!("../../../src/engine/error.rs");
    let arms = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \""));
    arms.filter_map(|(_, code)| code.strip_suffix("\","))
        .collect()
}
