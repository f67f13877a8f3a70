//! Compares completed records with the effects that they stand for, on a schedule: `idempotency audit`, as a function.
//!
//! It counts `drift_checked`, the records that it compared, and `drift_found`, the missing and double effects, each with one dimension,
//! `function`, which is the function's name. It logs the hashes of the records that it finds, and answers with the counts. It fails where it
//! can't read the tables, and where it compared less than nine records of ten: a name that is mistyped finds nothing, too.
//! `infra/audit-alarms.yaml` has the alarms.
//!
//! | variable | |
//! |---|---|
//! | `IDEMPOTENCY_TABLE` | the table of the idempotency records |
//! | `EFFECTS_TABLE` | the table of the effects |
//! | `EFFECTS_ATTRIBUTE` | the attribute of its items that holds an effect's name |
//! | `EFFECT_KEY` | what names a record's effect: `id`, `hash`, `derived:NAME`, `derived-uuid:NAME`, or a JSON pointer into the outcome |
//! | `NAMESPACE`, `OPERATION` | of this engine, of this operation alone; default all |
//! | `SETTLED_FOR_SECONDS` | records that completed later than so long ago are left out; default 300 |
//! | `SAMPLE` | compares so many records, drawn at random, instead of all |
//! | `METRIC_NAMESPACE`, `RUST_LOG` | as `telemetry` has it |

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::Client;
use lambda_idempotency::dynamodb::sdk_config;
use lambda_idempotency::{EpochMillis, RecordId};
use lambda_idempotency_audit::{EffectKey, Place, Selection, TableEffects, Tally, audit, pages};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::Serialize;
use serde::de::IgnoredAny;
use telemetry::Exporter;
use telemetry::variables::{needed, number, variable};
use tower::Layer;
use tracing::field::display;

/// The number of segments that the table is read in, side by side.
const SEGMENTS: u16 = 4;
/// The number of records of each kind that are logged.
const LOGGED: usize = 20;

/// The records and the effects that are compared.
struct Drift {
    records: Place,
    effects_table: String,
    effects_attribute: String,
    key: EffectKey,
    namespace: Option<String>,
    operation: Option<String>,
    settled_for: Duration,
    sample: Option<usize>,
    function: String,
}

#[derive(Serialize)]
struct Counts {
    checked: u64,
    missing: u64,
    double: u64,
    not_judged: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let metrics = telemetry::start()?;
    serve(metrics)
        .await
        .inspect_err(|error| tracing::error!(%error, "the audit stopped"))
}

async fn serve(metrics: Exporter) -> Result<(), Error> {
    let config = sdk_config().await;
    let drift = Arc::new(Drift {
        records: Place {
            client: Client::new(&config),
            table: needed("IDEMPOTENCY_TABLE", "the table of the records")?,
            layout: lambda_idempotency::dynamodb::TableLayout::default(),
        },
        effects_table: needed("EFFECTS_TABLE", "the table of the effects")?,
        effects_attribute: needed(
            "EFFECTS_ATTRIBUTE",
            "the attribute that holds an effect's name",
        )?,
        key: needed(
            "EFFECT_KEY",
            "what names a record's effect, such as /payment_id",
        )?
        .parse()?,
        namespace: variable("NAMESPACE"),
        operation: variable("OPERATION"),
        settled_for: Duration::from_secs(number("SETTLED_FOR_SECONDS")?.unwrap_or(300)),
        sample: number("SAMPLE")?,
        function: variable("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_default(),
    });
    let handler = service_fn(move |_: LambdaEvent<IgnoredAny>| {
        let drift = Arc::clone(&drift);
        async move { drift.look().await }
    });
    lambda_runtime::run(metrics.layer(handler)).await
}

impl Drift {
    async fn look(&self) -> Result<Counts, Error> {
        let now = EpochMillis::from(SystemTime::now());
        let selection = Selection {
            namespace: self.namespace.clone(),
            operation: self.operation.clone(),
            since: None,
            before: now - self.settled_for,
            now,
            sample: self.sample.map(|size| (size, now.0.unsigned_abs())),
            shown: LOGGED,
        };
        let client = self.records.client.clone();
        let mut effects =
            TableEffects::open(client, &self.effects_table, &self.effects_attribute).await?;
        let records = pages(&self.records, SEGMENTS);
        let tally = audit(records, &mut effects, &self.key, &selection).await?;
        let counts = self.tell(&tally);
        if counts.checked == 0 {
            return Err("nothing was compared, so nothing is known to be well: look at IDEMPOTENCY_TABLE, NAMESPACE, OPERATION and EFFECT_KEY".into());
        }
        if tally.is_blind() {
            let words = "more than one record in ten don't tell which effect is theirs: look at EFFECT_KEY, and at outcomes that are too large for their record";
            return Err(words.into());
        }
        Ok(counts)
    }

    fn tell(&self, tally: &Tally) -> Counts {
        for (found, ids) in [("missing", tally.missing()), ("double", tally.double())] {
            for id in ids {
                // An id that a caller chose may be a secret: the hash is logged.
                let key = RecordId::stored(id).ok().map(display);
                tracing::error!(
                    event = "drift",
                    found,
                    key,
                    "an effect is not as its record says"
                );
            }
        }
        let counts = Counts {
            checked: tally.checked(),
            missing: tally.missing_rate().count,
            double: tally.double_rate().count,
            not_judged: tally.not_judged(),
        };
        let Counts {
            checked,
            missing,
            double,
            not_judged,
        } = counts;
        tracing::info!(checked, missing, double, not_judged, "compared");
        let count = |name: &'static str, count: u64| {
            metrics::counter!(name, "function" => self.function.clone()).increment(count);
        };
        count("drift_checked", checked);
        count("drift_found", missing + double);
        counts
    }
}
