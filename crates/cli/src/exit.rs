//! The exit code of the process.

use std::process::ExitCode;

/// The exit code, for scripts and schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// 0: all is well, or what was asked is done.
    Fine = 0,
    /// 1: `list` found records, or something needs an operator.
    Found = 1,
    /// 2: the command can't be understood, or no record fits it. Nothing was written.
    Usage = 2,
    /// 3: the store, or another service, didn't answer or refused, or the report could not be printed.
    Store = 3,
    /// 4: the record moved after it was looked at. It was left alone.
    Moved = 4,
}

impl Exit {
    /// The code of `list`, and of a command that looks for what needs an operator.
    pub(crate) fn if_found(is_found: bool) -> Self {
        if is_found { Self::Found } else { Self::Fine }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
