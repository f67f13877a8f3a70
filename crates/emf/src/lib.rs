//! Writes what `lambda-idempotency` counts in CloudWatch's [embedded metric format][emf].
//!
//! [`install`] makes an [`Exporter`] the recorder of the [`metrics`] facade. As the outermost tower
//! layer, the exporter writes the documents of each invocation to standard output before the
//! response is posted. Lambda sends them to the log group, and CloudWatch makes metrics of them:
//! the function needs no permission, no extension and no request for it.
//!
//! ```no_run
//! use lambda_idempotency::{Idempotency, Key, store::MemoryStore};
//! use lambda_runtime::{Error, LambdaEvent, service_fn};
//! use tower::Layer;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Error> {
//!     // Before the engine counts anything: a metric that was met without a recorder stays silent.
//!     let metrics = lambda_idempotency_emf::install()?;
//!     // In a function: `DynamoDbStore::from_env().await?`.
//!     let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
//!     let handler = service_fn(move |event: LambdaEvent<String>| {
//!         let once = once.clone();
//!         async move {
//!             let charge = once.run(Key::new("charge", event.payload), None, |_| async { Ok::<_, Error>(1250) });
//!             Ok::<_, Error>(charge.await?.into_inner())
//!         }
//!     });
//!     lambda_runtime::run(metrics.layer(handler)).await
//! }
//! ```
//!
//! A batch layer's handler, `lambda_http::run` and `run_concurrent` take `metrics.layer(…)` in the
//! same way; in a `tower::ServiceBuilder`, it is the first `.layer(metrics)`. Not on
//! `lambda_runtime::Runtime::layer`: there, the response has been posted by then.
//!
//! # What is written
//!
//! | | |
//! |---|---|
//! | CloudWatch namespace | the environment variable `METRIC_NAMESPACE`, or `LambdaIdempotency`; [`Builder::namespace`] |
//! | metrics | [those of the library](lambda_idempotency::metrics), and every other that passes through the facade |
//! | dimensions | a metric's labels. The library's metrics have two sets: `namespace` with `operation`, and `namespace` alone, which the alarms of `infra/` look at |
//! | time | when the documents are written |
//!
//! CloudWatch charges for each metric in each set of dimensions. Labels are for values that are
//! few: never an order's number or a customer's.
//!
//! # Freezes, panics and crashes
//!
//! Between two invocations Lambda freezes the process. At that time nothing waits to be written:
//! the documents go out when the handler's future ends, also when it panics or is dropped. Each
//! count is in one document only. With concurrent invocations in one process, a document has what
//! all of them counted until then. The counts of an invocation that Lambda kills (a timeout,
//! too little memory) are lost.
//!
//! # Limits
//!
//! A document has at most 100 metrics, and a histogram 100 values; what is beyond is in further
//! documents. A histogram keeps 20,000 values until they are written, and drops what is beyond. The
//! first 30 labels are dimensions, further ones are properties of the log line. A value that is not
//! finite, or beyond ±2^360, is left out. A metric is not written, and an error is logged, where its
//! name is blank, longer than 255 characters, `_aws`, or that of one of its labels, or where a label is
//! named `_aws`.
//!
//! With Lambda's JSON log format, keep `ApplicationLogLevel` at INFO, and limit what is logged by an
//! `EnvFilter`: a document has no level, so that Lambda takes it for INFO, and drops it above.
//!
//! # Outside Lambda
//!
//! A server writes on its own timer, with [`Exporter::flush`], to its standard output or, with
//! [`Builder::output`], to the CloudWatch agent.
//!
//! [emf]: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html

mod builder;
mod document;
mod exporter;
mod layer;
mod recorder;

pub use builder::{Builder, DEFAULT_NAMESPACE, InstallError, NAMESPACE_VARIABLE};
pub use exporter::Exporter;
pub use layer::Flushing;

/// Installs an exporter to standard output as the recorder of the process.
///
/// Its CloudWatch namespace is the value of the environment variable `METRIC_NAMESPACE`, or
/// `LambdaIdempotency`. Call it before the first metric is counted.
///
/// ```
/// # fn main() -> Result<(), lambda_idempotency_emf::InstallError> {
/// let metrics = lambda_idempotency_emf::install()?;
/// metrics::counter!("orders", "shop" => "tea").increment(1);
/// metrics.flush();
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// When the process has a recorder already, or the namespace is none that CloudWatch takes.
pub fn install() -> Result<Exporter, InstallError> {
    Builder::default().install()
}
