//! Asks the person at the terminal.

use std::io::{BufRead, IsTerminal, stderr, stdin};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{WARNING, note};

/// Asks a question that only `yes` answers. Each `--yes` of the command line answers one.
///
/// # Errors
///
/// Without a terminal that shows the question and takes the answer, unless `--yes` is given: a script
/// must say what it agrees to. Where the answer is another.
pub(crate) fn agree(context: &Context, question: &str) -> Result<(), Failure> {
    if context.agreed() {
        return Ok(());
    }
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Err(Failure::usage(format!(
            "{question} There is no terminal to ask at: add --yes (once for each question)"
        )));
    }
    note(format_args!("{WARNING}{question}{WARNING:#} Type `yes`:"));
    let mut answer = String::new();
    let read = stdin().lock().read_line(&mut answer);
    if read.is_ok() && answer.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::usage("not agreed to: nothing was written"))
}
