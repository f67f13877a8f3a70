//! Reads all records of a store, page by page, in several segments side by side.

use std::collections::HashMap;
use std::mem::discriminant;
use std::path::Path;
use std::rc::Rc;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{Stream, StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use lambda_idempotency::RecordId;
use lambda_idempotency::protocol::record::Found;
use lambda_idempotency_audit as audit;
use serde::{Deserialize, Serialize};

use crate::connect::{Place, Records, Table};
use crate::context::Context;
use crate::failure::Failure;
use crate::files::{bytes, save};
use crate::records::search::{Cost, classify};
use crate::redis::{Page, Row};

/// The attributes of a key. They are strings in each layout.
type Key = HashMap<String, String>;

/// The progress of a scan: a later one goes on from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The table that it reads.
    pub(crate) of: String,
    /// The identity of that table: another one may have its name.
    #[serde(default)]
    which: String,
    /// The filter of the records that it takes.
    #[serde(default)]
    filter: String,
    /// The number of records that it has read.
    pub(crate) read: u64,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Segment {
    /// Begins after this key: nothing at the beginning.
    After(Key),
    /// The rest of a page of Redis.
    At(Page),
    Done,
}

/// The number of segments that a table of DynamoDB is read in. Records elsewhere have one order.
const SEGMENTS: u16 = 4;
/// The number of records of PostgreSQL that are read at once.
const PAGE: u32 = 1_000;

impl Segment {
    /// The whole of a place, unread.
    fn all(place: &Place) -> Vec<Self> {
        match place {
            Place::DynamoDb(_) => vec![Self::After(HashMap::new()); SEGMENTS.into()],
            Place::Postgres(_) => vec![Self::After(HashMap::new())],
            Place::Redis(_) => vec![Self::At(Page::first())],
        }
    }
}

impl Progress {
    /// Returns whether all was read.
    pub(crate) fn is_done(&self) -> bool {
        self.segments
            .iter()
            .all(|segment| *segment == Segment::Done)
    }

    fn set(&mut self, number: usize, to: Segment) {
        if let Some(segment) = self.segments.get_mut(number) {
            *segment = to;
        }
    }

    /// Goes on from the file, where there is one, or begins anew.
    pub(crate) fn resume(
        file: Option<&Path>,
        place: &Place,
        cost: &Cost,
        filter: String,
    ) -> Result<Self, Failure> {
        let fresh = Self {
            of: cost.of.clone(),
            which: cost.which.clone(),
            filter,
            read: 0,
            segments: Segment::all(place),
        };
        let Some(path) = file.filter(|path| path.exists()) else {
            return Ok(fresh);
        };
        let begun: Self = serde_json::from_slice(&bytes(path)?)
            .map_err(|error| Failure::file(path, error.into()))?;
        let is_alike = |(one, other): (&Segment, &Segment)| {
            *one == Segment::Done || discriminant(one) == discriminant(other)
        };
        let fits = begun.segments.len() == fresh.segments.len()
            && begun.segments.iter().zip(&fresh.segments).all(is_alike);
        let of = if begun.of != fresh.of {
            format!("a scan of {}: give another file for {}", begun.of, fresh.of)
        } else if !fits {
            "another version of this program: give another file".to_owned()
        } else if begun.which != fresh.which {
            format!(
                "a scan of another table of this name ({}), and this one is {}: give another file",
                begun.which, fresh.which
            )
        } else if begun.filter != fresh.filter {
            let filter = begun.filter;
            format!("a scan for other records ({filter}): give another file")
        } else {
            return Ok(begun);
        };
        let file = path.display();
        Err(Failure::usage(format!("{file} is of {of}")))
    }
}

/// The fate of a record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It isn't wanted.
    Left,
    /// It is wanted, and the scan goes on.
    Taken,
    /// It is wanted, and the last one for now.
    Last,
}

/// Reads what is left of a scan, and hands each record to `each`. `total` is an estimate, for the bar
/// on a terminal.
///
/// The file says at each time which records were taken: a scan that ends in between, for whatever
/// reason, is gone on with right behind the last of them.
pub(crate) async fn scan(
    records: &Records,
    context: &Context,
    mut progress: Progress,
    file: Option<&Path>,
    total: u64,
    mut each: impl FnMut(String, Found) -> Result<Fate, Failure>,
) -> Result<Progress, Failure> {
    let bar = bar(total, progress.read);
    save(file, &progress)?;
    'pages: while !progress.is_done() {
        let places = progress.segments.iter().cloned().enumerate();
        let pages: Vec<_> = stream::iter(places)
            .map(async |(number, segment)| (number, page(records, context, number, segment).await))
            .buffer_unordered(SEGMENTS.into())
            .collect()
            .await;
        for (number, page) in pages {
            let (rows, next) = page?;
            for Row { id, found, behind } in rows {
                let fate = bar.suspend(|| each(id, found))?;
                progress.read += 1;
                if fate == Fate::Left {
                    continue;
                }
                progress.set(number, behind);
                save(file, &progress)?;
                if fate == Fate::Last {
                    break 'pages;
                }
            }
            progress.set(number, next);
            bar.set_position(progress.read);
        }
        save(file, &progress)?;
    }
    bar.finish_and_clear();
    context.note_skipped();
    Ok(progress)
}

/// Reads all records with their ids, page by page.
pub(crate) fn pages(
    records: Records,
    context: &Context,
) -> impl Stream<Item = Result<Vec<(String, Found)>, Failure>> {
    let segments = Segment::all(&records.place).into_iter().enumerate();
    let records = Rc::new(records);
    audit::side_by_side(segments, move |(number, from)| {
        let records = Rc::clone(&records);
        async move {
            let (rows, next) = page(&records, context, number, from).await?;
            let rows: Vec<_> = rows.into_iter().map(|row| (row.id, row.found)).collect();
            let next = (next != Segment::Done).then_some((number, next));
            Ok::<_, Failure>((rows, next))
        }
    })
}

/// Shown on a terminal alone.
pub(crate) fn bar(total: u64, read: u64) -> ProgressBar {
    let bar = ProgressBar::new(total.max(read)).with_position(read);
    let style = ProgressStyle::with_template("{bar:30} {pos} of about {len} records, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

async fn page(
    records: &Records,
    context: &Context,
    segment: usize,
    from: Segment,
) -> Result<(Vec<Row<Segment>>, Segment), Failure> {
    match (&records.place, from) {
        (Place::DynamoDb(table), Segment::After(key)) => {
            dynamodb_page(table, context, segment, key).await
        }
        (Place::Postgres(store), Segment::After(after)) => {
            let after = after.into_values().next().unwrap_or_default();
            let rows = store.page(&after, PAGE, context.deadline()).await?;
            let row = |(id, found): (String, Found)| Row {
                behind: Segment::After([("id".to_owned(), id.clone())].into()),
                id,
                found,
            };
            let mut rows: Vec<_> = rows.into_iter().map(row).collect();
            let next = rows.last().map(|row| row.behind.clone());
            let read = rows.len();
            rows.retain(|row| RecordId::stored(row.id.as_str()).is_ok());
            context.skip_strays(read - rows.len());
            Ok((rows, next.unwrap_or(Segment::Done)))
        }
        (Place::Redis(redis), Segment::At(page)) => {
            let (rows, next) = redis.page(page, context).await?;
            let row = |row: Row<Page>| Row {
                id: row.id,
                found: row.found,
                behind: Segment::At(row.behind),
            };
            let next = next.map_or(Segment::Done, Segment::At);
            Ok((rows.into_iter().map(row).collect(), next))
        }
        (_, segment) => Ok((Vec::new(), segment)),
    }
}

async fn dynamodb_page(
    table: &Table,
    context: &Context,
    segment: usize,
    after: Key,
) -> Result<(Vec<Row<Segment>>, Segment), Failure> {
    let string = |(name, value)| (name, AttributeValue::S(value));
    let after: HashMap<_, _> = after.into_iter().map(string).collect();
    let after = (!after.is_empty()).then_some(after);
    let Table {
        client,
        name,
        layout,
        ..
    } = table;
    let segment = audit::Segment {
        number: u16::try_from(segment).unwrap_or(0),
        of: SEGMENTS,
    };
    let read = audit::page(client, name, layout, segment, after).await;
    let read = read.map_err(|error| classify(table, "dynamodb:Scan", &error))?;
    context.skip_elsewhere(read.elsewhere);
    let rows = read.rows.into_iter().map(|row| {
        let value = |name: &String| Some((name.clone(), row.item.get(name)?.as_s().ok()?.clone()));
        Row {
            behind: Segment::After(table.keys.iter().filter_map(value).collect()),
            id: row.id,
            found: row.found,
        }
    });
    let rows = rows.collect();
    let next = read.next.map_or(Segment::Done, |key| {
        let text =
            |(name, value): (String, AttributeValue)| Some((name, value.as_s().ok()?.clone()));
        Segment::After(key.into_iter().filter_map(text).collect())
    });
    Ok((rows, next))
}
