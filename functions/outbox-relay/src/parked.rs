//! The way back for all parked events at once, by the event `{"parked": "put_back"}`; `{"parked": "count"}` looks first.

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use crate::event::{Parked, Place};
use crate::relay::{Relay, SIDE_BY_SIDE};
use crate::table::TableError;
use crate::time::Time;

/// The numbers of events that were found and put back. Items that are no events are in neither: they stay parked.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Found {
    parked: usize,
    put_back: usize,
    /// `false` where the time was used before the whole table was read: ask again, `from` `next`.
    is_complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Place>,
}

impl Relay {
    /// Counts the parked events of the whole table, or puts them back into the index, for the next sweep. One that was put back is parked no
    /// longer, so that the same request goes on where another was interrupted.
    pub(crate) async fn parked(
        &self,
        wanted: Parked,
        from: Option<Place>,
        time: Time,
    ) -> Result<Found, TableError> {
        let mut found = Found {
            next: from,
            ..Found::default()
        };
        while !time.is_used() {
            let page = self.table.parked(found.next.as_ref());
            let (events, next) = time.wait_for(page).await?;
            found.parked += events.len();
            if wanted == Parked::PutBack {
                let put_back = |event| async move { self.table.put_back(&event).await };
                let putting = stream::iter(events).map(put_back);
                let putting = putting.buffer_unordered(SIDE_BY_SIDE);
                let done: Vec<()> = time.wait_for(putting.try_collect()).await?;
                found.put_back += done.len();
            }
            found.is_complete = next.is_none();
            found.next = next;
            if found.is_complete {
                break;
            }
        }
        let Found {
            parked, put_back, ..
        } = found;
        tracing::info!(
            parked,
            put_back,
            found.is_complete,
            "looked for parked events"
        );
        Ok(found)
    }
}
