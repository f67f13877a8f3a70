//! Sends the events of an outbox on, each at least once, with the same id each time, and in order within an aggregate.
//!
//! Two triggers: the outbox table's stream, with `ReportBatchItemFailures` and `ParallelizationFactor` 1 (a stream is ordered by item, and
//! two events of an aggregate are two items); and a schedule, whose event has no records, for the sweep: it finds events that no stream
//! record announced any more (a stream forgets after 24 hours, an event source mapping may be switched off). Consumers tell a repetition
//! by the event's id. An operator invokes it with `{"parked": "put_back"}` after a correction.
//!
//! | variable | |
//! |---|---|
//! | `OUTBOX_TABLE` | the table of the events; [`lambda_idempotency::dynamodb::outbox`] describes it |
//! | `OUTBOX_TARGET` | `sqs:` and a queue's URL (FIFO where it ends in `.fifo`), `sns:` and a topic's ARN, or `eventbridge:` and a bus |
//! | `SWEEP_AFTER_SECONDS` | how old an event must be for the sweep; default 900. Longer than the longest handler, plus what the stream takes: sooner, it breaks the order of the commits |
//! | `PARK_AFTER_REFUSALS` | in how many sweeps the target must have refused an event before it is parked; default 24: Lambda repeats a sweep that fails twice, so two hours |
//! | `PUBLISHED_DAYS` | after how many days TTL may delete a published event; default 7 |
//! | `METRIC_NAMESPACE`, `RUST_LOG` | as `telemetry` has it; [`counts`] has the metrics |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that panics has found something")
)]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lambda_idempotency::dynamodb::sdk_config;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use telemetry::Exporter;
use telemetry::variables::{needed, number};
use tower::Layer;

mod counts;
mod event;
mod parked;
mod pending;
mod relay;
mod sweep;
mod table;
mod target;
mod time;

use event::{Answer, Trigger};
use relay::Relay;
use table::Table;
use target::Target;
use time::Time;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let metrics = telemetry::start()?;
    serve(metrics)
        .await
        .inspect_err(|error| tracing::error!(%error, "the relay stopped"))
}

async fn serve(metrics: Exporter) -> Result<(), Error> {
    let start = SystemTime::now();
    let config = sdk_config().await;
    let table = needed("OUTBOX_TABLE", "the name of the outbox")?;
    let target = needed("OUTBOX_TARGET", "where events go")?;
    let days: u64 = number("PUBLISHED_DAYS")?.unwrap_or(7);
    let relay = Arc::new(Relay {
        table: Table::new(&config, table, Duration::from_hours(24 * days)),
        target: Target::parse(&config, &target)?,
        sweep_after: Duration::from_secs(number("SWEEP_AFTER_SECONDS")?.unwrap_or(900)),
        park_after: number("PARK_AFTER_REFUSALS")?.unwrap_or(24),
    });
    let handler = service_fn(move |event: LambdaEvent<Trigger>| {
        let relay = Arc::clone(&relay);
        async move {
            let time = Time::before(event.context.deadline(), start);
            let Trigger {
                records,
                parked,
                from,
            } = event.payload;
            if let Some(records) = records {
                let left = relay.relay(&event::announced(records), time).await;
                return Ok(serde_json::to_value(Answer::of(left))?);
            }
            if let Some(wanted) = parked {
                return Ok(serde_json::to_value(
                    relay.parked(wanted, from, time).await?,
                )?);
            }
            // A sweep that fails fails as a whole: its schedule, or its alarm, repeats it.
            relay.sweep(time).await?;
            Ok::<_, Error>(serde_json::to_value(Answer::of(Vec::new()))?)
        }
    });
    lambda_runtime::run(metrics.layer(handler)).await
}
