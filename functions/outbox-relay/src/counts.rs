//! The relay's metrics. Each has one dimension, `function`, which is the function's name.
//!
//! | metric | |
//! |---|---|
//! | `outbox_published` | events that were published |
//! | `outbox_failed` | attempts to publish one that failed, for whatever reason |
//! | `outbox_parked` | events that were, or may be, taken out of the index: they wait for an operator |

use std::env;
use std::sync::LazyLock;

static FUNCTION: LazyLock<String> =
    LazyLock::new(|| env::var("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_default());

pub(crate) fn published() {
    metrics::counter!("outbox_published", "function" => FUNCTION.as_str()).increment(1);
}

pub(crate) fn failed() {
    metrics::counter!("outbox_failed", "function" => FUNCTION.as_str()).increment(1);
}

pub(crate) fn parked() {
    metrics::counter!("outbox_parked", "function" => FUNCTION.as_str()).increment(1);
}
