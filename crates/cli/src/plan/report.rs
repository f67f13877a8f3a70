//! The report of a plan.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::cost::Cost;
use crate::doctor;
use crate::output::{DIM, HEADING, NL};

/// A value that fits a queue's other settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Suggestion {
    /// The queue.
    pub at: String,
    /// The setting.
    pub setting: &'static str,
    /// The least that fits.
    pub at_least: String,
}

/// The report of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Plan")]
pub struct Report {
    /// The findings of the rules.
    pub check: doctor::Report,
    /// The least that fits, for each setting that depends on others.
    pub suggestions: Vec<Suggestion>,
    /// The parts of the template that could not be read, each with the reason.
    pub not_read: Vec<String>,
    /// The cost of protection in a month, by form.
    pub cost: Vec<Cost>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{NL}", self.check)?;
        for words in &self.not_read {
            write!(f, "{DIM}not read{DIM:#}  {words}{NL}")?;
        }
        if !self.suggestions.is_empty() {
            write!(f, "{NL}{HEADING}At least{HEADING:#}{NL}")?;
        }
        for Suggestion {
            at,
            setting,
            at_least,
        } in &self.suggestions
        {
            write!(f, "  {at:<24}  {setting:<20}  {at_least}{NL}")?;
        }
        let Some(first) = self.cost.first() else {
            return Ok(());
        };
        write!(
            f,
            "{NL}{HEADING}A month{HEADING:#} of {} requests, {} of them duplicates, records of {} bytes{NL}  \
             {:<12}  {:>16}  {:>10}",
            first.requests, first.duplicates, first.record_bytes, "form", "write units", "dollars"
        )?;
        for cost in &self.cost {
            let Cost {
                form,
                write_units,
                dollars,
                ..
            } = cost;
            write!(
                f,
                "{NL}  {:<12}  {write_units:>16}  {dollars:>10.2}",
                form.word()
            )?;
        }
        Ok(())
    }
}
