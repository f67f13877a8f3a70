//! The rules: what silently breaks a deployment. Pure: `doctor` applies them to what AWS's APIs say,
//! `plan` to what a template or flags say.

mod client;
mod function;
mod queue;
mod stream;
mod table;

use std::time::Duration;

use lambda_idempotency::EVENT_RETENTION;

use crate::doctor::facts::{Deployment, Function};
use crate::doctor::finding::{Finding, Report, Severity};
use crate::time::length;

pub(crate) use queue::{least_retention, least_visibility};

/// The verdict of a rule on one place: `None` where it is fine.
pub(crate) type Verdict = Option<Finding>;

/// Looks at a deployment. A rule that knows nothing of a place says nothing of it.
pub(crate) type Rule = (&'static str, fn(&Deployment) -> Vec<Verdict>);

/// All rules, by the word of what they find. `docs/operations/checklist.md` names each.
pub(crate) const RULES: [Rule; 26] = [
    ("ttl-off", table::ttl_off),
    ("ttl-attribute", table::ttl_attribute),
    ("key-schema", table::key_schema),
    ("point-in-time-recovery", table::point_in_time_recovery),
    ("deletion-protection", table::deletion_protection),
    ("table-variable", function::table_variable),
    ("kill-switch", function::kill_switch),
    ("missing-action", function::missing_action),
    ("async-destination", function::async_destination),
    ("async-retention", function::async_retention),
    ("mapping-disabled", function::mapping_disabled),
    ("item-failures", function::item_failures),
    ("concurrency", function::concurrency),
    ("visibility-timeout", queue::visibility_timeout),
    ("dead-letter-queue", queue::dead_letter_queue),
    ("receive-count", queue::receive_count),
    ("dead-letter-retention", queue::dead_letter_retention),
    ("retention", queue::retention),
    ("failure-retention", failure_retention),
    ("tumbling-window", stream::tumbling_window),
    ("bisect", stream::bisect),
    ("record-age", stream::record_age),
    ("on-failure", stream::on_failure),
    ("stream-retention", stream::retention),
    ("tls-stack", client::tls_stack),
    ("clock", client::clock),
];

fn failure_retention(deployment: &Deployment) -> Vec<Verdict> {
    let mut verdicts = queue::failure_retention(deployment);
    verdicts.extend(stream::failure_retention(deployment));
    verdicts
}

/// Applies the rules, but for those that are ignored.
pub(crate) fn check(deployment: &Deployment, ignored: &[String]) -> Report {
    let mut report = Report::default();
    for (id, rule) in RULES {
        let verdicts = rule(deployment);
        let said = !verdicts.is_empty();
        let found = verdicts.into_iter().flatten();
        let found: Vec<_> = found.map(|finding| Finding { id, ..finding }).collect();
        let is_ignored = ignored.iter().any(|other| other == id);
        match (said, found.is_empty(), is_ignored) {
            (true, true, _) => report.fine.push(id),
            (_, false, true) => report.ignored.push(id),
            _ => report.findings.extend(found),
        }
    }
    report.findings.sort_by_key(|finding| finding.severity);
    report
}

/// `check` sets the rule's word.
pub(super) fn danger(
    at: &str,
    what: impl Into<String>,
    why: &'static str,
    fix: impl Into<String>,
) -> Finding {
    Finding {
        id: "",
        severity: Severity::Danger,
        at: at.to_owned(),
        what: what.into(),
        why,
        fix: fix.into(),
    }
}

pub(super) fn warning(
    at: &str,
    what: impl Into<String>,
    why: &'static str,
    fix: impl Into<String>,
) -> Finding {
    Finding {
        severity: Severity::Warning,
        ..danger(at, what, why, fix)
    }
}

/// Returns the time for which a function's code keeps outcomes, with its words; `None` where a template has
/// it, but doesn't tell it.
pub(super) fn kept(deployment: &Deployment, function: &Function) -> Option<(Duration, String)> {
    let (kept, assumed) = match (function.retention, deployment.settings.retention) {
        (Some(Some(own)), _) => (own, ""),
        (_, Some(given)) => (given, ""),
        (Some(None), None) => (EVENT_RETENTION, " (assumed)"),
        (None, None) => return None,
    };
    Some((kept, format!("{}{assumed}", length(kept))))
}

/// Returns the least whole minutes that are longer than this time.
pub(crate) fn minutes_beyond(time: Duration) -> u64 {
    time.as_secs() / 60 + 1
}

/// Returns what keeps outcomes for this time: in the code, and here.
pub(super) fn keep_for(longest: Duration) -> String {
    let days = longest.as_secs().div_ceil(86_400);
    format!(
        ".retention(Duration::from_hours({days} * 24)) in the code, and --retention {days}days here"
    )
}

#[cfg(test)]
mod tests;
