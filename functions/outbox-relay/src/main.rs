//! Sends the events of an outbox on, each at least once, with the same id each time, and in order within an aggregate.
//!
//! Two triggers: the outbox table's stream, with `ReportBatchItemFailures`; and a schedule, whose event has no records, for the
//! sweep: it finds events that no stream record announced any more (a stream forgets after 24 hours, an event source
//! mapping may be switched off). Consumers tell a repetition by the event's id.
//!
//! | variable | |
//! |---|---|
//! | `OUTBOX_TABLE` | the table of the events; [`lambda_idempotency::outbox`] describes it |
//! | `OUTBOX_TARGET` | `sqs:` and a queue's URL (FIFO where it ends in `.fifo`), `sns:` and a topic's ARN, or `eventbridge:` and a bus |
//! | `SWEEP_AFTER_SECONDS` | how old an event must be for the sweep; default 900. Longer than the stream usually takes |
//! | `PUBLISHED_DAYS` | after how many days TTL may delete a published event; default 7 |
//! | `RUST_LOG` | what is logged; default `info` |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that panics has found something")
)]

use std::env;
use std::str::FromStr;
use std::time::Duration;

use aws_config::BehaviorVersion;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

mod event;
mod relay;
mod table;
mod target;

use event::{Answer, Trigger};
use relay::Relay;
use table::Table;
use target::Target;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter.from_env_lossy())
        .init();
    serve()
        .await
        .inspect_err(|error| tracing::error!(%error, "the relay stopped"))
}

async fn serve() -> Result<(), Error> {
    let config = aws_config::load_defaults(BehaviorVersion::v2026_01_12()).await;
    let table = variable("OUTBOX_TABLE").ok_or("set OUTBOX_TABLE to the name of the outbox")?;
    let target = variable("OUTBOX_TARGET").ok_or("set OUTBOX_TARGET to where events go")?;
    let days: u64 = number("PUBLISHED_DAYS", 7)?;
    let relay = Relay {
        table: Table::new(&config, table, Duration::from_hours(24 * days)),
        target: Target::parse(&config, &target)?,
        sweep_after: Duration::from_secs(number("SWEEP_AFTER_SECONDS", 900)?),
    };
    let relay = &relay;
    let handler = service_fn(move |event: LambdaEvent<Trigger>| async move {
        let failed = match event.payload.records {
            Some(records) => relay.relay(&event::announced(records)).await,
            // A sweep that fails fails as a whole: its schedule, or its alarm, repeats it.
            None => relay.sweep().await.map(|()| Vec::new())?,
        };
        Ok::<_, Error>(Answer::of(failed))
    });
    lambda_runtime::run(handler).await
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn number<N: FromStr>(name: &str, default: N) -> Result<N, String> {
    let Some(text) = variable(name) else {
        return Ok(default);
    };
    text.parse()
        .map_err(|_| format!("{name} must be a whole number"))
}
