//! The context of a command.

use std::cell::Cell;
use std::time::SystemTime;

use lambda_idempotency::EpochMillis;
use tokio::time::Instant;

use crate::args::Global;
use crate::output::Output;

/// The context of a command: the flags that all commands share, and its output.
#[derive(Debug)]
pub struct Context {
    global: Global,
    /// The questions that `--yes` still answers.
    agreed: Cell<u8>,
}

impl Context {
    /// Makes the context of these flags. Nothing is sent.
    pub fn new(global: Global) -> Self {
        let agreed = Cell::new(global.yes);
        Self { global, agreed }
    }

    /// The flags that all commands share.
    pub fn global(&self) -> &Global {
        &self.global
    }

    /// Returns the output to print to.
    pub fn output(&self) -> Output {
        Output {
            json: self.global.json,
        }
    }

    /// Tells whether the next question is answered by a `--yes`, and uses that up.
    pub(crate) fn agreed(&self) -> bool {
        let left = self.agreed.get();
        self.agreed.set(left.saturating_sub(1));
        left > 0
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
