//! How the sample functions tell what they do: events as JSON lines, metrics in CloudWatch's embedded metric format, both on
//! standard output, which Lambda sends to the log group. Nothing runs in the background: a process that Lambda freezes would lose it.
//!
//! | variable | |
//! |---|---|
//! | `METRIC_NAMESPACE` | the CloudWatch namespace; default `LambdaIdempotency` |
//! | `RUST_LOG` | what is logged; default `info` |
//!
//! A histogram takes 100 values in one invocation, and drops what is beyond: enough for batches of up to 100 messages.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

use std::env;
use std::error::Error;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use metrics_cloudwatch_embedded::{Builder, Collector};
use tower::{Layer, Service};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

mod dimensions;
#[cfg(test)]
mod emitted;

/// Writes the metrics of an invocation when it ends. Make it the outermost layer.
#[derive(Clone, Copy)]
pub struct Flush {
    collector: &'static Collector,
}

/// Starts logging and counting.
///
/// # Errors
///
/// When it was called before.
pub fn start() -> Result<Flush, Box<dyn Error + Send + Sync>> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter.from_env_lossy())
        .try_init()?;
    let namespace = env::var("METRIC_NAMESPACE").ok();
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    let collector = Builder::new()
        .cloudwatch_namespace(namespace.unwrap_or_else(|| "LambdaIdempotency".to_owned()))
        .init()?;
    lambda_idempotency::metrics::describe();
    Ok(Flush { collector })
}

impl Flush {
    fn flush(self, mut to: impl Write) {
        let mut documents = Vec::new();
        let written = self
            .collector
            .flush(&mut documents)
            .map_err(Into::into)
            .and_then(|()| dimensions::roll_up(&documents))
            // All at once, so that no other line comes between.
            .and_then(|lines| Ok(to.write_all(&lines).and_then(|()| to.flush())?));
        if let Err(error) = written {
            tracing::error!(%error, "the metrics of this invocation are lost");
        }
    }
}

impl<S> Layer<S> for Flush {
    type Service = Flushing<S>;

    fn layer(&self, inner: S) -> Flushing<S> {
        Flushing {
            flush: *self,
            inner,
        }
    }
}

/// A service behind which the metrics are written.
#[derive(Clone)]
pub struct Flushing<S> {
    flush: Flush,
    inner: S,
}

impl<S, Event> Service<Event> for Flushing<S>
where
    S: Service<Event>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, event: Event) -> Self::Future {
        let (flush, running) = (self.flush, self.inner.call(event));
        Box::pin(async move {
            let answer = running.await;
            flush.flush(std::io::stdout().lock());
            answer
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Error as IoError;

    use lambda_idempotency::store::MemoryStore;
    use lambda_idempotency::{Idempotency, Key};
    use serde_json::Value;
    use tokio::sync::{Mutex, MutexGuard, OnceCell};

    use super::*;

    /// The recorder is the process's: one test after the other has it.
    pub(crate) async fn recorder() -> MutexGuard<'static, Flush> {
        static RECORDER: OnceCell<Mutex<Flush>> = OnceCell::const_new();
        let recorder = RECORDER.get_or_init(|| async { Mutex::new(start().unwrap()) });
        recorder.await.lock().await
    }

    #[tokio::test]
    async fn what_was_counted_is_written_once_in_both_sets_of_dimensions() {
        let flush = recorder().await;
        let once = Idempotency::builder(MemoryStore::new())
            .namespace("shop")
            .build()
            .unwrap();
        for _ in 0..2 {
            let handler = |_| async { Ok::<_, IoError>("done".to_owned()) };
            once.run(Key::new("charge", "1"), None, handler)
                .await
                .unwrap();
        }
        let mut written = Vec::new();
        flush.flush(&mut written);
        let document: Value = serde_json::from_slice(&written).unwrap();
        let directive = &document["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(directive["Namespace"], "LambdaIdempotency");
        assert_eq!(
            directive["Dimensions"],
            serde_json::json!([["namespace", "operation"], ["namespace"]])
        );
        assert_eq!(document["namespace"], "shop");
        assert_eq!(document["operation"], "charge");
        assert_eq!(document["idempotency_executions"], 1);
        assert_eq!(document["idempotency_replays"], 1);
        assert_eq!(
            document["idempotency_claim_time"].as_array().unwrap().len(),
            2
        );
        let unit = |name: &str| {
            let metrics = directive["Metrics"].as_array().unwrap();
            let metric = metrics.iter().find(|metric| metric["Name"] == name);
            metric.unwrap()["Unit"].clone()
        };
        assert_eq!(unit("idempotency_executions"), "Count");
        assert_eq!(unit("idempotency_claim_time"), "Milliseconds");
        assert_eq!(unit("idempotency_outcome_size"), "Bytes");

        let mut again = Vec::new();
        flush.flush(&mut again);
        assert_eq!(String::from_utf8(again).unwrap(), "");
    }
}
