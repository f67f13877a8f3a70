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
    Bools(Vec<Option<bool>>),
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

impl Value {
    pub(crate) fn is_null(&self) -> bool {
        matches!(
            self.0,
            Content::Text(None)
                | Content::Int(None)
                | Content::Float(None)
                | Content::Bool(None)
                | Content::Bytes(None)
        )
    }

    pub(crate) fn has_nul(&self) -> bool {
        matches!(&self.0, Content::Text(Some(text)) if text.contains('\0'))
    }

    /// Makes an array for values of this one's type.
    fn empty_array(&self) -> Content {
        match self.0 {
            Content::Int(_) => Content::Ints(Vec::new()),
            Content::Bool(_) => Content::Bools(Vec::new()),
            Content::Bytes(_) => Content::Blobs(Vec::new()),
            _ => Content::Texts(Vec::new()),
        }
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

/// Makes an array of each column of these rows, whose columns have one type each.
pub(crate) fn arrays(rows: impl IntoIterator<Item = Vec<Value>>) -> Vec<Value> {
    let mut arrays: Vec<Content> = Vec::new();
    for row in rows {
        if arrays.is_empty() {
            arrays = row.iter().map(Value::empty_array).collect();
        }
        for (array, Value(value)) in arrays.iter_mut().zip(row) {
            match (array, value) {
                (Content::Texts(values), Content::Text(value)) => values.push(value),
                (Content::Ints(values), Content::Int(value)) => values.push(value),
                (Content::Bools(values), Content::Bool(value)) => values.push(value),
                (Content::Blobs(values), Content::Bytes(value)) => values.push(value),
                // A column has one type.
                _ => {}
            }
        }
    }
    arrays.into_iter().map(Value).collect()
}

/// Returns the first value of the first row.
pub(crate) fn first(rows: &[Vec<Cell>]) -> Option<&Cell> {
    rows.first()?.first()
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
