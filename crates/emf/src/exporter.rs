//! The exporter owns the recorded metrics and the output that their documents are written to.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use metrics::Recorder;

use crate::document;
use crate::recorder::{Registered, Registry};

/// Records metrics, and writes them as documents in the embedded metric format.
///
/// [`install`](crate::install) makes one. It is a tower layer: [`layer`](tower_layer::Layer::layer)
/// wraps the handler so that the documents of an invocation are written before its response is
/// posted. Clones share one recorder and one output.
#[derive(Clone)]
pub struct Exporter {
    shared: Arc<Shared>,
}

struct Shared {
    namespace: String,
    registered: Arc<Registered>,
    output: Mutex<Box<dyn Write + Send>>,
}

impl Exporter {
    pub(crate) fn new(namespace: String, output: Box<dyn Write + Send>) -> Self {
        Self {
            shared: Arc::new(Shared {
                namespace,
                registered: Arc::default(),
                output: Mutex::new(output),
            }),
        }
    }

    /// Writes what was counted since the last flush. The layer calls it at the end of each
    /// invocation; a server calls it on a timer, and before it ends.
    ///
    /// Without anything to write it does nothing. An output that fails is logged, as an error of
    /// `tracing`; what was to be written is lost.
    pub fn flush(&self) {
        // Taken first, so that documents are written in the order of their times.
        let output = &self.shared.output;
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = now.map_or(0, |now| now.as_millis());
        let namespace = &self.shared.namespace;
        let drained = self.shared.registered.drain();
        let written = document::lines(namespace, millis, drained).and_then(|lines| {
            if lines.is_empty() {
                return Ok(());
            }
            // All at once, so that no other line comes between.
            output.write_all(&lines)?;
            output.flush()
        });
        // Logged without the lock: the log may have the same output.
        drop(output);
        if let Err(error) = written {
            let error: io::Error = error;
            tracing::error!(%error, "metrics are lost");
        }
    }

    /// Returns a recorder of this exporter, to install it beside another one, as with
    /// `metrics_util::layers::Fanout`. [`install`](crate::install) does so by itself.
    ///
    /// ```
    /// use lambda_idempotency_emf::Builder;
    ///
    /// let exporter = Builder::default().build()?;
    /// metrics::with_local_recorder(&exporter.recorder(), || metrics::counter!("orders").increment(1));
    /// exporter.flush();
    /// # Ok::<(), lambda_idempotency_emf::InstallError>(())
    /// ```
    pub fn recorder(&self) -> impl Recorder + Send + Sync + 'static {
        Registry(Arc::clone(&self.shared.registered))
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter")
            .field("namespace", &self.shared.namespace)
            .finish_non_exhaustive()
    }
}
