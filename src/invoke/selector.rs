//! Finds the token of an event in its JSON text.

use std::fmt;

use crate::protocol::selector::{JsonSelector, SelectorError};

/// Selects a value of an event's JSON.
///
/// It reads the event as it was received, not the decoded payload, so that a handler's type needs
/// no field for it. Of an event of SNS it reads the message, of one of an EventBridge bus the
/// `detail`, of one of an S3 Batch Operations job the whole event.
///
/// [`InvokeLayer::key_from`](super::InvokeLayer::key_from) makes a token of what it finds:
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
/// use lambda_idempotency::invoke::Selector;
///
/// let of_a_settlement = Selector::pointer("/settlement/id")?;
/// assert!(Selector::pointer("settlement.id").is_err());
/// # Ok::<(), lambda_idempotency::invoke::SelectorError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Selector(JsonSelector);

impl Selector {
    /// Selects the value that a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901))
    /// finds, such as `/settlement/id` or `/items/0/id`. Numbers keep all their digits.
    ///
    /// # Errors
    ///
    /// The text is no JSON pointer.
    pub fn pointer(pointer: &str) -> Result<Self, SelectorError> {
        Ok(Self(JsonSelector::pointer(pointer)?))
    }

    /// Selects the value that a [JMESPath](https://jmespath.org) expression finds, such as
    /// `[merchant, settlement_id]`.
    ///
    /// The expression is compiled once, here. One that fails on an event, because a function was
    /// given the wrong type, finds nothing in it. Numbers beyond 64 bits lose digits, and `7` and
    /// `7.0` are not equal; a pointer keeps all digits, and takes each spelling of a number for the
    /// same.
    ///
    /// ```
    /// use lambda_idempotency::invoke::Selector;
    ///
    /// let of_a_merchant = Selector::jmespath("[merchant, settlement_id]")?;
    /// assert!(Selector::jmespath("merchant.[").is_err());
    /// # Ok::<(), lambda_idempotency::invoke::SelectorError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The expression doesn't compile.
    #[cfg(feature = "jmespath")]
    #[cfg_attr(docsrs, doc(cfg(feature = "jmespath")))]
    pub fn jmespath(expression: &str) -> Result<Self, SelectorError> {
        Ok(Self(JsonSelector::jmespath(expression)?))
    }

    /// Takes the token from a text, where there is one.
    pub(super) fn token(&self, text: &str) -> Option<String> {
        self.0.token(text)
    }
}

/// Names the place for a person.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in the payload", self.0)
    }
}
