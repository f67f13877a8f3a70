//! Opens SNS notifications.

use std::collections::HashMap;

use serde::Deserialize;

use crate::envelope::{NO_NOTIFICATION, OTHER_SNS_TYPE, Opened, read};
use crate::protocol::fingerprint::Fingerprint;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Notification {
    r#type: String,
    message_id: String,
    topic_arn: String,
    message: String,
    #[serde(default)]
    message_attributes: HashMap<String, Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    /// Text, or the Base64 text of bytes.
    #[serde(rename = "Value")]
    value: String,
}

pub(crate) fn open(body: &str) -> Result<Opened, &'static str> {
    let notification: Notification = read(body, NO_NOTIFICATION)?;
    if notification.r#type != "Notification" {
        return Err(OTHER_SNS_TYPE);
    }
    let attributes = notification.message_attributes.into_iter();
    Ok(Opened {
        text: notification.message,
        id: Some(notification.message_id),
        attributes: attributes
            .map(|(name, found)| (name, found.value))
            .collect(),
        context: vec![Fingerprint::bytes(notification.topic_arn.as_bytes())],
        ..Opened::default()
    })
}
