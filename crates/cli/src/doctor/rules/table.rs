//! Rules of the table of the records.

use super::{Verdict, danger, warning};
use crate::args::flag;
use crate::doctor::facts::{Deployment, Table};

/// One verdict for each table that says enough.
fn of(deployment: &Deployment, rule: impl Fn(&Table) -> Option<Verdict>) -> Vec<Verdict> {
    deployment.tables.iter().filter_map(rule).collect()
}

fn set_ttl(deployment: &Deployment, table: &Table, enabled: bool, attribute: &str) -> String {
    let (aws, name) = (&deployment.aws, &table.name);
    let change = format!("Enabled={enabled},AttributeName={attribute}");
    let change = flag("--time-to-live-specification", &change);
    format!("{aws} dynamodb update-time-to-live --table-name {name} {change}")
}

fn mend_ttl(deployment: &Deployment, table: &Table) -> String {
    let on = set_ttl(deployment, table, true, &table.expected_ttl);
    format!("{on}      # an hour after the last change: DynamoDB refuses another before")
}

pub(super) fn ttl_off(deployment: &Deployment) -> Vec<Verdict> {
    of(deployment, |table| {
        let ttl = table.ttl.as_ref()?;
        Some(ttl.is_none().then(|| {
            let why = "No record is ever deleted: the table grows, and costs, for ever.";
            let fix = mend_ttl(deployment, table);
            warning(&table.name, "time to live is off", why, fix)
        }))
    })
}

pub(super) fn ttl_attribute(deployment: &Deployment) -> Vec<Verdict> {
    of(deployment, |table| {
        let attribute = table.ttl.as_ref()?.as_ref()?;
        Some((*attribute != table.expected_ttl).then(|| {
            let what = format!(
                "time to live is on `{attribute}`, and records have `{}`",
                table.expected_ttl
            );
            let why = "No record has that attribute, so none is deleted; one that means something else would be deleted early.";
            // DynamoDB refuses another attribute while one is on.
            let off = set_ttl(deployment, table, false, attribute);
            let fix = format!("{off}\n{}", mend_ttl(deployment, table));
            danger(&table.name, what, why, fix)
        }))
    })
}

pub(super) fn key_schema(deployment: &Deployment) -> Vec<Verdict> {
    of(deployment, |table| {
        let keys = table.keys.as_ref()?;
        Some((*keys != table.expected_keys).then(|| {
            let (has, wants) = (keys.join(", "), table.expected_keys.join(", "));
            let what = format!("its key is {has}, and the engine writes {wants}");
            let why = "Each claim is refused, and nothing runs.";
            let fix = "Name the keys in the code, by DynamoDbStore::layout, or take another table. Here: --partition-key, --sort-key";
            danger(&table.name, what, why, fix)
        }))
    })
}

pub(super) fn point_in_time_recovery(deployment: &Deployment) -> Vec<Verdict> {
    of(deployment, |table| {
        let (aws, name) = (&deployment.aws, &table.name);
        Some((!table.point_in_time_recovery?).then(|| {
            let why =
                "Without its records every redelivery runs again, and an accident can't be undone.";
            let fix = format!(
                "{aws} dynamodb update-continuous-backups --table-name {name} \
                 --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true"
            );
            warning(name, "point-in-time recovery is off", why, fix)
        }))
    })
}

pub(super) fn deletion_protection(deployment: &Deployment) -> Vec<Verdict> {
    of(deployment, |table| {
        let (aws, name) = (&deployment.aws, &table.name);
        Some((!table.deletion_protection?).then(|| {
            let why = "One command, or a stack's removal, deletes the records; every redelivery then runs again.";
            let fix = format!(
                "{aws} dynamodb update-table --table-name {name} --deletion-protection-enabled"
            );
            warning(name, "deletion protection is off", why, fix)
        }))
    })
}
