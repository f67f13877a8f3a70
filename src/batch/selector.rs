//! Finds the token of a message, or what its fingerprint is of, in the text of its body or in an
//! attribute.

use std::fmt;
use std::sync::Arc;

use crate::batch::Source;
use crate::batch::content::Content;
use crate::batch::event_id;

use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::selector::{JsonSelector, SelectorError};

/// Selects a part of a message: an attribute, or a value of the body's JSON.
///
/// It reads the message as it was received, not the decoded body, so that a handler's type needs no
/// field for it; in an [envelope](super::Envelope), it reads what is inside.
///
/// [`BatchLayer::fingerprint_from`](super::BatchLayer::fingerprint_from) compares what it finds, and
/// [`BatchLayer::key_from`](super::BatchLayer::key_from) makes a token of it:
///
/// | what is found | the token |
/// |---|---|
/// | a string | the string |
/// | a number, `true`, `false` | its canonical JSON text ([RFC 8785](https://www.rfc-editor.org/rfc/rfc8785)): `7`, `7.0` and `"7"` are one token |
/// | a list, an object | the [fingerprint](crate::Fingerprint) of its canonical JSON, as [`Key::of`](crate::Key::of) makes it |
/// | nothing, `null`, `""`, `[]`, `{}` | none: the engine's [policy](crate::Builder::on_missing_key) for a missing key |
/// | a list or an object that holds `null` or `""` | none: a part of the identity is missing |
///
/// ```
/// use lambda_idempotency::batch::Selector;
///
/// let in_an_event = Selector::pointer("/detail/order_id")?;
/// let beside_the_body = Selector::attribute("payment-id");
/// assert!(Selector::pointer("detail.order_id").is_err());
/// # Ok::<(), lambda_idempotency::batch::SelectorError>(())
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
    pub fn pointer(pointer: &str) -> Result<Self, SelectorError> {
        Ok(Self(Place::Json(JsonSelector::pointer(pointer)?)))
    }

    /// Selects the value that a [JMESPath](https://jmespath.org) expression finds in the body, such
    /// as `[detail.tenant, detail.order_id]`.
    ///
    /// The expression is compiled once, here. One that fails on a message, because a function was
    /// given the wrong type, finds nothing in it. Numbers beyond 64 bits lose digits, and `7` and
    /// `7.0` are not equal; a pointer keeps all digits, and takes each spelling of a number for the
    /// same.
    ///
    /// ```
    /// use lambda_idempotency::batch::Selector;
    ///
    /// let of_an_order = Selector::jmespath("[detail.tenant, detail.order_id]")?;
    /// let error = Selector::jmespath("detail.[").unwrap_err();
    /// assert!(error.to_string().starts_with("`detail.[` is no JMESPath expression"));
    /// # Ok::<(), lambda_idempotency::batch::SelectorError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The expression doesn't compile.
    #[cfg(feature = "jmespath")]
    #[cfg_attr(docsrs, doc(cfg(feature = "jmespath")))]
    pub fn jmespath(expression: &str) -> Result<Self, SelectorError> {
        Ok(Self(Place::Json(JsonSelector::jmespath(expression)?)))
    }

    /// Selects the identity that an event's producer gave it. [`BatchLayer::inbox`](super::BatchLayer::inbox)
    /// takes it for the key. It is the first of these that the message has:
    ///
    /// | what | is of |
    /// |---|---|
    /// | the attribute `event_id` | the [outbox](crate::dynamodb::outbox), through SQS or SNS |
    /// | the attributes `source` and `id`, each behind `ce_`, `ce-`, `cloudEvents:` or `cloudEvents_` | a [CloudEvent](https://github.com/cloudevents/spec) in binary mode |
    /// | `source` and `id` in a JSON body with `specversion` | a CloudEvent in structured mode |
    /// | `id` in a JSON body of `id`, `aggregate` and `data` | the outbox, through EventBridge |
    ///
    /// The token of a CloudEvent is that of the list of its source and its id, as
    /// [`Key::of`](crate::Key::of) makes it.
    pub fn event_id() -> Self {
        Self(Place::EventId)
    }

    /// Takes the token from a message, where there is one.
    pub(super) fn token<S: Source>(&self, content: &Content<'_, S>) -> Option<String> {
        match &self.0 {
            Place::Attribute(name) => content.attribute(name),
            Place::Json(json) => json.token(content.text()),
            Place::EventId => event_id::token(|name| content.attribute(name), content.text()),
        }
    }

    /// Takes the fingerprint of what it finds. Messages without it are equal to each other, and to
    /// no message that has it.
    pub(super) fn fingerprint<S: Source>(&self, content: &Content<'_, S>) -> Fingerprint {
        let of_json = |json: &str| Fingerprint::json(json.as_bytes());
        let found = match &self.0 {
            Place::Attribute(_) | Place::EventId => {
                let text = self.token(content);
                text.map(|text| Fingerprint::bytes(text.as_bytes()))
            }
            Place::Json(json) => json.find(content.text()).as_deref().map(of_json),
        };
        found.unwrap_or_else(|| Fingerprint::combine([]))
    }
}

/// Names the place for a person.
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
