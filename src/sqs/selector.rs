//! Finding the token in a message as it was received, without code of the caller's.

use std::fmt;
use std::sync::Arc;

use aws_lambda_events::event::sqs::SqsMessage;

mod attribute;
#[cfg(feature = "jmespath")]
mod jmespath;
mod pointer;
mod token;

use pointer::Pointer;

/// Where in a message the token stands: in a message attribute, or somewhere in the body's JSON.
///
/// It looks at the message as it was received, not at the decoded body, so that a handler's type needs no field for it.
/// [`BatchLayer::key_from`](super::BatchLayer::key_from) takes it.
///
/// | what is found | the token |
/// |---|---|
/// | a string | the string |
/// | a number, `true`, `false` | its canonical JSON text ([RFC 8785](https://www.rfc-editor.org/rfc/rfc8785)): `7`, `7.0` and `"7"` are one token |
/// | a list, an object | the [fingerprint](crate::Fingerprint) of its canonical JSON, as [`Key::of`](crate::Key::of) makes it |
/// | nothing, `null`, `""`, `[]`, `{}` | none: the engine's [policy](crate::Builder::missing_key) for a missing key |
/// | a list or an object that holds `null` or `""` | none: a part of the identity is missing |
///
/// ```
/// use lambda_idempotency::sqs::Selector;
///
/// let in_an_event = Selector::pointer("/detail/order_id")?;
/// let beside_the_body = Selector::attribute("payment-id");
/// assert!(Selector::pointer("detail.order_id").is_err());
/// # Ok::<(), lambda_idempotency::sqs::SelectorError>(())
/// ```
#[derive(Clone)]
pub struct Selector(Place);

#[derive(Clone)]
enum Place {
    Attribute(Arc<str>),
    Pointer(Arc<Pointer>),
    #[cfg(feature = "jmespath")]
    Jmespath(Arc<jmespath::Query>),
}

/// Why a selector can't be used. It is found when the selector is made, before any message arrives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// The pointer is not what [RFC 6901](https://www.rfc-editor.org/rfc/rfc6901) calls one.
    #[error(
        "`{pointer}` is no JSON pointer: it starts with `/`, as in `/detail/order_id`, and a `~` in a name is written `~0`, a `/` `~1`"
    )]
    Pointer {
        /// As given.
        pointer: String,
    },
    /// The expression doesn't compile.
    #[cfg(feature = "jmespath")]
    #[cfg_attr(docsrs, doc(cfg(feature = "jmespath")))]
    #[error("`{expression}` is no JMESPath expression: {reason}")]
    Jmespath {
        /// As given.
        expression: String,
        /// What the compiler said.
        reason: String,
    },
}

impl Selector {
    /// The value of a message attribute; of a binary one, its Base64 text.
    pub fn attribute(name: impl Into<String>) -> Self {
        Self(Place::Attribute(name.into().into()))
    }

    /// What a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) finds in the body, such as
    /// `/detail/order_id` or `/items/0/id`. Numbers keep all their digits.
    ///
    /// # Errors
    ///
    /// When it is no pointer.
    pub fn pointer(pointer: &str) -> Result<Self, SelectorError> {
        Ok(Self(Place::Pointer(Arc::new(Pointer::parse(pointer)?))))
    }

    /// What a [JMESPath](https://jmespath.org) expression finds in the body, such as `[detail.tenant, detail.order_id]`.
    ///
    /// The expression is compiled once, here. One that fails on a message, because a function was given the wrong type, has
    /// found nothing in it. Numbers beyond 64 bits lose digits, and `==` tells `7` from `7.0`; a pointer keeps all digits, and takes
    /// each spelling of a number for the same.
    ///
    /// ```
    /// use lambda_idempotency::sqs::Selector;
    ///
    /// let of_an_order = Selector::jmespath("[detail.tenant, detail.order_id]")?;
    /// let error = Selector::jmespath("detail.[").unwrap_err();
    /// assert!(error.to_string().starts_with("`detail.[` is no JMESPath expression"));
    /// # Ok::<(), lambda_idempotency::sqs::SelectorError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When it doesn't compile.
    #[cfg(feature = "jmespath")]
    #[cfg_attr(docsrs, doc(cfg(feature = "jmespath")))]
    pub fn jmespath(expression: &str) -> Result<Self, SelectorError> {
        let query = jmespath::Query::compile(expression)?;
        Ok(Self(Place::Jmespath(Arc::new(query))))
    }

    /// The token, where there is one. `text` is the message's body.
    pub(super) fn token(&self, message: &SqsMessage, text: &str) -> Option<String> {
        match &self.0 {
            Place::Attribute(name) => attribute::find(message, name),
            Place::Pointer(pointer) => token::of_json(pointer.find(text)?),
            #[cfg(feature = "jmespath")]
            Place::Jmespath(query) => token::of_json(&query.find(text)?),
        }
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Attribute(name) => f.debug_tuple("Attribute").field(name).finish(),
            Place::Pointer(pointer) => f.debug_tuple("Pointer").field(pointer).finish(),
            #[cfg(feature = "jmespath")]
            Place::Jmespath(query) => f.debug_tuple("Jmespath").field(query).finish(),
        }
    }
}
