//! The source of the records: the store, or an export of the table.

use futures_util::stream::{self, LocalBoxStream, StreamExt};
use lambda_idempotency::EpochMillis;
use lambda_idempotency_audit::{AuditError, Completed, Place as Records, pages};

use super::{Args, export};
use crate::connect::Place;
use crate::context::{Context, now};
use crate::failure::Failure;
use crate::redis::Page;

/// The number of segments that a table is read in, side by side.
const SEGMENTS: u16 = 4;
/// The number of records of PostgreSQL that are read at once.
const PAGE: u32 = 1_000;

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
    let at = records.now(context).await?;
    let pages = match records.place {
        Place::DynamoDb(table) => {
            let place = Records {
                client: table.client,
                table: table.name,
                layout: table.layout,
                id: table.id,
            };
            pages(&place, SEGMENTS).boxed_local()
        }
        Place::Postgres(store) => {
            let pages = stream::unfold(Some(String::new()), move |after| {
                let store = store.clone();
                async move {
                    let page = store.page(&after?, PAGE, context.deadline()).await;
                    let page = page.map_err(|error| AuditError::NotRead {
                        doing: "read the records".to_owned(),
                        reason: error.to_string(),
                    });
                    match page {
                        Ok(rows) => {
                            let last = rows.last().map(|(id, _)| id.clone())?;
                            let records = rows
                                .iter()
                                .filter_map(|(id, found)| Completed::of(id, found));
                            Some((Ok(records.collect()), Some(last)))
                        }
                        Err(error) => Some((Err(error), None)),
                    }
                }
            });
            pages.boxed_local()
        }
        Place::Redis(redis) => {
            let pages = stream::unfold(Some(Page::first()), move |page| {
                let redis = redis.clone();
                async move {
                    let page = redis.page(page?, context.deadline()).await;
                    let page = page.map_err(|error| AuditError::NotRead {
                        doing: "read the records".to_owned(),
                        reason: error.to_string(),
                    });
                    match page {
                        Ok((rows, next)) => {
                            let records = rows
                                .iter()
                                .filter_map(|row| Completed::of(&row.id, &row.found));
                            Some((Ok(records.collect()), next))
                        }
                        Err(error) => Some((Err(error), None)),
                    }
                }
            });
            pages.boxed_local()
        }
    };
    Ok((pages, at))
}
