//! Writes the first error to stderr in a process without a `tracing` subscriber.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::subscriber::NoSubscriber;

static HAS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Writes an event that was logged as an error, where no subscriber has heard it: once in a
/// process. A subscriber that is set later hears the events from then on.
///
/// `detail` must be fit for logs: it goes wherever stderr goes.
pub(crate) fn error(event: &str, detail: &dyn Display) {
    let is_heard = tracing::dispatcher::get_default(|current| !current.is::<NoSubscriber>());
    if is_heard || HAS_WRITTEN.swap(true, Ordering::Relaxed) {
        return;
    }
    // `eprintln!` panics where stderr is closed.
    let _ = writeln!(
        std::io::stderr(),
        "lambda-idempotency: {event}: {detail}\nlambda-idempotency: no `tracing` subscriber is set, so later events are not shown: call `tracing_subscriber::fmt().init()` first in `main`"
    );
}
