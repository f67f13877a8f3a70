//! The context of a command.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::SystemTime;

use lambda_idempotency::EpochMillis;
use serde::Serialize;
use tokio::time::Instant;

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{WARNING, counted, finish, note, shown, shown_json};

/// The context of a command: the flags that all commands share, and its output.
#[derive(Debug)]
pub struct Context {
    global: Global,
    /// The questions that `--yes` still answers.
    agreed: Cell<u8>,
    /// The items that were read and skipped: by the flags, their key is another one.
    elsewhere: Cell<u64>,
    /// The keys that were read and skipped: no record has such an id.
    strays: Cell<u64>,
}

impl Context {
    /// Makes the context of these flags. Nothing is sent.
    pub fn new(global: Global) -> Self {
        Self {
            agreed: Cell::new(global.yes),
            elsewhere: Cell::new(0),
            strays: Cell::new(0),
            global,
        }
    }

    /// The flags that all commands share.
    pub fn global(&self) -> &Global {
        &self.global
    }

    /// Prints a report. Colours are left out where the output is no terminal. Where its reader went
    /// away, it has read enough of it: the command ends as it would have.
    ///
    /// # Errors
    ///
    /// When it can't be printed.
    pub fn report<R: Serialize + Display>(&self, report: &R) -> Result<(), Failure> {
        match self.print(report, serde_json::to_string_pretty) {
            Err(Failure::BrokenPipe) => Ok(()),
            printed => printed,
        }
    }

    /// Prints the report of a command that has written a record.
    ///
    /// # Errors
    ///
    /// [`Failure::Written`] when it can't be printed, or its reader went away.
    pub(crate) fn written<R: Serialize + Display>(&self, report: &R) -> Result<(), Failure> {
        self.print(report, serde_json::to_string_pretty)
            .map_err(Failure::written)
    }

    /// Prints one line of a list that may be long: a line of JSON, or of text.
    ///
    /// # Errors
    ///
    /// [`Failure::BrokenPipe`] when the reader went away.
    pub fn line<R: Serialize + Display>(&self, report: &R) -> Result<(), Failure> {
        self.print(report, serde_json::to_string)
    }

    fn print<R: Serialize + Display>(
        &self,
        report: &R,
        json: fn(&R) -> serde_json::Result<String>,
    ) -> Result<(), Failure> {
        let mut out = anstream::stdout().lock();
        let text = if self.global.json {
            json(report).map(|json| shown_json(&json))
        } else {
            Ok(shown(report))
        };
        let written = text
            .map_err(io::Error::from)
            .and_then(|text| writeln!(out, "{text}"));
        finish(written.and_then(|()| out.flush()))
    }

    /// Returns whether the next question is answered by a `--yes`, and uses that up.
    pub(crate) fn agreed(&self) -> bool {
        let left = self.agreed.get();
        self.agreed.set(left.saturating_sub(1));
        left > 0
    }

    /// Counts items that were read and skipped: by the flags, their key is another one.
    pub(crate) fn skip_elsewhere(&self, items: usize) {
        self.elsewhere.set(self.elsewhere.get() + items as u64);
    }

    /// Counts keys that were read and skipped: no record has such an id.
    pub(crate) fn skip_strays(&self, keys: usize) {
        self.strays.set(self.strays.get() + keys as u64);
    }

    /// Prints how many items and keys were skipped, where any were: the flags may be wrong, or something
    /// else writes into the store.
    pub(crate) fn note_skipped(&self) {
        let items = self.elsewhere.take();
        if items > 0 {
            let has = if items == 1 { "has" } else { "have" };
            note(format_args!(
                "{WARNING}{} {has} another key or partition value: look at --partition-value and --spread, --partition-key and \
                 --sort-key{WARNING:#}",
                counted(items, "item")
            ));
        }
        let keys = self.strays.take();
        if keys > 0 {
            note(format_args!(
                "{WARNING}{} skipped: no record has an empty id, one of more than 2,048 bytes, or one that is no text. Find \
                 what writes into the store{WARNING:#}",
                counted(keys, "key")
            ));
        }
    }

    /// The deadline of a request that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.global.timeout
    }
}

/// The time now.
pub(crate) fn now() -> EpochMillis {
    SystemTime::now().into()
}

/// The time now by another clock, which this machine's is ahead of by so many milliseconds.
pub(crate) fn now_behind(ahead: i64) -> EpochMillis {
    EpochMillis(now().0.saturating_sub(ahead))
}
