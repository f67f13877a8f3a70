//! Opens events of an EventBridge bus.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::envelope::{NO_BUS_EVENT, Opened, read};
use crate::protocol::fingerprint::Fingerprint;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Event<'a> {
    id: String,
    source: String,
    detail_type: String,
    account: Option<String>,
    #[serde(borrow)]
    detail: &'a RawValue,
}

pub(crate) fn open(body: &str) -> Result<Opened, &'static str> {
    let event: Event<'_> = read(body, NO_BUS_EVENT)?;
    let context = [&event.source, &event.detail_type];
    Ok(Opened {
        text: event.detail.get().to_owned(),
        id: Some(event.id),
        context: context
            .into_iter()
            .chain(&event.account)
            .map(|text| Fingerprint::bytes(text.as_bytes()))
            .collect(),
        ..Opened::default()
    })
}
