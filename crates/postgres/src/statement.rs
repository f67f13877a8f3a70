//! The statements, for one table: nothing else in this crate is SQL, but the schema and what a caller
//! hands over.

use lambda_idempotency::protocol::record::{LAYOUT, Record};
use lambda_idempotency::{EpochSeconds, RecordId};

use crate::columns::{self, COLUMNS};
use crate::table::TableName;
use crate::transaction::Xid;
use crate::value::Value;

mod conditional;

/// Assigns the transaction an id, which all that it writes has.
pub(crate) const XID: &str = "SELECT pg_current_xact_id()::text::bigint";

/// Answers as [`XID`] does, and assigns none.
pub(crate) const NO_XID: &str = "SELECT 0::bigint";

/// Tells whether a transaction is in progress, committed or aborted; NULL of one that was long ago.
pub(crate) const STATE: &str = "SELECT pg_xact_status($1::text::xid8)";

/// Holds in a transaction that this crate has begun. A driver may send a statement before `BEGIN` is answered: where the server refuses `BEGIN`
/// alone, the statement would commit by itself. `DEFERRABLE` has no effect on a transaction that writes.
pub(crate) const BEGUN: &str = "current_setting('transaction_deferrable') = 'on'";

/// The status of a row that takes a record's place while its handler works.
pub(crate) const OPEN: &str = "OPEN";

#[derive(Debug)]
pub(crate) struct Statements {
    /// Writes whole records where none is.
    pub(crate) insert: String,
    pub(crate) take_over: String,
    pub(crate) renew: String,
    pub(crate) amend: String,
    pub(crate) complete: String,
    pub(crate) release: String,
    pub(crate) intervene: String,
    pub(crate) load: String,
    /// Reads records in the order of their ids.
    pub(crate) page: String,
    /// Estimates how many records there are, as the planner does.
    pub(crate) estimate: String,
    /// Reads one record, keeps it from changing until the transaction ends, and tells the transaction's id last.
    pub(crate) lock: String,
    /// Takes the place of a record, within the transaction that goes on to write it. A statement that
    /// meets another transaction's row waits for it as long as its last parameter says, in
    /// milliseconds; the `lock_timeout` of other statements stays what it was. A lock of the whole
    /// table comes before, and isn't limited so: a row's lock alone means another run.
    pub(crate) occupy: String,
    settle: String,
    /// Keeps the key of a record from running again, whose handler has committed by itself.
    pub(crate) spoil: String,
    pub(crate) keep: String,
    pub(crate) fetch: String,
    pub(crate) sweep: String,
    pub(crate) sweep_outcomes: String,
    pub(crate) version: String,
}

impl Statements {
    pub(crate) fn of(table: &TableName) -> Self {
        let names = || COLUMNS.iter().map(|(name, _)| *name);
        let all = names().collect::<Vec<_>>().join(", ");
        Self {
            insert: conditional::insert(table),
            take_over: conditional::take_over(table),
            renew: conditional::renew(table),
            amend: conditional::amend(table),
            complete: conditional::complete(table),
            release: conditional::release(table),
            intervene: conditional::intervene(table),
            load: table.fill(&format!(
                "SELECT {met} FROM unnest($1::text[]) WITH ORDINALITY AS w(id, n) \
                 LEFT JOIN {{table}} met ON met.id = w.id ORDER BY w.n",
                met = of("met", names()),
            )),
            page: table.fill(&format!(
                "SELECT id, {all} FROM {{table}} WHERE id > $1 ORDER BY id LIMIT $2"
            )),
            estimate: table.fill(
                "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = $t${table}$t$::regclass",
            ),
            lock: table.fill(&format!(
                "{waits}, \
                 met AS MATERIALIZED (SELECT t.* FROM {{table}} t CROSS JOIN waits WHERE t.id = $1 \
                 FOR UPDATE OF t) \
                 SELECT {met}, {RESET}, pg_current_xact_id()::text::bigint FROM waits LEFT JOIN met ON true",
                waits = waits(2),
                met = of("met", names()),
            )),
            // Another transaction sees this row only where the handler has committed it.
            occupy: table.fill(&format!(
                "{waits}, \
                 done AS (INSERT INTO {{table}} (id, status, expiration, attempt, journal, layout) \
                 SELECT $1, '{OPEN}', $2, 1, '{{}}', 1 FROM waits WHERE {BEGUN} \
                 ON CONFLICT (id) DO NOTHING RETURNING id) \
                 SELECT taken.rows, {RESET} FROM waits \
                 CROSS JOIN (SELECT count(*) AS rows FROM done) taken",
                waits = waits(3),
            )),
            // The place that this very transaction has taken, and not one that the handler committed.
            settle: table.fill(&format!(
                "UPDATE {{table}} SET {{set}} \
                 WHERE id = $1 AND status = '{OPEN}' AND xmin = pg_current_xact_id()::xid"
            )),
            spoil: table.fill(&format!(
                "UPDATE {{table}} SET status = '{OPEN}', owner = NULL, lease = NULL, expiration = $2 \
                 WHERE id = $1 AND owner IS NOT DISTINCT FROM $3 AND status = $4"
            )),
            keep: table.fill(
                "INSERT INTO {table}_outcomes (id, owner, content, expiration) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (id, owner) DO UPDATE SET content = excluded.content, \
                 expiration = excluded.expiration",
            ),
            fetch: table.fill("SELECT content FROM {table}_outcomes WHERE id = $1 AND owner = $2"),
            sweep: table.fill(
                "WITH gone AS (DELETE FROM {table} WHERE id IN (SELECT id FROM {table} \
                 WHERE expiration < $1 ORDER BY expiration LIMIT $2 FOR UPDATE SKIP LOCKED) \
                 RETURNING true) SELECT count(*) FROM gone",
            ),
            sweep_outcomes: table.fill(
                "WITH gone AS (DELETE FROM {table}_outcomes WHERE (id, owner) IN (SELECT id, owner \
                 FROM {table}_outcomes WHERE expiration < $1 ORDER BY expiration LIMIT $2 \
                 FOR UPDATE SKIP LOCKED) RETURNING true) SELECT count(*) FROM gone",
            ),
            // It names each column, so that one that is missing is found before a handler runs.
            version: table.fill(&format!(
                "SELECT max(version), (SELECT count(*) FROM (SELECT {all} FROM {{table}} LIMIT 0) known), \
                 (SELECT count(*) FROM (SELECT id, owner, content, expiration FROM {{table}}_outcomes LIMIT 0) kept) \
                 FROM {{table}}_schema"
            )),
        }
    }
}

impl Statements {
    /// Returns the statement that writes a record into the place that was taken, and its values: those
    /// that the place doesn't have yet. A statement of few columns is a good deal cheaper, and an
    /// expiration that stays touches no index.
    pub(crate) fn settle(
        &self,
        id: &RecordId,
        record: &Record,
        expiration: EpochSeconds,
    ) -> (String, Vec<Value>) {
        let mut values = vec![Value::from(id.as_str())];
        let mut set = Vec::new();
        let is_there = |name: &str, value: &Value| match name {
            "expiration" => *value == Value::from(expiration.0),
            "attempt" => *value == Value::from(1),
            "layout" => *value == Value::from(LAYOUT),
            "journal" => *value == Value::from("{}"),
            _ => value.is_null(),
        };
        for ((name, _), value) in COLUMNS.into_iter().zip(columns::encode(record)) {
            if !is_there(name, &value) {
                values.push(value);
                set.push(format!("{name} = ${}", values.len()));
            }
        }
        (self.settle.replace("{set}", &set.join(", ")), values)
    }
}

/// Has a conditional write apply in this transaction alone.
pub(crate) fn within(xid: Xid, write: &str) -> String {
    let condition = format!(" AND pg_current_xact_id_if_assigned()::text = '{xid}' RETURNING t.id");
    write.replace(" RETURNING t.id", &condition)
}

/// Limits how long the statement waits for a lock, by the parameter in this place, and notes the limit
/// that held before.
fn waits(place: usize) -> String {
    format!(
        "WITH waits AS MATERIALIZED (SELECT current_setting('lock_timeout') AS before, \
         set_config('lock_timeout', ${place}, true) AS now)"
    )
}

/// Ends what [`waits`] began, once the rest of the statement has been carried out.
const RESET: &str = "set_config('lock_timeout', waits.before, true)";

/// Lists the columns of one table: `met.id, met.status`.
fn of<'a>(table: &str, columns: impl Iterator<Item = &'a str>) -> String {
    let columns = columns.map(|name| format!("{table}.{name}"));
    columns.collect::<Vec<_>>().join(", ")
}

/// Returns the assignments of `w`'s values to these columns.
fn assigned<'a>(columns: impl Iterator<Item = &'a str>) -> String {
    let columns = columns.map(|name| format!("{name} = w.{name}"));
    columns.collect::<Vec<_>>().join(", ")
}
