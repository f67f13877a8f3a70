//! The changes of a table's records, as the table's stream tells them: each once, in order.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Server, Stream};

/// The changes of each record, by its id.
pub type Histories = BTreeMap<String, Vec<Change>>;

/// One write that changed something.
#[derive(Clone, Debug)]
pub struct Change {
    pub before: Option<Image>,
    pub after: Option<Image>,
}

/// The prefix of the name of an attribute that has a step's entry.
const STEP_PREFIX: &str = "step:";

/// A record as it stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub owner: String,
    pub status: String,
    pub attempt: i64,
    /// Epoch milliseconds; `None` once it is final.
    pub lease: Option<i64>,
    pub started_at: i64,
    pub last_error: Option<String>,
    /// A step's effect was about to fire, and nothing says whether it did.
    pub is_in_doubt: bool,
}

pub async fn read(server: &Server, table: &str) -> Histories {
    let mut histories = Histories::new();
    for record in Stream::of(server, table).await.all().await {
        let change = &record["dynamodb"];
        let id = change["Keys"]["id"]["S"].as_str().expect("an id");
        histories.entry(id.to_owned()).or_default().push(Change {
            before: image(&change["OldImage"]),
            after: image(&change["NewImage"]),
        });
    }
    histories
}

fn image(item: &Value) -> Option<Image> {
    let text = |name: &str| item[name]["S"].as_str().map(str::to_owned);
    let number = |name: &str| item[name]["N"].as_str()?.parse().ok();
    let is_in_doubt = item.as_object().is_some_and(|attributes| {
        attributes.iter().any(|(name, entry)| {
            name.starts_with(STEP_PREFIX) && entry["M"]["state"]["S"] == "PENDING"
        })
    });
    Some(Image {
        owner: text("owner")?,
        status: text("status")?,
        attempt: number("attempt")?,
        lease: number("in_progress_expiration"),
        started_at: number("started_at")?,
        last_error: text("last_error"),
        is_in_doubt,
    })
}
