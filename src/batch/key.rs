//! Selects a part of a message, and makes its token.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::batch::Source;
use crate::batch::message::Content;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::selector::JsonSelector;
use crate::setup::BuildError;

/// Selects a part of a message: an attribute, or a value of the body's JSON.
///
/// It reads the message as it was received, not the decoded body, so that a handler's type needs no
/// field for it; in an [envelope](super::Envelope), it reads what is inside.
///
/// [`Settings::fingerprint_from`](super::Settings::fingerprint_from) compares what it finds, and
/// [`BatchLayer::key_from`](super::BatchLayer::key_from) makes a token of it:
///
/// | what is found | the token |
/// |---|---|
/// | a string | the string |
/// | a number, `true`, `false` | its canonical JSON text ([RFC 8785](https://www.rfc-editor.org/rfc/rfc8785)): `7`, `7.0` and `"7"` are one token |
/// | a list, an object | the [fingerprint](crate::Fingerprint) of its canonical JSON, as [`Key::of`](crate::Key::of) makes it |
/// | nothing, `null`, `""`, `[]`, `{}` | none: the engine's [policy](crate::Builder::on_missing_key) for a missing key |
/// | a list or an object that holds `null` or `""`, at any depth | none: a part of the identity is missing |
///
/// ```
/// use lambda_idempotency::batch::Selector;
///
/// let in_an_event = Selector::pointer("/detail/order_id")?;
/// let beside_the_body = Selector::attribute("payment-id");
/// assert!(Selector::pointer("detail.order_id").is_err());
/// # Ok::<(), lambda_idempotency::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Selector(Place);

#[derive(Clone, Debug)]
enum Place {
    Attribute(Arc<str>),
    Json(JsonSelector),
    EventId,
}

impl Selector {
    /// Selects the value of an attribute; of a binary one, its Base64 text.
    pub fn attribute(name: impl Into<String>) -> Self {
        Self(Place::Attribute(name.into().into()))
    }

    /// Selects the value that a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901))
    /// finds in the body, such as `/detail/order_id` or `/items/0/id`. Numbers keep all their
    /// digits.
    ///
    /// # Errors
    ///
    /// The text is no JSON pointer.
    pub fn pointer(pointer: &str) -> Result<Self, BuildError> {
        Ok(Self(Place::Json(JsonSelector::pointer(pointer)?)))
    }

    /// Selects the value that a [JMESPath](https://jmespath.org) expression finds in the body, such
    /// as `[detail.tenant, detail.order_id]`.
    ///
    /// The expression is compiled once, here. One that fails on a message, because a function was
    /// given the wrong type, finds nothing in it. Numbers beyond 64 bits lose digits, and `7` and
    /// `7.0` are not equal; a pointer keeps all digits, and takes each spelling of a number for the
    /// same. JSON with half of a surrogate pair, with a number beyond a double's range or of more
    /// than 127 levels can't be read: such a message is
    /// [rejected](super::Rejection::Undecodable), and as a fingerprint the whole of it is compared.
    ///
    /// ```
    /// use lambda_idempotency::batch::Selector;
    ///
    /// let of_an_order = Selector::jmespath("[detail.tenant, detail.order_id]")?;
    /// let error = Selector::jmespath("detail.[").unwrap_err();
    /// assert!(error.to_string().starts_with("`detail.[` is no JMESPath expression"));
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The expression doesn't compile.
    #[cfg(feature = "jmespath")]
    #[cfg_attr(docsrs, doc(cfg(feature = "jmespath")))]
    pub fn jmespath(expression: &str) -> Result<Self, BuildError> {
        Ok(Self(Place::Json(JsonSelector::jmespath(expression)?)))
    }

    /// Selects the identity that an event's producer gave it, for
    /// [`BatchLayer::inbox`](super::BatchLayer::inbox).
    pub(super) fn event_id() -> Self {
        Self(Place::EventId)
    }

    /// Takes the token from a message, where there is one. An error says why it can't read the body.
    pub(super) fn token<S: Source>(
        &self,
        content: &Content<'_, S>,
    ) -> Result<Option<String>, String> {
        Ok(match &self.0 {
            Place::Attribute(name) => content.attribute(name),
            Place::Json(json) => json.token(content.text())?,
            Place::EventId => token(|name| content.attribute(name), content.text()),
        })
    }

    /// Takes the fingerprint of what it finds, or of a whole body that it can't read. Messages in which
    /// it finds nothing are equal to each other, and to no other.
    pub(super) fn fingerprint<S: Source>(&self, content: &Content<'_, S>) -> Fingerprint {
        let of_json = |json: &str| Fingerprint::json(json.as_bytes());
        let found = match &self.0 {
            Place::Attribute(_) | Place::EventId => {
                let text = self.token(content).unwrap_or_default();
                text.map(|text| Fingerprint::bytes(text.as_bytes()))
            }
            Place::Json(json) => {
                let text = content.text();
                let found = json.find(text).unwrap_or(Some(text.into()));
                found.as_deref().map(of_json)
            }
        };
        found.unwrap_or_else(|| Fingerprint::combine([]))
    }
}

/// Names the place for an operator.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Attribute(name) => write!(f, "the attribute `{name}`"),
            Place::Json(json) => write!(f, "`{json}` in the body"),
            Place::EventId => {
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

    use aws_lambda_events::event::sqs::SqsMessage;

    use super::*;
    use crate::protocol::key::Key;
    use crate::sqs::SqsEvent;

    #[cfg(feature = "jmespath")]
    #[test]
    fn a_body_that_an_expression_cannot_read_is_compared_as_a_whole() {
        let message = SqsMessage::default();
        let [one, other] = [r#"{"id": 1, "a": "\ud83d"}"#, r#"{"id": 2, "a": "\ud83d"}"#]
            .map(|body| Content::<SqsEvent>::open(&message, body.as_bytes(), &[], None).unwrap());
        let id = Selector::jmespath("id").unwrap();
        assert_ne!(id.fingerprint(&one), id.fingerprint(&other));
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
