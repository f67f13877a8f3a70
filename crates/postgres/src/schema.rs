//! The tables: the statements that make them, and the check that they are there.

use crate::table::{TableName, TableNameError};

/// The version of the tables that this release reads and writes.
pub const VERSION: i64 = 1;

const STATEMENTS: &str = include_str!("../schema/1.sql");

/// Returns the statements that make the tables under this name, for a tool that applies migrations.
/// They may run again.
///
/// ```
/// let statements = lambda_idempotency_postgres::schema::statements("app.idempotency")?;
/// assert!(statements.contains("CREATE TABLE IF NOT EXISTS app.idempotency ("));
/// # Ok::<(), lambda_idempotency_postgres::TableNameError>(())
/// ```
///
/// # Errors
///
/// When a statement would not take the name without quotes.
pub fn statements(table: &str) -> Result<String, TableNameError> {
    Ok(of(&TableName::parse(table)?))
}

pub(crate) fn of(table: &TableName) -> String {
    table.fill(STATEMENTS) + &version(table)
}

/// The statement that adds the version, where the tables have none.
pub(crate) fn version(table: &TableName) -> String {
    table.fill(&format!(
        "\nINSERT INTO {{table}}_schema (version) SELECT {VERSION} \
         WHERE NOT EXISTS (SELECT FROM {{table}}_schema) ON CONFLICT DO NOTHING;\n"
    ))
}
