//! Looks for a record by a part of its hash, and prints what a scan costs before it begins.

use std::fmt;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use lambda_idempotency::{RecordId, StoreError};
use lambda_idempotency_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, PgPool, Row};

use crate::ask::agree;
use crate::connect::{Place, Records, Table};
use crate::context::Context;
use crate::failure::{Failure, missing, words};
use crate::output::{counted, note};
use crate::records::list::{is_elsewhere, is_of_operation};
use crate::records::open::AS_THE_STORE;
use crate::records::scan::{Fate, Progress, scan};

/// The price of a million read request units in us-east-1 since November 2024, in dollars
/// (<https://aws.amazon.com/dynamodb/pricing/on-demand/>).
const PRICE_OF_A_MILLION_READ_UNITS: f64 = 0.125;
/// An eventually consistent read of this many bytes takes half a unit.
const BYTES_OF_HALF_A_UNIT: u64 = 4_096;

/// The cost of a scan of the whole table.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    pub(crate) of: String,
    /// The identity of the table: another one may have the same name elsewhere.
    pub(crate) which: String,
    pub(crate) records: u64,
    /// Of DynamoDB alone.
    read_units: Option<f64>,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "A scan reads the whole of {}: about {}",
            self.of,
            counted(self.records, "record")
        )?;
        if let Some(units) = self.read_units {
            let dollars = units / 1_000_000.0 * PRICE_OF_A_MILLION_READ_UNITS;
            write!(
                f,
                ", {units:.1} read units (${dollars:.4} on demand in us-east-1)"
            )?;
        }
        f.write_str(".")
    }
}

/// Asks the store how large it is.
pub(crate) async fn cost(records: &Records, context: &Context) -> Result<Cost, Failure> {
    match &records.place {
        Place::Postgres(store) => Ok(Cost {
            of: records.place.words(context),
            which: which_of_postgres(store, context).await?,
            records: store.estimated_records(context.deadline()).await?,
            read_units: None,
        }),
        Place::Redis(redis) => {
            redis.note_one_of_several().await;
            Ok(Cost {
                of: records.place.words(context),
                which: String::new(),
                records: redis.keys().await?,
                read_units: None,
            })
        }
        Place::DynamoDb(table) => {
            let name = &table.name;
            let answer = table.client.describe_table().table_name(name).send().await;
            let answer =
                answer.map_err(|error| classify(table, "dynamodb:DescribeTable", &error))?;
            let size = answer
                .table
                .unwrap_or_else(|| aws_sdk_dynamodb::types::TableDescription::builder().build());
            let count = |number: Option<i64>| u64::try_from(number.unwrap_or(0)).unwrap_or(0);
            let halves = count(size.table_size_bytes).div_ceil(BYTES_OF_HALF_A_UNIT);
            let which = [
                size.table_arn,
                size.table_id,
                context.global().endpoint_url.clone(),
            ];
            Ok(Cost {
                of: format!("the table {name}"),
                which: which.into_iter().flatten().collect::<Vec<_>>().join(" "),
                records: count(size.item_count),
                #[expect(clippy::cast_precision_loss, reason = "an estimate")]
                read_units: Some(halves as f64 / 2.0),
            })
        }
    }
}

/// The database and the table, as the server has them.
async fn which_of_postgres(
    store: &PostgresStore<PgPool>,
    context: &Context,
) -> Result<String, Failure> {
    let global = context.global();
    let table = global.postgres_table();
    let asked = format!(
        "{AS_THE_STORE}; SELECT current_database()::text, '{table}'::regclass::oid::bigint"
    );
    // A query of one message: a proxy may share connections.
    let asked = sqlx::raw_sql(AssertSqlSafe(asked)).fetch_one(store.pool());
    let row = tokio::time::timeout(global.timeout, asked).await;
    let failed = |error: sqlx::Error| Failure::service("look for the table of the records", &error);
    let row = row.map_err(|_| StoreError::Timeout)?.map_err(failed)?;
    let database: String = row.try_get(0).map_err(failed)?;
    let table: i64 = row.try_get(1).map_err(failed)?;
    Ok(format!("{database} {table}"))
}

/// Puts a refusal of DynamoDB into words that say what to do.
pub(crate) fn classify<E>(table: &Table, action: &str, error: &SdkError<E>) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let name = &table.name;
    let reason = match error.code() {
        Some("ResourceNotFoundException") => missing(name),
        // It may name another action, such as one on a key of KMS.
        Some("AccessDeniedException") => format!(
            "access denied: allow your role {action} on the table `{name}`, or what DynamoDB names: {}",
            error.message().unwrap_or_default()
        ),
        Some("ProvisionedThroughputExceededException" | "ThrottlingException") => {
            "throttled: try again when the table is less busy".to_owned()
        }
        _ => words(error),
    };
    Failure::Service {
        doing: action.to_owned(),
        reason,
    }
}

/// Finds the one record whose hash begins with these digits, among those of the operation and of the
/// namespace, where they are given.
///
/// # Errors
///
/// Where none has, or more than one.
pub(crate) async fn by_hash(
    hash: &str,
    operation: Option<&str>,
    records: &Records,
    context: &Context,
) -> Result<RecordId, Failure> {
    let cost = cost(records, context).await?;
    note(&cost);
    agree(
        context,
        "Without --operation and the whole hash, the record is looked for by a scan. Go on?",
    )?;
    let namespace = context.global().namespace.as_deref();
    let mut found = Vec::new();
    let progress = Progress::resume(None, &records.place, &cost, String::new())?;
    scan(records, context, progress, None, cost.records, |id, _| {
        let is_asked_for = operation.is_none_or(|of| is_of_operation(namespace, of, &id))
            && !is_elsewhere(namespace, &id);
        if !is_asked_for || !RecordId::stored(&id)?.hash().starts_with(hash) {
            return Ok(Fate::Left);
        }
        // Redis may name one twice.
        if !found.contains(&id) {
            found.push(id);
        }
        // Two are enough to say that it is ambiguous.
        Ok(if found.len() < 10 {
            Fate::Taken
        } else {
            Fate::Last
        })
    })
    .await?;
    match found.as_slice() {
        [] => Err(Failure::usage(format!(
            "no record's hash begins with {hash}: it may have expired, or be in another table or namespace{}",
            operation.map_or("", |_| ", of another operation, or under an id of your own")
        ))),
        [id] => RecordId::stored(id).map_err(Failure::from),
        several => Err(Failure::usage(format!(
            "the hash {hash} is ambiguous: give more digits, or one of these ids: {}",
            several.join(", ")
        ))),
    }
}
