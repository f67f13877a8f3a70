//! Reads the records of a DynamoDB table.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::scan::ScanError;
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use futures_util::stream::{self, Stream, StreamExt};
use lambda_idempotency::dynamodb::TableLayout;
use lambda_idempotency::protocol::record::Found;

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
}

/// The attributes of an item, or of a key.
pub type Item = HashMap<String, AttributeValue>;

/// A segment of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from 0.
    pub number: u16,
    /// The number of segments.
    pub of: u16,
}

/// A record of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// The record.
    pub found: Found,
    /// Its item.
    pub item: Item,
}

/// The records of up to 1 MB of a table.
#[derive(Clone, Debug)]
pub struct Page {
    /// The records. Items of other services, and those of large outcomes, are left out.
    pub rows: Vec<Row>,
    /// The number of items that have another key than the layout gives the id in them.
    pub elsewhere: usize,
    /// The key behind which the next page begins; `None` at the end of the segment.
    pub next: Option<Item>,
}

/// Reads the completed record that an item of the table holds; `None` of any other item.
pub fn read(layout: &TableLayout, item: &Item) -> Option<Completed> {
    Completed::of(layout.id_of(item)?, &layout.read(item))
}

/// Reads the page of a segment behind this key, or the first one.
///
/// # Errors
///
/// When DynamoDB refuses, or doesn't answer.
pub async fn page(
    client: &Client,
    table: &str,
    layout: &TableLayout,
    segment: Segment,
    after: Option<Item>,
) -> Result<Page, SdkError<ScanError>> {
    let scan = client
        .scan()
        .table_name(table)
        .segment(segment.number.into())
        .total_segments(segment.of.into())
        .set_exclusive_start_key(after);
    let page = Box::pin(scan.send()).await?;
    let row = |item: Item| {
        let (id, found) = (layout.id_of(&item)?.to_owned(), layout.read(&item));
        Some(Row { id, found, item })
    };
    let items = page.items.unwrap_or_default();
    let elsewhere = items.iter().filter(|item| layout.is_elsewhere(item));
    Ok(Page {
        elsewhere: elsewhere.count(),
        rows: items.into_iter().filter_map(row).collect(),
        next: page.last_evaluated_key.filter(|key| !key.is_empty()),
    })
}

/// Reads the table page by page, in so many segments side by side. Each page has the completed
/// records of up to 1 MB of the table.
pub fn pages(
    place: &Place,
    segments: u16,
) -> impl Stream<Item = Result<Vec<Completed>, AuditError>> + use<> {
    let of = segments.max(1);
    let begins = (0..of).map(move |number| (Segment { number, of }, None::<Item>));
    let place = place.clone();
    side_by_side(begins, move |(segment, after)| {
        let place = place.clone();
        async move {
            let read = page(&place.client, &place.table, &place.layout, segment, after).await;
            let Page { rows, next, .. } = read.map_err(|error| AuditError::NotRead {
                doing: format!("read the records of {}", place.table),
                reason: words(&error),
            })?;
            let record = |row: &Row| Completed::of(&row.id, &row.found);
            let records: Vec<_> = rows.iter().filter_map(record).collect();
            Ok::<_, AuditError>((records, next.map(|next| (segment, Some(next)))))
        }
    })
}

/// Reads several segments side by side, and each of them page by page. `read` returns the page that
/// begins at a place, and the place at which the next one begins: `None` at the end of the segment.
///
/// A segment ends with its first error. No read is under way while a page is handed out: it would not be
/// polled, and its time would run out.
pub fn side_by_side<At, P, E, Reading>(
    begins: impl IntoIterator<Item = At>,
    read: impl Fn(At) -> Reading,
) -> impl Stream<Item = Result<P, E>>
where
    Reading: Future<Output = Result<(P, Option<At>), E>>,
{
    let begins: Vec<At> = begins.into_iter().collect();
    let rounds = stream::unfold(begins, move |begins| {
        let reading = join_all(begins.into_iter().map(&read));
        async move {
            let (mut pages, mut next) = (Vec::new(), Vec::new());
            for answer in reading.await {
                pages.push(answer.map(|(page, behind)| {
                    next.extend(behind);
                    page
                }));
            }
            (!pages.is_empty()).then(|| (stream::iter(pages), next))
        }
    });
    rounds.flatten()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::pin_mut;

    use super::*;

    #[tokio::test]
    async fn no_read_is_under_way_while_a_page_is_handed_out() {
        let under_way = &Cell::new(0);
        let read = move |(segment, page): (u8, u8)| async move {
            under_way.set(under_way.get() + 1);
            for _ in 0..segment {
                tokio::task::yield_now().await;
            }
            under_way.set(under_way.get() - 1);
            let next = (page < 2).then_some((segment, page + 1));
            Ok::<_, AuditError>(((segment, page), next))
        };
        let pages = side_by_side((0..3).map(|segment| (segment, 1)), read);
        pin_mut!(pages);
        let mut all = Vec::new();
        while let Some(page) = pages.next().await {
            assert_eq!(under_way.get(), 0);
            all.push(page.unwrap());
        }
        all.sort_unstable();
        assert_eq!(all, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]);
    }
}
