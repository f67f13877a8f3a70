//! Reads the completed records of a DynamoDB table.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::stream::{self, Stream};
use lambda_idempotency::dynamodb::TableLayout;

use crate::record::Completed;
use crate::{AuditError, words};

/// The place of the records.
#[derive(Clone, Debug)]
pub struct Place {
    /// The client.
    pub client: Client,
    /// The name of the table.
    pub table: String,
    /// Its layout.
    pub layout: TableLayout,
    /// The attribute that holds the id: the partition key, or the sort key of a table with two.
    pub id: String,
}

type Item = HashMap<String, AttributeValue>;

/// Reads an item of the table; `None` of what is no completed record, such as a large outcome's own
/// item.
pub fn read(layout: &TableLayout, id: &str, item: &Item) -> Option<Completed> {
    let id = item.get(id)?.as_s().ok()?;
    Completed::of(id, &layout.read(item))
}

/// Reads the table page by page, in so many segments side by side. Each page has the completed
/// records of up to 1 MB of the table.
pub fn pages(
    place: &Place,
    segments: u16,
) -> impl Stream<Item = Result<Vec<Completed>, AuditError>> + use<> {
    let segments = segments.max(1);
    let each =
        (0..segments).map(|segment| Box::pin(segment_pages(place.clone(), segment, segments)));
    stream::select_all(each)
}

fn segment_pages(
    place: Place,
    segment: u16,
    segments: u16,
) -> impl Stream<Item = Result<Vec<Completed>, AuditError>> + use<> {
    let pages = place
        .client
        .scan()
        .table_name(&place.table)
        .segment(segment.into())
        .total_segments(segments.into())
        .into_paginator()
        .send();
    stream::unfold((pages, place), async |(mut pages, place)| {
        let page = match pages.next().await? {
            Ok(page) => {
                let items = page.items.unwrap_or_default();
                let records = items
                    .iter()
                    .filter_map(|item| read(&place.layout, &place.id, item));
                Ok(records.collect())
            }
            Err(error) => Err(AuditError::NotRead {
                doing: format!("read the records of {}", place.table),
                reason: words(&error),
            }),
        };
        Some((page, (pages, place)))
    })
}
