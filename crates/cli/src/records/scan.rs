//! Reads all records of a store, page by page, in several segments side by side.

use std::collections::HashMap;
use std::path::Path;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use lambda_idempotency::protocol::record::Found;
use serde::{Deserialize, Serialize};

use crate::connect::{Place, Records, Table};
use crate::context::Context;
use crate::failure::Failure;
use crate::records::search::classify;

/// A record that a scan has read.
pub(crate) type Row = (String, Found);

/// How far a scan has come: what a later one goes on from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The table that it reads.
    pub(crate) of: String,
    /// How many records it has read.
    pub(crate) read: u64,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Segment {
    /// Begins after this key: nothing at the beginning. Keys are strings in each layout.
    After(HashMap<String, String>),
    Done,
}

/// How many segments a table of DynamoDB is read in. Records in PostgreSQL have one order.
const SEGMENTS: usize = 4;
/// How many records of PostgreSQL are read at once.
const PAGE: u32 = 1_000;

impl Progress {
    fn new(place: &Place, of: String) -> Self {
        let segments = match place {
            Place::DynamoDb(_) => SEGMENTS,
            Place::Postgres(_) => 1,
        };
        Self {
            of,
            read: 0,
            segments: vec![Segment::After(HashMap::new()); segments],
        }
    }

    /// Goes on from the file, where there is one, or begins anew.
    pub(crate) fn resume(file: Option<&Path>, place: &Place, of: String) -> Result<Self, Failure> {
        let fresh = Self::new(place, of);
        let Some(path) = file.filter(|path| path.exists()) else {
            return Ok(fresh);
        };
        let failed = |error| Failure::File {
            path: path.display().to_string(),
            error,
        };
        let text = std::fs::read(path).map_err(failed)?;
        let begun: Self = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        if begun.of != fresh.of || begun.segments.len() != fresh.segments.len() {
            return Err(Failure::usage(format!(
                "{} is of a scan of {}: give another file for {}",
                path.display(),
                begun.of,
                fresh.of
            )));
        }
        Ok(begun)
    }

    /// Writes the file anew, beside it first, so that an end in between leaves the old one.
    fn save(&self, file: Option<&Path>) -> Result<(), Failure> {
        let Some(path) = file else { return Ok(()) };
        let beside = path.with_extension("part");
        let text = serde_json::to_vec(self).unwrap_or_default();
        std::fs::write(&beside, text)
            .and_then(|()| std::fs::rename(&beside, path))
            .map_err(|error| Failure::File {
                path: path.display().to_string(),
                error,
            })
    }
}

/// Reads what is left of a scan, and hands each page's records to `each`, which says whether to go
/// on. `total` is an estimate, for the bar on a terminal.
pub(crate) async fn scan(
    records: &Records,
    context: &Context,
    mut progress: Progress,
    file: Option<&Path>,
    total: u64,
    mut each: impl FnMut(Vec<Row>) -> Result<bool, Failure>,
) -> Result<u64, Failure> {
    let bar = bar(total, progress.read);
    while progress
        .segments
        .iter()
        .any(|segment| *segment != Segment::Done)
    {
        let places = progress.segments.iter().cloned().enumerate();
        let pages: Vec<_> = stream::iter(places)
            .filter_map(async |(number, segment)| match segment {
                Segment::After(key) => Some((number, key)),
                Segment::Done => None,
            })
            .map(async |(number, key)| (number, page(records, context, number, key).await))
            .buffer_unordered(SEGMENTS)
            .collect()
            .await;
        let mut rows = Vec::new();
        for (number, page) in pages {
            let (found, next) = page?;
            progress.read += found.len() as u64;
            rows.extend(found);
            if let Some(segment) = progress.segments.get_mut(number) {
                *segment = next;
            }
        }
        bar.set_position(progress.read);
        let goes_on = bar.suspend(|| each(rows))?;
        progress.save(file)?;
        if !goes_on {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(progress.read)
}

/// Shown on a terminal alone.
fn bar(total: u64, read: u64) -> ProgressBar {
    let bar = ProgressBar::new(total.max(read)).with_position(read);
    let style = ProgressStyle::with_template("{bar:30} {pos} of about {len} records, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

async fn page(
    records: &Records,
    context: &Context,
    segment: usize,
    after: HashMap<String, String>,
) -> Result<(Vec<Row>, Segment), Failure> {
    match &records.place {
        Place::DynamoDb(table) => dynamodb_page(table, segment, after).await,
        Place::Postgres(store) => {
            let after = after.into_values().next().unwrap_or_default();
            let rows = store.page(&after, PAGE, context.deadline()).await?;
            let next = match rows.last() {
                Some((id, _)) => Segment::After([("id".to_owned(), id.clone())].into()),
                None => Segment::Done,
            };
            Ok((rows, next))
        }
    }
}

async fn dynamodb_page(
    table: &Table,
    segment: usize,
    after: HashMap<String, String>,
) -> Result<(Vec<Row>, Segment), Failure> {
    let string = |(name, value)| (name, AttributeValue::S(value));
    let after: HashMap<_, _> = after.into_iter().map(string).collect();
    let page = table
        .client
        .scan()
        .table_name(&table.name)
        .segment(i32::try_from(segment).unwrap_or(0))
        .total_segments(i32::try_from(SEGMENTS).unwrap_or(1))
        .set_exclusive_start_key((!after.is_empty()).then_some(after))
        .send()
        .await
        .map_err(|error| classify(table, "dynamodb:Scan", &error))?;
    let items = page.items.unwrap_or_default();
    let rows = items.iter().filter_map(|item| {
        let id = item.get(&table.id)?.as_s().ok()?;
        // The compressed outcome of another record, in an item of its own.
        let is_outcome = item.contains_key("content") && id.contains("#outcome#");
        (!is_outcome).then(|| (id.clone(), table.layout.read(item)))
    });
    let rows = rows.collect();
    let next = page.last_evaluated_key.filter(|key| !key.is_empty());
    let next = next.map_or(Segment::Done, |key| {
        let text =
            |(name, value): (String, AttributeValue)| Some((name, value.as_s().ok()?.clone()));
        Segment::After(key.into_iter().filter_map(text).collect())
    });
    Ok((rows, next))
}
