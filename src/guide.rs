//! Pages that are longer than the documentation of one item. They exist in the documentation alone.

#[doc = include_str!("guide/errors.md")]
pub mod errors {}
