//! Finds the identity of an event, as its producer gave it. Pure.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::protocol::fingerprint::Fingerprint;

/// What the outbox's relay names the attribute.
const OF_THE_OUTBOX: &str = "event_id";

/// What CloudEvents' bindings put before the names of their attributes: those of Kafka, of HTTP, and of AMQP.
const PREFIXES: [&str; 4] = ["ce_", "ce-", "cloudEvents:", "cloudEvents_"];

/// A CloudEvent in structured mode.
#[derive(Deserialize)]
struct CloudEvent {
    #[serde(rename = "specversion")]
    _version: String,
    source: String,
    id: String,
}

/// What the outbox's relay puts onto a bus, which knows no attributes.
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
        ] {
            assert_eq!(found(&[], body), None, "{body}");
        }
        assert_eq!(found(&[("event_id", "")], "{}"), None);
        assert_eq!(found(&[("ce_id", "7")], "{}"), None);
    }
}
