//! The library's metrics through OpenTelemetry, printed here: `opentelemetry-otlp` has the exporter that sends them to a collector.
//!
//! `cargo run --all-features --example opentelemetry`

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::{Fingerprint, Idempotency, Key};
use metrics_exporter_opentelemetry::Recorder;
use opentelemetry_stdout::MetricExporter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().json().init();
    // Before the first metric: counts without a recorder are lost.
    let (provider, _) = Recorder::builder("payments")
        .with_meter_provider(|provider| provider.with_periodic_exporter(MetricExporter::default()))
        .install()?;

    let once = Idempotency::builder(MemoryStore::new())
        .namespace("payments")
        .build()?;
    for _delivery in 1..=2 {
        let charge = once.run(
            Key::new("charge", "A-17"),
            Fingerprint::bytes(b"12.50"),
            async |_claim| Ok::<_, std::io::Error>("receipt 17".to_owned()),
        );
        charge.await?;
    }

    // In a function at the end of each invocation, before its environment is frozen.
    provider.force_flush()?;
    Ok(())
}
