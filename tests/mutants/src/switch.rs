//! What is found in a file: places that can be switched, and what each of them can become.

use std::ops::Range;

/// A place that has one form or another, by the mutant that is on.
pub struct Switch {
    /// In bytes of the source: the expression or the statement; the start of a body; the end of an arm's pattern.
    pub range: Range<usize>,
    pub form: Form,
    pub mutants: Vec<Mutant>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Form {
    /// An expression, which has a value.
    Value,
    /// A function's body, which may return at once.
    Body,
    /// A statement, which may be left out.
    Statement,
    /// A match arm, which may be skipped.
    Arm,
}

pub struct Mutant {
    /// Counted through all files, in their order; the same whatever the compiler refused.
    pub number: u32,
    pub operator: &'static str,
    /// The path of the function, for people and for `equivalent.toml`.
    pub function: String,
    pub line: usize,
    pub column: usize,
    /// The source, and what becomes of it, each with its spaces made one.
    pub from: String,
    pub to: String,
    /// What stands in the copy.
    pub text: String,
}

/// One line, whatever the source's layout.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
