//! The codes of all errors, by the library's own lists.

use std::collections::BTreeSet;

/// All of `Error::code` and `KeyError::code`, read from where they say them.
pub fn all() -> BTreeSet<&'static str> {
    let sources = [
        include_str!("../../../src/engine/error.rs"),
        include_str!("../../../src/protocol/key/error.rs"),
    ];
    let bodies = sources.into_iter().filter_map(|source| {
        let (_, rest) = source.split_once("pub fn code(")?;
        rest.split("\n    }\n").next()
    });
    let lines = bodies.flat_map(str::lines);
    let arms = lines.filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \""));
    arms.filter_map(|(_, code)| code.strip_suffix("\","))
        .collect()
}
