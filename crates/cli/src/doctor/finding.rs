//! The findings, and the things that could not be looked at.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{ALARM, DIM, GOOD, HEADING, NL, WARNING};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// An effect may happen twice, or a message may be lost.
    Danger,
    /// Work may be done in vain, or an accident can't be undone.
    Warning,
}

/// A misconfiguration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Its word, for `--ignore`.
    pub id: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// The table, function, queue or stream that has it.
    pub at: String,
    /// The misconfiguration in words: `time to live is off`.
    pub what: String,
    /// The reason why it matters.
    pub why: &'static str,
    /// The command, or the lines of a template, that fix it; empty for a command on what isn't deployed.
    pub fix: String,
}

/// Something that could not be looked at. It is neither fine nor a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotChecked {
    /// Its name: `time to live`.
    pub what: String,
    /// The reason, or a way to have it checked.
    pub why: String,
}

/// The findings in a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Findings")]
pub struct Report {
    /// The misconfigurations, the worst first.
    pub findings: Vec<Finding>,
    /// The things that could not be looked at.
    pub not_checked: Vec<NotChecked>,
    /// The words of the rules that had something to look at, and found nothing.
    pub fine: Vec<&'static str>,
    /// The words of the findings that were found and are ignored.
    pub ignored: Vec<&'static str>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let style = match finding.severity {
                Severity::Danger => ALARM,
                Severity::Warning => WARNING,
            };
            let Finding {
                id,
                at,
                what,
                why,
                fix,
                ..
            } = finding;
            write!(
                f,
                "{style}{id}{style:#}  {HEADING}{at}{HEADING:#}: {what}{NL}    {why}{NL}"
            )?;
            for line in fix.lines() {
                write!(f, "    {GOOD}{line}{GOOD:#}{NL}")?;
            }
            NL.fmt(f)?;
        }
        for NotChecked { what, why } in &self.not_checked {
            write!(f, "{DIM}not checked{DIM:#}  {what}: {why}{NL}")?;
        }
        if !self.ignored.is_empty() {
            write!(f, "{DIM}ignored{DIM:#}  {}{NL}", self.ignored.join(", "))?;
        }
        let (fine, rules) = (self.fine.len(), self.fine.join(", "));
        match self.findings.len() {
            0 => write!(f, "{GOOD}nothing found{GOOD:#} by {fine} rules: {rules}"),
            found => write!(f, "{found} found; {fine} rules found nothing: {rules}"),
        }
    }
}
