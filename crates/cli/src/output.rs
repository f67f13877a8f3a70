//! Prints reports: for a person with colours on a terminal, as JSON for a program.

use std::fmt::Display;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::failure::Failure;

/// The style of what needs a person.
pub(crate) const ALARM: Style = AnsiColor::Red.on_default().bold();
/// The style of what to look at.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
/// The style of what is well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// The style of a heading.
pub(crate) const HEADING: Style = Style::new().bold();
/// The style of what is there for completeness.
pub(crate) const DIM: Style = Style::new().dimmed();

/// Where a command prints to.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// As one JSON document, instead of text.
    pub json: bool,
}

impl Output {
    /// Prints a report. Colours are left out where the output is no terminal.
    ///
    /// # Errors
    ///
    /// [`Failure::BrokenPipe`] when the reader went away.
    pub fn report<R: Serialize + Display>(self, report: &R) -> Result<(), Failure> {
        let mut out = anstream::stdout().lock();
        let written = if self.json {
            serde_json::to_string_pretty(report)
                .map_err(io::Error::from)
                .and_then(|text| writeln!(out, "{text}"))
        } else {
            writeln!(out, "{report}")
        };
        finish(written.and_then(|()| out.flush()))
    }

    /// Prints one line of a list that may be long: a line of JSON, or of text.
    ///
    /// # Errors
    ///
    /// [`Failure::BrokenPipe`] when the reader went away.
    pub fn line<R: Serialize + Display>(self, report: &R) -> Result<(), Failure> {
        let mut out = anstream::stdout().lock();
        let written = if self.json {
            serde_json::to_string(report)
                .map_err(io::Error::from)
                .and_then(|text| writeln!(out, "{text}"))
        } else {
            writeln!(out, "{report}")
        };
        finish(written)
    }
}

/// Says something to the person at the terminal, beside the report.
pub(crate) fn note(words: impl Display) {
    // Nobody is left to tell where this can't be written.
    let _ = writeln!(anstream::stderr().lock(), "{words}");
}

/// Says why a command failed.
pub(crate) fn failure(failure: &Failure) {
    note(format_args!("{ALARM}error{ALARM:#}: {failure}"));
}

/// The words for what could not be printed.
pub(crate) fn finish(written: io::Result<()>) -> Result<(), Failure> {
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ => Failure::Output(error),
    })
}
