//! The conditional writes: each is one statement, for one record or for a group.
//!
//! A statement takes an array for each column (`w`), locks the rows that are there (`met`), changes
//! those that meet the condition (`done`), and shows what it met, so that a refusal and the record in
//! its answer are one atomic step. The lock waits for a transaction that has changed the row and not
//! ended, and shows the row as that one leaves it.

use super::BEGUN;
use crate::columns::COLUMNS;
use crate::table::TableName;

/// A column's name and type.
type Column = (&'static str, &'static str);

const ID: Column = ("id", "text");
const OWNER: Column = ("owner", "text");

/// The condition of what an owner writes.
const FENCE: &str = "met.owner = w.owner AND met.status = 'INPROGRESS'";

/// The condition of a takeover: the record is still at the version that was seen.
const SAME_VERSION: &str = "met.owner IS NOT DISTINCT FROM w.seen_owner \
     AND met.status IS NOT DISTINCT FROM w.seen_status \
     AND met.lease IS NOT DISTINCT FROM w.seen_lease \
     AND met.expiration IS NOT DISTINCT FROM w.seen_expiration";

pub(super) fn insert(table: &TableName) -> String {
    let names = || COLUMNS.iter().map(|(name, _)| *name);
    table.fill(&format!(
        "WITH w AS ({rows}), \
         done AS (INSERT INTO {{table}} (id, {all}) SELECT w.id, {new} FROM w WHERE {BEGUN} ORDER BY w.id \
         ON CONFLICT (id) DO NOTHING RETURNING id) \
         SELECT done.id IS NOT NULL, {met} FROM w \
         LEFT JOIN done ON done.id = w.id LEFT JOIN {{table}} met ON met.id = w.id ORDER BY w.n",
        rows = rows(&whole_record()),
        all = names().collect::<Vec<_>>().join(", "),
        new = super::of("w", names()),
        met = super::of("met", names()),
    ))
}

pub(super) fn take_over(table: &TableName) -> String {
    let mut columns = whole_record();
    columns.extend([
        ("seen_owner", "text"),
        ("seen_status", "text"),
        ("seen_lease", "bigint"),
        ("seen_expiration", "bigint"),
        ("keeps_last_error", "boolean"),
        ("keeps_journal", "boolean"),
    ]);
    let set = COLUMNS.iter().map(|(name, _)| match *name {
        "last_error" => {
            "last_error = CASE WHEN w.keeps_last_error THEN met.last_error END".to_owned()
        }
        "journal" => {
            "journal = CASE WHEN w.keeps_journal THEN met.journal ELSE w.journal END".to_owned()
        }
        name => format!("{name} = w.{name}"),
    });
    let set = set.collect::<Vec<_>>().join(", ");
    update(table, &columns, &set, SAME_VERSION)
}

pub(super) fn renew(table: &TableName) -> String {
    let columns = [ID, OWNER, ("lease", "bigint"), ("expiration", "bigint")];
    let set = "lease = w.lease, expiration = w.expiration";
    let condition = format!("{FENCE} AND met.lease < w.lease");
    update(table, &columns, set, &condition)
}

pub(super) fn amend(table: &TableName) -> String {
    let columns = [
        ID,
        OWNER,
        ("step", "text"),
        ("entry", "text"),
        ("revision", "bigint"),
    ];
    let set = "journal = (met.journal::jsonb || jsonb_build_object(w.step, w.entry::jsonb))::text";
    let known = "coalesce((met.journal::jsonb -> w.step ->> 'revision')::bigint, 0)";
    let condition = format!("{FENCE} AND {known} < w.revision");
    update(table, &columns, set, &condition)
}

pub(super) fn complete(table: &TableName) -> String {
    let columns = [
        ID,
        OWNER,
        ("status", "text"),
        ("outcome", "text"),
        ("omitted", "text"),
        ("packed", "text"),
        ("content", "bytea"),
        ("completed_at", "bigint"),
        ("expiration", "bigint"),
    ];
    let names = columns.iter().map(|(name, _)| *name);
    let set = super::assigned(names.filter(|name| !["id", "owner"].contains(name)));
    update(table, &columns, &format!("{set}, lease = NULL"), FENCE)
}

pub(super) fn release(table: &TableName) -> String {
    let columns = [
        ID,
        OWNER,
        ("tombstone", "text"),
        ("last_error", "text"),
        ("forgets_fingerprint", "boolean"),
    ];
    let set = "owner = w.tombstone, lease = 0, \
         last_error = coalesce(w.last_error, met.last_error), \
         fingerprint = CASE WHEN w.forgets_fingerprint THEN NULL ELSE met.fingerprint END";
    update(table, &columns, set, FENCE)
}

pub(super) fn intervene(table: &TableName) -> String {
    let columns = [
        ID,
        OWNER,
        ("seen_owner", "text"),
        ("seen_status", "text"),
        ("seen_lease", "bigint"),
        ("seen_expiration", "bigint"),
        ("status", "text"),
        ("lease", "bigint"),
        ("expiration", "bigint"),
        ("outcome", "text"),
        ("omitted", "text"),
        ("packed", "text"),
        ("content", "bytea"),
        ("completed_at", "bigint"),
        ("last_error", "text"),
        ("steps", "text"),
    ];
    let set = "owner = w.owner, status = w.status, lease = w.lease, expiration = w.expiration, \
         outcome = w.outcome, omitted = w.omitted, packed = w.packed, content = w.content, \
         completed_at = w.completed_at, last_error = coalesce(w.last_error, met.last_error), \
         journal = (met.journal::jsonb || w.steps::jsonb)::text";
    let newer = "NOT EXISTS (SELECT FROM jsonb_each(w.steps::jsonb) step \
         WHERE (step.value ->> 'revision')::bigint \
         <= coalesce((met.journal::jsonb -> step.key ->> 'revision')::bigint, 0))";
    update(table, &columns, set, &format!("{SAME_VERSION} AND {newer}"))
}

fn update(table: &TableName, columns: &[Column], set: &str, condition: &str) -> String {
    table.fill(&format!(
        "WITH w AS ({rows}), \
         met AS MATERIALIZED (SELECT t.* FROM {{table}} t WHERE t.id IN (SELECT w.id FROM w) \
         ORDER BY t.id FOR UPDATE), \
         done AS (UPDATE {{table}} t SET {set} FROM w JOIN met ON met.id = w.id \
         WHERE t.id = w.id AND {condition} RETURNING t.id) \
         SELECT done.id IS NOT NULL, {met} FROM w \
         LEFT JOIN done ON done.id = w.id LEFT JOIN met ON met.id = w.id ORDER BY w.n",
        rows = rows(columns),
        met = super::of("met", COLUMNS.iter().map(|(name, _)| *name)),
    ))
}

/// A record's columns, its id first.
pub(super) fn whole_record() -> Vec<Column> {
    [ID].into_iter().chain(COLUMNS).collect()
}

/// Makes rows of arrays, one array for each column, and `n`, the row's place in the group.
pub(super) fn rows(columns: &[Column]) -> String {
    let arrays = (1..)
        .zip(columns)
        .map(|(place, (_, type_))| format!("${place}::{type_}[]"));
    let arrays = arrays.collect::<Vec<_>>().join(", ");
    let names = columns
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ");
    format!("SELECT * FROM unnest({arrays}) WITH ORDINALITY AS w({names}, n)")
}
