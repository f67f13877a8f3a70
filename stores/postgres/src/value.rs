//! The values that go into a statement, and those that come out of one.

use std::fmt;

/// A value for a parameter of a statement: [`Sql::bind`](crate::Sql::bind) makes one of any type below.
///
/// | in Rust | in PostgreSQL |
/// |---|---|
/// | `&str`, `String` | `text` |
/// | `i16`, `i32`, `u32`, `i64` | `bigint` |
/// | `f64` | `double precision` |
/// | `bool` | `boolean` |
/// | `&[u8]`, `Vec<u8>` | `bytea` |
/// | `Option` of these | `NULL` where it is `None` |
///
/// Another type is a cast of one of these, in the statement: `$1::uuid`, `$2::numeric`, `$3::jsonb`.
#[derive(Clone, PartialEq)]
pub struct Value(pub(crate) Content);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Text(Option<String>),
    Int(Option<i64>),
    Float(Option<f64>),
    Bool(Option<bool>),
    Bytes(Option<Vec<u8>>),
    Texts(Vec<Option<String>>),
    Ints(Vec<Option<i64>>),
    Bools(Vec<bool>),
    Blobs(Vec<Option<Vec<u8>>>),
}

/// Shows the type alone: a value may hold anything.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Content::Text(_) => "text",
            Content::Int(_) => "bigint",
            Content::Float(_) => "double precision",
            Content::Bool(_) => "boolean",
            Content::Bytes(_) => "bytea",
            Content::Texts(_) => "text[]",
            Content::Ints(_) => "bigint[]",
            Content::Bools(_) => "boolean[]",
            Content::Blobs(_) => "bytea[]",
        })
    }
}

macro_rules! value_from {
    ($($variant:ident: $($source:ty),+;)+) => {$($(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Self(Content::$variant(Some(value.into())))
            }
        }

        impl From<Option<$source>> for Value {
            fn from(value: Option<$source>) -> Self {
                Self(Content::$variant(value.map(Into::into)))
            }
        }
    )+)+};
}

value_from! {
    Text: String, &str;
    Int: i16, i32, u32, i64;
    Float: f64;
    Bool: bool;
    Bytes: Vec<u8>, &[u8];
}

/// One value of a row that a statement of this crate's own gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Null,
    Text(String),
    Int(i64),
    Bool(bool),
    Bytes(Vec<u8>),
}
