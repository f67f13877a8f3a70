//! The statements, for one table: nothing else in this crate is SQL, but the schema and what a caller
//! hands over.
//!
//! Each conditional write is one statement, for one record or for a group. It locks the rows that are
//! there (`met`), changes those that meet the condition, and shows what it met, so that a refusal and
//! the record in its answer are one atomic step. PostgreSQL sees a row that another transaction has
//! just changed as it is then, since the lock waits for that transaction.

use std::fmt::Write;

use crate::columns::COLUMNS;
use crate::table::TableName;

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

/// The status of the row that takes a record's place within an open transaction. No other transaction
/// ever sees it.
pub(crate) const OPEN: &str = "OPEN";

impl Statements {
    pub(crate) fn of(table: &TableName) -> Self {
        let own: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let all = own.join(", ");
        let met = of_table("met", &own);
        let whole = own.iter().map(|name| format!("{name} = w.{name}"));
        let whole = whole.collect::<Vec<_>>().join(", ");
        let record = [&[("id", "text")], &COLUMNS[..]].concat();

        let taken = own.iter().map(|name| match *name {
            "last_error" => {
                "last_error = CASE WHEN w.keeps_last_error THEN met.last_error END".to_owned()
            }
            "journal" => {
                "journal = CASE WHEN w.keeps_journal THEN met.journal ELSE '{}' END".to_owned()
            }
            name => format!("{name} = w.{name}"),
        });
        let taken = taken.collect::<Vec<_>>().join(", ");
        let seen = [
            ("seen_owner", "text"),
            ("seen_status", "text"),
            ("seen_lease", "bigint"),
            ("seen_expiration", "bigint"),
            ("keeps_last_error", "boolean"),
            ("keeps_journal", "boolean"),
        ];
        let same = "met.owner IS NOT DISTINCT FROM w.seen_owner \
             AND met.status IS NOT DISTINCT FROM w.seen_status \
             AND met.lease IS NOT DISTINCT FROM w.seen_lease \
             AND met.expiration IS NOT DISTINCT FROM w.seen_expiration";
        let held = "met.owner = w.owner AND met.status = 'INPROGRESS'";

        let update = |columns: &[(&str, &str)], set: &str, condition: &str| {
            table.fill(&format!(
                "WITH w AS ({want}), \
                 met AS MATERIALIZED (SELECT t.* FROM {{table}} t WHERE t.id IN (SELECT w.id FROM w) \
                 ORDER BY t.id FOR UPDATE), \
                 done AS (UPDATE {{table}} t SET {set} FROM w JOIN met ON met.id = w.id \
                 WHERE t.id = w.id AND {condition} RETURNING t.id) \
                 SELECT done.id IS NOT NULL, {met} FROM w \
                 LEFT JOIN done ON done.id = w.id LEFT JOIN met ON met.id = w.id ORDER BY w.n",
                want = want(columns),
            ))
        };
        let under_fence = |columns: &[(&str, &str)], set: &str, condition: &str| {
            let fence = [("id", "text"), ("owner", "text")];
            update(
                &[&fence, columns].concat(),
                set,
                &format!("{held}{condition}"),
            )
        };

        Self {
            insert: table.fill(&format!(
                "WITH w AS ({want}), \
                 done AS (INSERT INTO {{table}} (id, {all}) SELECT w.id, {new} FROM w ORDER BY w.id \
                 ON CONFLICT (id) DO NOTHING RETURNING id) \
                 SELECT done.id IS NOT NULL, {met} FROM w \
                 LEFT JOIN done ON done.id = w.id LEFT JOIN {{table}} met ON met.id = w.id ORDER BY w.n",
                want = want(&record),
                new = of_table("w", &own),
            )),
            take_over: update(&[&record, &seen[..]].concat(), &taken, same),
            renew: under_fence(
                &[("lease", "bigint"), ("expiration", "bigint")],
                "lease = w.lease, expiration = w.expiration",
                " AND met.lease < w.lease",
            ),
            amend: under_fence(
                &[("step", "text"), ("entry", "text"), ("revision", "bigint")],
                "journal = (met.journal::jsonb || jsonb_build_object(w.step, w.entry::jsonb))::text",
                " AND coalesce((met.journal::jsonb -> w.step ->> 'revision')::bigint, 0) < w.revision",
            ),
            complete: under_fence(
                &[
                    ("status", "text"),
                    ("outcome", "text"),
                    ("omitted", "text"),
                    ("packed", "text"),
                    ("content", "bytea"),
                    ("completed_at", "bigint"),
                    ("expiration", "bigint"),
                ],
                "status = w.status, outcome = w.outcome, omitted = w.omitted, packed = w.packed, \
                 content = w.content, completed_at = w.completed_at, expiration = w.expiration, \
                 lease = NULL",
                "",
            ),
            release: under_fence(
                &[
                    ("tombstone", "text"),
                    ("last_error", "text"),
                    ("forgets_fingerprint", "boolean"),
                ],
                "owner = w.tombstone, lease = 0, \
                 last_error = coalesce(w.last_error, met.last_error), \
                 fingerprint = CASE WHEN w.forgets_fingerprint THEN NULL ELSE met.fingerprint END",
                "",
            ),
            load: table.fill(&format!(
                "SELECT {met} FROM unnest($1::text[]) WITH ORDINALITY AS w(id, n) \
                 LEFT JOIN {{table}} met ON met.id = w.id ORDER BY w.n"
            )),
            lock: table.fill(&format!("SELECT {all} FROM {{table}} WHERE id = $1 FOR UPDATE")),
            occupy: table.fill(&format!(
                "INSERT INTO {{table}} (id, status, expiration, owner, attempt, journal) \
                 VALUES ($1, '{OPEN}', 0, $2, 0, '{{}}') ON CONFLICT (id) DO NOTHING RETURNING true"
            )),
            settle: table.fill(&format!(
                "UPDATE {{table}} t SET {whole} FROM ({want}) w WHERE t.id = w.id AND t.status = '{OPEN}'",
                want = want(&record),
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
            create_tables: crate::schema::of(table),
        }
    }
}

/// Makes rows of arrays, one for each column: `w` with these columns, and `n`, the place in the group.
fn want(columns: &[(&str, &str)]) -> String {
    let mut arrays = String::new();
    let mut names = String::new();
    for (place, (name, type_)) in columns.iter().enumerate() {
        let _ = write!(arrays, "${}::{type_}[], ", place + 1);
        let _ = write!(names, "{name}, ");
    }
    let arrays = arrays.trim_end_matches(", ");
    format!("SELECT * FROM unnest({arrays}) WITH ORDINALITY AS w({names}n)")
}

fn of_table(table: &str, columns: &[&str]) -> String {
    let columns = columns.iter().map(|name| format!("{table}.{name}"));
    columns.collect::<Vec<_>>().join(", ")
}
