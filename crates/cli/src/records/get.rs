//! `get`: shows a record.

use crate::connect::{Place, Records};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::records::explain::SKEW_MARGIN;
use crate::records::find::{Which, find};
use crate::records::view::RecordView;

/// Shows a record.
///
/// # Errors
///
/// When there is none: exit code 2.
pub async fn run(which: &Which, context: &Context) -> Result<Exit, Failure> {
    let records = context.records().await?;
    let target = find(which, &records, context).await?;
    let Some(found) = &target.found else {
        return Err(no_record(which, target.id.as_str(), &records));
    };
    let view = RecordView::of(&target.id, found, records.now(context).await?, SKEW_MARGIN);
    context.report(&view)?;
    Ok(Exit::Fine)
}

/// The words for an id that has no record.
pub(crate) fn no_record(which: &Which, id: &str, records: &Records) -> Failure {
    let or_open = match records.place {
        Place::Postgres(_) => ", or a transaction that is open holds it, which `explain` tells",
        Place::DynamoDb(_) | Place::Redis(_) => "",
    };
    let or_elsewhere = which.or_elsewhere();
    Failure::usage(format!(
        "there is no record `{id}`: it was never claimed, or has expired and was deleted{or_open}; look at --table, --namespace and the key{or_elsewhere}"
    ))
}
