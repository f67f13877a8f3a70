//! The source of the records: the store, or an export of the table.

use futures_util::stream::{LocalBoxStream, StreamExt};
use lambda_idempotency::EpochMillis;
use lambda_idempotency::protocol::record::Found;
use lambda_idempotency_audit::{AuditError, Completed};

use super::{Args, export};
use crate::connect::Place;
use crate::context::{Context, now};
use crate::failure::Failure;
use crate::records::pages;

type Pages<'a> = LocalBoxStream<'a, Result<Vec<Completed>, AuditError>>;

/// Opens the records, and tells the time by their store's clock.
pub(super) async fn open<'a>(
    args: &Args,
    context: &'a Context,
) -> Result<(Pages<'a>, EpochMillis), Failure> {
    if let Some(place) = &args.export {
        context.without_store("an export is of a DynamoDB table")?;
        return Ok((export::pages(place, context).await?.boxed_local(), now()));
    }
    let records = context.records().await?;
    if let Place::Redis(redis) = &records.place {
        redis.note_one_of_several().await;
    }
    let at = records.now(context).await?;
    let pages = pages(records, context).map(|page| page.map(completed).map_err(not_read));
    Ok((pages.boxed_local(), at))
}

fn completed(records: Vec<(String, Found)>) -> Vec<Completed> {
    let record = |(id, found): (String, Found)| Completed::of(&id, &found);
    records.into_iter().filter_map(record).collect()
}

fn not_read(error: Failure) -> AuditError {
    match error {
        Failure::Service { doing, reason } => AuditError::NotRead { doing, reason },
        error => AuditError::NotRead {
            doing: "read the records".to_owned(),
            reason: error.to_string(),
        },
    }
}
