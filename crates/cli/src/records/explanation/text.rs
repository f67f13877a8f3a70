//! An explanation, as an operator reads it.

use std::fmt;

use super::{Answer, Derived, Explanation, Moment, RulesView};
use crate::output::{ALARM, DIM, GOOD, HEADING, NL, WARNING};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = match self.answer {
            _ if self.needs_person => ALARM,
            Answer::Replayed => GOOD,
            _ => WARNING,
        };
        write!(f, "{HEADING}{}{HEADING:#}{NL}", self.id)?;
        write!(f, "{style}{}{style:#}", self.words)?;
        if let Some(record) = &self.record {
            let attempt = record.attempt.map(|attempt| format!(", attempt {attempt}"));
            write!(
                f,
                "{NL}{}{}",
                record.state.word(),
                attempt.unwrap_or_default()
            )?;
            if let Some(error) = &record.last_error {
                write!(f, ", last error: {error}")?;
            }
        }
        let RulesView {
            crashed,
            crashed_assumed,
            max_attempts,
            skew_margin,
        } = &self.rules;
        let assumed = if *crashed_assumed { " (assumed)" } else { "" };
        write!(f, "{NL}{DIM}by the rules --crashed {crashed}{assumed}")?;
        match max_attempts {
            Some(attempts) => write!(f, ", --max-attempts {attempts}")?,
            None => write!(f, ", no --max-attempts (assumed)")?,
        }
        write!(f, ", --skew-margin {skew_margin}{DIM:#}")?;
        if !self.timeline.is_empty() {
            write!(
                f,
                "{NL}{NL}{HEADING}Timeline{HEADING:#} (now is {})",
                self.at
            )?;
            for moment in &self.timeline {
                let Moment { at, distance, what } = moment;
                write!(f, "{NL}  {at:<24}  {DIM}{distance:>12}{DIM:#}  {what}")?;
            }
        }
        for Derived {
            effect,
            generation,
            key,
            uuid,
        } in &self.derived
        {
            write!(f, "{NL}{NL}{HEADING}Keys of {effect}{HEADING:#}")?;
            if *generation > 0 {
                write!(f, ", generation {generation}")?;
            }
            write!(f, "{NL}  derive_key   {key}{NL}  derive_uuid  {uuid}")?;
        }
        if !self.safe.is_empty() {
            write!(f, "{NL}{NL}{HEADING}Safe to do{HEADING:#}")?;
            for act in &self.safe {
                write!(f, "{NL}  {}{NL}    {GOOD}{}{GOOD:#}", act.when, act.command)?;
            }
        }
        Ok(())
    }
}
