//! The codes of all errors, by the library's own lists.

use std::collections::BTreeSet;

/// All of `Error::code` and `KeyError::code`, read from where they say them.
pub fn all() -> BTreeSet<&'static str> {
    let sources = [
        include_str!("../../../src/engine/error.rs"),
        include_str!("../../../src/protocol/key/error.rs"),
    ];
    let bodies = sources.into_iter().filter_map(|source| {
        let (_, rest) = source.split_once("code(&self)")?;
        rest.split("\n    }\n").next()
    });
    bodies
        .flat_map(|body| body.split('"').skip(1).step_by(2))
        .collect()
}
