//! The name of the table, as it may stand in a statement.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::driver::Session;
use crate::error::PostgresError;
use crate::store::find;

/// The name isn't one that a statement takes without quotes.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no name for the table: use lower-case letters, digits and `_`, at most 47 characters, no reserved word, with a schema before it if need be (`app.idempotency`)"
)]
pub struct TableNameError(String);

/// Rust prints the `Debug` of what `main` returns.
impl fmt::Debug for TableNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The longest name: what is made of it has 16 characters more, and PostgreSQL cuts names at 63.
const LONGEST: usize = 47;

/// The words that PostgreSQL 15 to 18 refuse as a table's or a schema's name without quotes:
/// `SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T')`. Behind a schema's, they are names.
const RESERVED: &str = "\
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation column concurrently \
    constraint create cross current_catalog current_date current_role current_schema current_time current_timestamp current_user default \
    deferrable desc distinct do else end except false fetch for foreign freeze from full grant group having ilike in initially inner intersect \
    into is isnull join lateral leading left like limit localtime localtimestamp natural not notnull null offset on only or order outer \
    overlaps placing primary references returning right select session_user similar some symmetric system_user table tablesample then to \
    trailing true union unique user using variadic verbose when where window with";

/// A table's name, perhaps with a schema's before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TableName {
    whole: String,
    table: String,
}

impl TableName {
    pub(crate) fn parse(name: &str) -> Result<Self, TableNameError> {
        let (first, table) = name.split_once('.').unwrap_or((name, name));
        let is_reserved = RESERVED.split(' ').any(|word| word == first);
        if is_reserved || !is_name(first) || !is_name(table) {
            return Err(TableNameError(name.to_owned()));
        }
        Ok(Self {
            whole: name.to_owned(),
            table: table.to_owned(),
        })
    }

    /// Its schema, where it was given one, and its name.
    pub(crate) fn parts(&self) -> (Option<&str>, &str) {
        let schema = self.whole.strip_suffix(&self.table);
        let schema = schema.and_then(|schema| schema.strip_suffix('.'));
        (schema, &self.table)
    }

    /// The same table in this schema, whose name is quoted where it must be.
    pub(crate) fn within(&self, schema: &str) -> Self {
        Self {
            whole: format!("{schema}.{}", self.table),
            table: self.table.clone(),
        }
    }

    /// Fills the name into a text that has `{table}` for it, and `{name}` for it without its schema.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("{table}", &self.whole)
            .replace("{name}", &self.table)
    }
}

/// The tables whose schemas were found, by the names that they were given: of one store, since another
/// one may find others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables(Arc<Mutex<HashMap<TableName, TableName>>>);

impl Tables {
    /// Fills a table's name and its schema into a text, within a transaction.
    pub(crate) async fn fill<S: Session>(
        &self,
        session: &mut S,
        name: &TableName,
        text: &str,
    ) -> Result<String, PostgresError> {
        if let Some(found) = self.found().get(name) {
            return Ok(found.fill(text));
        }
        // Of one that isn't there, the server says so.
        let Some(found) = find(session, name).await? else {
            return Ok(name.fill(text));
        };
        let text = found.fill(text);
        self.found().insert(name.clone(), found);
        Ok(text)
    }

    /// Locks the names. A panic elsewhere can't leave them half-written: each is put in one step.
    fn found(&self) -> MutexGuard<'_, HashMap<TableName, TableName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for TableName {
    fn default() -> Self {
        Self {
            whole: crate::store::DEFAULT_TABLE.to_owned(),
            table: crate::store::DEFAULT_TABLE.to_owned(),
        }
    }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_lowercase() || first == '_')
        && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && name.len() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_schema_and_nothing_that_needs_quotes() {
        for name in [
            "idempotency",
            "_x1",
            "app.idempotency",
            "app.order",
            "orders",
            &"a".repeat(47),
        ] {
            assert!(TableName::parse(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "a.b.c",
            ".a",
            "a.",
            "1a",
            "A",
            "a-b",
            "a b",
            "a\"",
            "a;b",
            "ä",
            "all",
            "order",
            "user.idempotency",
            "with",
            &"a".repeat(48),
        ] {
            let error = TableName::parse(name).unwrap_err();
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }

    #[test]
    fn what_is_made_of_it_has_the_schema_where_it_may() {
        let name = TableName::parse("app.keys").unwrap();
        assert_eq!(
            name.fill("{name}_expiration on {table}"),
            "keys_expiration on app.keys"
        );
    }
}
