//! The statements, for one table: nothing else in this crate is SQL, but the schema and what a caller
//! hands over.

use crate::columns::COLUMNS;
use crate::schema;
use crate::table::TableName;

mod conditional;

use conditional::Conditional;

/// The status of a row that takes a record's place while its handler works.
pub(crate) const OPEN: &str = "OPEN";

/// Seconds since 1970: the end of the year 9999.
const NEVER: i64 = 253_402_300_799;

/// The time at which a transaction began tells it from the next one of the same connection.
const THIS_TRANSACTION: &str = "(extract(epoch FROM transaction_timestamp()) * 1000000)::bigint";

#[derive(Debug)]
pub(crate) struct Statements {
    /// Writes whole records where none is.
    pub(crate) insert: String,
    pub(crate) take_over: String,
    pub(crate) renew: String,
    pub(crate) amend: String,
    pub(crate) complete: String,
    pub(crate) release: String,
    pub(crate) load: String,
    /// Reads one record, and keeps it from changing until the transaction ends.
    pub(crate) lock: String,
    /// Takes the place of a record, within the transaction that goes on to write it.
    pub(crate) occupy: String,
    /// Writes a whole record into the place that was taken.
    pub(crate) settle: String,
    pub(crate) keep: String,
    pub(crate) fetch: String,
    pub(crate) sweep: String,
    pub(crate) sweep_outcomes: String,
    pub(crate) version: String,
    pub(crate) create_tables: String,
}

impl Statements {
    pub(crate) fn of(table: &TableName) -> Self {
        let write = Conditional::on(table);
        let names = || COLUMNS.iter().map(|(name, _)| *name);
        let all = names().collect::<Vec<_>>().join(", ");
        Self {
            insert: write.insert(),
            take_over: write.take_over(),
            renew: write.renew(),
            amend: write.amend(),
            complete: write.complete(),
            release: write.release(),
            load: table.fill(&format!(
                "SELECT {met} FROM unnest($1::text[]) WITH ORDINALITY AS w(id, n) \
                 LEFT JOIN {{table}} met ON met.id = w.id ORDER BY w.n",
                met = of("met", names()),
            )),
            lock: table.fill(&format!(
                "SELECT {all} FROM {{table}} WHERE id = $1 FOR UPDATE"
            )),
            // Another transaction sees this row only where the handler has committed it: it doesn't
            // expire, so that the handler doesn't run again.
            occupy: table.fill(&format!(
                "INSERT INTO {{table}} (id, status, expiration, owner, lease, attempt, journal) \
                 VALUES ($1, '{OPEN}', {NEVER}, $2, {THIS_TRANSACTION}, 0, '{{}}') \
                 ON CONFLICT (id) DO NOTHING RETURNING true",
            )),
            settle: table.fill(&format!(
                "UPDATE {{table}} t SET {set} FROM ({want}) w \
                 WHERE t.id = w.id AND t.status = '{OPEN}' AND t.lease = {THIS_TRANSACTION}",
                set = assigned(names()),
                want = conditional::rows(&conditional::whole_record()),
            )),
            keep: table.fill(
                "INSERT INTO {table}_outcomes (id, owner, content, expiration) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (id, owner) DO UPDATE SET content = excluded.content, \
                 expiration = excluded.expiration",
            ),
            fetch: table.fill("SELECT content FROM {table}_outcomes WHERE id = $1 AND owner = $2"),
            sweep: table.fill(
                "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expiration < $1 ORDER BY expiration LIMIT $2 FOR UPDATE SKIP LOCKED)",
            ),
            sweep_outcomes: table.fill(
                "DELETE FROM {table}_outcomes WHERE (id, owner) IN (SELECT id, owner \
                 FROM {table}_outcomes WHERE expiration < $1 ORDER BY expiration LIMIT $2 \
                 FOR UPDATE SKIP LOCKED)",
            ),
            version: table.fill("SELECT max(version) FROM {table}_schema"),
            create_tables: schema::of(table),
        }
    }
}

/// Lists the columns of one table: `met.id, met.status`.
fn of<'a>(table: &str, columns: impl Iterator<Item = &'a str>) -> String {
    let columns = columns.map(|name| format!("{table}.{name}"));
    columns.collect::<Vec<_>>().join(", ")
}

/// Gives each column the value that `w` has for it.
fn assigned<'a>(columns: impl Iterator<Item = &'a str>) -> String {
    let columns = columns.map(|name| format!("{name} = w.{name}"));
    columns.collect::<Vec<_>>().join(", ")
}
