//! An exporter whose output is read here.

use std::io::{Result, Write};
use std::sync::{Arc, Mutex};

use lambda_idempotency_emf::{Builder, DEFAULT_NAMESPACE, Exporter};
use serde_json::Value;

/// The output of all of its clones.
#[derive(Clone, Default)]
pub(crate) struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    /// The lines since the last call.
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct Written {
    pub(crate) exporter: Exporter,
    pub(crate) output: Output,
}

impl Written {
    pub(crate) fn new() -> Self {
        let output = Output::default();
        let builder = Builder::default().namespace(DEFAULT_NAMESPACE);
        Self {
            exporter: builder.output(output.clone()).build().unwrap(),
            output,
        }
    }

    /// The documents that were written since the last call, without a flush.
    pub(crate) fn documents(&self) -> Vec<Value> {
        let lines = self.output.take();
        let documents = lines.lines().map(serde_json::from_str);
        documents.collect::<std::result::Result<_, _>>().unwrap()
    }

    /// The documents of a flush.
    pub(crate) fn flushed(&self) -> Vec<Value> {
        self.exporter.flush();
        self.documents()
    }

    /// The documents of what was recorded in a piece of code.
    pub(crate) fn of(&self, recording: impl FnOnce()) -> Vec<Value> {
        metrics::with_local_recorder(&self.exporter.recorder(), recording);
        self.flushed()
    }
}
