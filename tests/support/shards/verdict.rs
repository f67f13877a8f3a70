//! The verdict of a function's answer on its batch, where the mapping has `ReportBatchItemFailures`.

use serde_json::Value;

use super::Record;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All records are done.
    Done,
    /// Those before this place are done; this one and all after it come again.
    From(usize),
    /// The whole batch comes again.
    Failed,
}

/// Reads an answer as AWS's page has it: nothing is success, the lowest number is the checkpoint, and an id that is empty, missing or
/// not of the batch fails the batch as a whole.
pub fn verdict(answer: &Value, batch: &[Record]) -> Verdict {
    let failures = match answer {
        Value::Null => return Verdict::Done,
        Value::Object(members) => match members.get("batchItemFailures") {
            None | Some(Value::Null) => return Verdict::Done,
            Some(Value::Array(failures)) => failures,
            Some(_) => return Verdict::Failed,
        },
        _ => return Verdict::Failed,
    };
    let mut lowest = batch.len();
    for failure in failures {
        let id = failure["itemIdentifier"].as_str();
        let place = batch
            .iter()
            .position(|record| Some(record.sequence_number.as_str()) == id);
        let Some(place) = place else {
            return Verdict::Failed;
        };
        lowest = lowest.min(place);
    }
    if lowest == batch.len() {
        Verdict::Done
    } else {
        Verdict::From(lowest)
    }
}
