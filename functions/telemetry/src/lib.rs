//! What the sample functions share. Their telemetry: events as JSON lines, metrics in CloudWatch's embedded metric format, both on
//! standard output, which Lambda sends to the log group. And [`variables`], which reads what else they are set up with.
//!
//! | variable | |
//! |---|---|
//! | `METRIC_NAMESPACE` | the CloudWatch namespace; default `LambdaIdempotency` |
//! | `RUST_LOG` | what is logged; default `info` |

use std::error::Error;

pub use lambda_idempotency_emf::Exporter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

pub mod variables;

/// Starts logging and counting. The exporter is the handler's outermost layer.
///
/// # Errors
///
/// When it was called before, or `METRIC_NAMESPACE` is no namespace of CloudWatch's.
pub fn start() -> Result<Exporter, Box<dyn Error + Send + Sync>> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter.from_env_lossy())
        .try_init()?;
    Ok(lambda_idempotency_emf::install()?)
}
