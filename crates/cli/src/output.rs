//! The text of reports: for an operator with colours on a terminal, as JSON for a program.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

use anstyle::AnsiColor;

use crate::failure::Failure;

/// A style of a report, written as a character: only what is written so is obeyed, when the report
/// is printed, and what a record contains never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style(char, anstyle::Style);

/// The end of a report's line, written as a style is: a text can't end a line.
pub(crate) struct NL;

impl Display for NL {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('\n')
    }
}

impl Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char(if f.alternate() { END } else { self.0 })
    }
}

/// The mark behind what has a style.
const END: char = '\u{fdd0}';
/// The style of what needs an operator.
pub(crate) const ALARM: Style = Style('\u{fdd1}', AnsiColor::Red.on_default().bold());
/// The style of what to look at.
pub(crate) const WARNING: Style = Style('\u{fdd2}', AnsiColor::Yellow.on_default());
/// The style of what is well.
pub(crate) const GOOD: Style = Style('\u{fdd3}', AnsiColor::Green.on_default());
/// The style of a heading.
pub(crate) const HEADING: Style = Style('\u{fdd4}', anstyle::Style::new().bold());
/// The style of what is there for completeness.
pub(crate) const DIM: Style = Style('\u{fdd5}', anstyle::Style::new().dimmed());

/// The text of a report as a terminal may get it: with its styles and lines, and without what else a
/// terminal would obey, in text that came from a record, a service or a command.
///
/// Styles and line ends are written as characters, and texts as strings, so that no text passes for
/// one.
pub(crate) fn shown(report: impl Display) -> String {
    let mut shown = Shown(String::new());
    let _ = write!(shown, "{report}");
    shown.0
}

struct Shown(String);

impl fmt::Write for Shown {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            match char {
                '\t' => self.0.push(char),
                char if is_obeyed(char) => self.0.extend(char.escape_default()),
                char => self.0.push(char),
            }
        }
        Ok(())
    }

    fn write_char(&mut self, char: char) -> fmt::Result {
        let mut styles = [ALARM, WARNING, GOOD, HEADING, DIM].into_iter();
        match (char, styles.find(|style| style.0 == char)) {
            (_, Some(Style(_, style))) => write!(self.0, "{style}"),
            (END, _) => write!(self.0, "{}", anstyle::Reset),
            ('\n', _) => self.0.write_char(char),
            (char, _) => self.write_str(char.encode_utf8(&mut [0; 4])),
        }
    }
}

/// The same of JSON, in which such a character is part of a string.
pub(crate) fn shown_json(json: &str) -> String {
    let mut text = String::new();
    for char in json.chars() {
        let _ = match char {
            '\n' => text.write_char(char),
            // A string has them escaped: these are between its tokens.
            '\t' | '\r' => text.write_char(' '),
            char if is_obeyed(char) => write!(text, "\\u{:04x}", u32::from(char)),
            char => text.write_char(char),
        };
    }
    text
}

/// Returns whether a terminal obeys a character: control characters, and those that turn the direction
/// of the text behind them.
pub(crate) fn is_obeyed(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Words a number of things: `1 record`, `2 records`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{end}")
}

/// Prints words for the person at the terminal, beside the report.
pub(crate) fn note(words: impl Display) {
    // Nobody is left to tell where this can't be written.
    let _ = writeln!(anstream::stderr().lock(), "{}", shown(words));
}

/// The words for what could not be printed.
pub(crate) fn finish(written: io::Result<()>) -> Result<(), Failure> {
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ => Failure::Output(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_text() {
        let text = "a\u{1b}[31mb\r\u{9b}2J\u{7}\u{202e}c\nd ö\u{fdd1}";
        let plain = "a\\u{1b}[31mb\\r\\u{9b}2J\\u{7}\\u{202e}c\\nd ö\u{fdd1}";
        assert_eq!(
            shown(format_args!("{DIM}{text}{DIM:#}{NL}{text:<20}")),
            format!("\u{1b}[2m{plain}\u{1b}[0m\n{plain} ")
        );
        let json = serde_json::to_string(text).unwrap_or_default();
        let json = shown_json(&json);
        assert!(!json.chars().any(is_obeyed), "{json}");
        assert_eq!(
            serde_json::from_str::<String>(&json).ok().as_deref(),
            Some(text)
        );
        assert_eq!(shown_json("{\t\"a\\tb\":\r\n1}"), "{ \"a\\tb\": \n1}");
    }
}
