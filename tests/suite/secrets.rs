//! Values that reach neither logs, spans, metrics, errors nor `Debug`, whatever happens: a payload, a token, a scope, an outcome, a step's
//! result, a header, a business item, an error's message.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

mod canary;
mod engine;
mod http;
mod items;
mod sqs;
mod steps;

/// Collects what is logged.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// As long as it lives, what this thread logs is collected.
pub struct Capture {
    _log: DefaultGuard,
    _other: Dispatch,
}

impl Log {
    /// Captures the log of this crate on this thread, at every level.
    ///
    /// While there is only one dispatcher, `tracing` lets the thread that first meets an event decide for all threads
    /// whether it is wanted, and another test's thread would say no. So there are two.
    pub fn capture() -> (Self, Capture) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("lambda_idempotency=trace")
            .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
            .with_writer(log.clone())
            .finish();
        let other = Dispatch::new(NoSubscriber::new());
        let capture = Capture {
            _log: tracing::subscriber::set_default(subscriber),
            _other: other,
        };
        (log, capture)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
