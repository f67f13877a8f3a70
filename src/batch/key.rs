//! Finds the key in a message, and makes its token.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::batch::Source;
use crate::batch::message::Content;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::selector::{Selector, is_json};

/// The place of a message's key.
#[derive(Debug)]
pub(super) enum KeyPlace {
    Attribute(String),
    Json(Selector),
    /// The identity that an event's producer gave it.
    EventId,
}

impl KeyPlace {
    /// Takes the token from a message, where there is one. An error says why it can't read the body.
    pub(super) fn token<S: Source>(
        &self,
        content: &Content<'_, S>,
    ) -> Result<Option<String>, String> {
        Ok(match self {
            Self::Attribute(name) => content.attribute(name),
            Self::Json(json) => json.token(content.text())?,
            Self::EventId => token(|name| content.attribute(name), content.text()),
        })
    }
}

/// Takes the fingerprint of what a selector finds in a body, or of the whole body where that isn't JSON
/// (compressed, say), or can't be read by its expression. JSON texts in which it finds nothing are equal
/// to each other, and to no other.
pub(super) fn fingerprint(selector: &Selector, body: &[u8]) -> Fingerprint {
    let text = std::str::from_utf8(body).unwrap_or_default();
    match selector.find(text) {
        Ok(Some(found)) => Fingerprint::json(found.as_bytes()),
        Ok(None) if is_json(text) => Fingerprint::combine([]),
        _ => Fingerprint::json(body),
    }
}

/// Names the place for an operator.
impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(name) => write!(f, "the attribute `{name}`"),
            Self::Json(json) => write!(f, "`{json}` in the body"),
            Self::EventId => {
                f.write_str("the attribute `event_id`, or at `source` and `id` of a CloudEvent")
            }
        }
    }
}

/// The name of the attribute that the outbox's relay sets.
const OF_THE_OUTBOX: &str = "event_id";

/// The prefixes of attributes in CloudEvents' bindings: those of Kafka, of HTTP, and of AMQP.
const PREFIXES: [&str; 4] = ["ce_", "ce-", "cloudEvents:", "cloudEvents_"];

/// A CloudEvent in structured mode.
#[derive(Deserialize)]
struct CloudEvent {
    #[serde(rename = "specversion")]
    _version: String,
    source: String,
    id: String,
}

/// The event as the outbox's relay puts it onto a bus, which knows no attributes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnBus<'a> {
    id: String,
    #[serde(rename = "aggregate")]
    _aggregate: String,
    #[serde(borrow, rename = "data")]
    _data: &'a RawValue,
}

/// Makes the token of an event; `None` where it has no identity.
pub(super) fn token(attribute: impl Fn(&str) -> Option<String>, body: &str) -> Option<String> {
    if let Some(id) = attribute(OF_THE_OUTBOX) {
        return Some(id).filter(|id| !id.is_empty());
    }
    let beside = PREFIXES.into_iter().find_map(|prefix| {
        let of = |name| attribute(&format!("{prefix}{name}"));
        Some((of("source")?, of("id")?))
    });
    if let Some((source, id)) = beside {
        return of_cloud_event(&source, &id);
    }
    // Of a list, each would take the texts by their places.
    if !body.trim_start().starts_with('{') {
        return None;
    }
    if let Ok(event) = serde_json::from_str::<CloudEvent>(body) {
        return of_cloud_event(&event.source, &event.id);
    }
    let on_bus = serde_json::from_str::<OnBus<'_>>(body).ok()?;
    Some(on_bus.id).filter(|id| !id.is_empty())
}

/// Makes one token of both: an id is unique within its source alone.
fn of_cloud_event(source: &str, id: &str) -> Option<String> {
    if source.is_empty() || id.is_empty() {
        return None;
    }
    let pair = serde_json::to_vec(&[source, id]).ok()?;
    Some(Fingerprint::json(&pair).as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::protocol::key::Key;

    #[cfg(feature = "jmespath")]
    #[test]
    fn a_body_that_an_expression_cannot_read_is_compared_as_a_whole() {
        let id = Selector::jmespath("id").unwrap();
        assert_ne!(
            fingerprint(&id, br#"{"id": 1, "a": "\ud83d"}"#),
            fingerprint(&id, br#"{"id": 2, "a": "\ud83d"}"#)
        );
    }

    fn found(attributes: &[(&str, &str)], body: &str) -> Option<String> {
        let attributes: HashMap<_, _> = attributes.iter().copied().collect();
        let attribute = |name: &str| attributes.get(name).map(|value| (*value).to_owned());
        token(attribute, body)
    }

    #[test]
    fn an_event_of_the_outbox_has_its_id() {
        assert_eq!(found(&[("event_id", "e-1")], "{}").as_deref(), Some("e-1"));
        let on_bus = r#"{"id": "e-1", "aggregate": "order-1", "data": {"id": "other"}}"#;
        assert_eq!(found(&[], on_bus).as_deref(), Some("e-1"));
    }

    #[test]
    fn a_cloud_event_has_its_source_and_its_id_in_each_mode() {
        let structured =
            r#"{"specversion": "1.0", "id": "7", "source": "/shop", "type": "t", "data": {}}"#;
        let one = found(&[], structured).unwrap();
        for prefix in PREFIXES {
            let (source, id) = (format!("{prefix}source"), format!("{prefix}id"));
            let binary = found(&[(&source, "/shop"), (&id, "7")], "{}");
            assert_eq!(binary.as_deref(), Some(&*one), "{prefix}");
        }
        let elsewhere = r#"{"specversion": "1.0", "id": "7", "source": "/other"}"#;
        assert_ne!(found(&[], elsewhere), Some(one.clone()));
        // The key that a handler makes by hand is the same.
        assert_eq!(
            Key::new("billing", one),
            Key::of("billing", &["/shop", "7"]).unwrap()
        );
    }

    #[test]
    fn what_names_no_event_has_no_identity() {
        for body in [
            "",
            "{}",
            "null",
            r#"{"id": "7"}"#,
            r#"{"id": "7", "source": "/shop"}"#,
            r#"{"specversion": "1.0", "id": "", "source": "/shop"}"#,
            r#"{"specversion": "1.0", "id": 7, "source": "/shop"}"#,
            r#"{"id": "7", "aggregate": "a", "data": {}, "more": 1}"#,
            r#"["1.0", "/shop", "7"]"#,
            r#"["e-1", "order-1", {}]"#,
        ] {
            assert_eq!(found(&[], body), None, "{body}");
        }
        assert_eq!(found(&[("event_id", "")], "{}"), None);
        assert_eq!(found(&[("ce_id", "7")], "{}"), None);
    }
}
