//! The known facts of a deployment: from AWS's APIs, from a template, from flags. A fact that isn't
//! known is `None`, and no rule speaks of it.

#![allow(
    clippy::option_option,
    reason = "unknown, known to be absent, and known are three"
)]

use std::time::Duration;

use crate::args::Layout;
use crate::time;

/// A deployment: the tables of records, the functions that use them, and what their code sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deployment {
    /// AWS's own command line, with the flags that lead it to the deployment.
    pub(crate) aws: String,
    pub(crate) tables: Vec<Table>,
    pub(crate) functions: Vec<Function>,
    pub(crate) settings: Settings,
    /// The time by which this machine's clock is ahead of AWS's, in milliseconds.
    pub(crate) clock_ahead_millis: Option<i64>,
    /// The crates in `Cargo.lock` that make more than one TLS stack, with their versions.
    pub(crate) second_tls: Option<Vec<String>>,
}

/// The code's settings, where they aren't the library's defaults.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "What the code sets")]
pub struct Settings {
    /// The time for which outcomes are kept: 7 days are assumed, where neither this nor a template says it.
    #[arg(long, value_parser = time::duration, value_name = "DURATION")]
    pub retention: Option<Duration>,
    /// The time for which permanent failures are kept: an hour, where it isn't given. Give it where the code
    /// has such failures: streams are compared with it then, too.
    #[arg(long, value_parser = time::duration, value_name = "DURATION")]
    pub failure_retention: Option<Duration>,
    /// The most by which clocks may differ.
    #[arg(long, default_value = "1s", value_parser = time::duration, value_name = "DURATION")]
    pub skew_margin: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retention: None,
            failure_retention: None,
            skew_margin: Duration::from_secs(1),
        }
    }
}

/// The table of the records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Its name; its ARN, where `--table` gives that.
    pub(crate) name: String,
    pub(crate) arn: Option<String>,
    /// The attribute that TTL is on for; `Some(None)` where TTL is off.
    pub(crate) ttl: Option<Option<String>>,
    pub(crate) expected_ttl: String,
    /// The names of the keys, the partition key first.
    pub(crate) keys: Option<Vec<String>>,
    pub(crate) expected_keys: Vec<String>,
    pub(crate) point_in_time_recovery: Option<bool>,
    pub(crate) deletion_protection: Option<bool>,
}

impl Table {
    /// A table of which nothing is known but what it should be.
    pub(crate) fn expected(names: &Layout) -> Self {
        let renamed = names.attribute.iter().find(|(of, _)| of == "expiration");
        let keys = std::iter::once(names.partition_key.clone());
        Self {
            expected_ttl: renamed.map_or_else(|| "expiration".to_owned(), |(_, name)| name.clone()),
            expected_keys: keys.chain(names.sort_key.clone()).collect(),
            ..Self::default()
        }
    }
}

/// A function that uses the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) arn: Option<String>,
    pub(crate) timeout: Option<Duration>,
    /// The value of `IDEMPOTENCY_TABLE`; `Some(None)` where it isn't set.
    pub(crate) table: Option<Option<String>>,
    /// Whether the kill switch is on.
    pub(crate) disabled: Option<bool>,
    pub(crate) reserved_concurrency: Option<u32>,
    /// The time for which its code keeps outcomes; `Some(None)` where no template says it.
    pub(crate) retention: Option<Option<Duration>>,
    pub(crate) mappings: Vec<Mapping>,
    /// The destination of failed asynchronous invocations; `Some(None)` where there is none. Known
    /// where the function is invoked so.
    pub(crate) asynchronous: Option<Option<Destination>>,
    /// The actions on the table that its role lacks.
    pub(crate) missing_actions: Option<Vec<String>>,
}

/// A destination of events.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) name: String,
    /// The time for which it keeps an event. `None` also if it is no queue.
    pub(crate) retention: Option<Duration>,
}

/// Splits the name of a function, or its ARN, from the alias or the version behind it.
pub(crate) fn qualified(name: &str) -> (&str, Option<&str>) {
    let own = name.split_once(":function:").map_or(name, |(_, own)| own);
    let qualifier = own.split_once(':').map(|(_, qualifier)| qualifier);
    let alone = qualifier.and_then(|qualifier| name.strip_suffix(qualifier)?.strip_suffix(':'));
    (alone.unwrap_or(name), qualifier)
}

/// The executions that each poller of a mapping in provisioned mode takes at once
/// (<https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html>).
pub(crate) const EXECUTIONS_OF_A_POLLER: u32 = 10;
/// The most pollers of such a mapping, where it doesn't say.
pub(crate) const POLLERS: u32 = 200;

/// An event source mapping.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) id: String,
    pub(crate) enabled: Option<bool>,
    pub(crate) reports_item_failures: Option<bool>,
    pub(crate) window: Option<Duration>,
    /// `Some(None)` where it has no bound.
    pub(crate) maximum_concurrency: Option<Option<u32>>,
    /// True in provisioned mode, where its pollers bound it.
    pub(crate) provisioned: bool,
    pub(crate) source: Source,
}

/// The source of a mapping's events.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Queue(Queue),
    Stream(Stream),
    Other(String),
}

/// An SQS queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) fifo: bool,
    pub(crate) visibility: Option<Duration>,
    pub(crate) retention: Option<Duration>,
    /// `Some(None)` where it has none.
    pub(crate) dead_letters: Option<Option<DeadLetters>>,
}

/// A queue's dead-letter queue.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetters {
    pub(crate) destination: Destination,
    pub(crate) max_receive_count: Option<u32>,
}

/// A stream of Kinesis or DynamoDB.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) retention: Option<Duration>,
    /// Zero where it has no tumbling window.
    pub(crate) tumbling_window: Option<Duration>,
    pub(crate) bisects: Option<bool>,
    /// `Some(None)` where retries never end.
    pub(crate) retries: Option<Option<u32>>,
    /// `Some(None)` where age never ends them.
    pub(crate) max_age: Option<Option<Duration>>,
    /// The destination of discarded records; `Some(None)` where there is none.
    pub(crate) on_failure: Option<Option<String>>,
}
