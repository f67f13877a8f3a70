//! Reads an event: opens it, decodes what is inside, takes its key and its fingerprint. Pure.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::invoke::error::InvokeError;
use crate::invoke::kind::{Kind, KindError};
use crate::protocol::causes;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;
use crate::protocol::key_source::KeySource;
use crate::protocol::pointer::Pointer;
use crate::protocol::selector::JsonSelector;
use crate::setup::BuildError;

type Retention<T> = dyn Fn(&T) -> Option<Duration> + Send + Sync;
type Closure<T> = dyn Fn(&T) -> Option<Fingerprint> + Send + Sync;

/// Says how the events of a layer are read.
pub(super) struct Reader<T> {
    pub(super) kind: Kind,
    pub(super) key: KeySource<T, (), Selector>,
    /// Makes the fingerprint of the decoded payload.
    pub(super) fingerprint: Option<Arc<Closure<T>>>,
    /// Without the closure, the fingerprint is of the whole content, without these fields.
    pub(super) left_out: Arc<[Pointer]>,
    pub(super) retention: Option<Arc<Retention<T>>>,
    /// The parser's messages are shown as they are, although they quote the payload.
    pub(super) quotes_errors: bool,
}

clone_fields!([T] Reader<T> { kind, key, fingerprint, left_out, retention, quotes_errors });

/// Holds what was read of an event.
pub(super) struct Contents<T> {
    pub(super) payload: T,
    pub(super) key: Option<Key>,
    pub(super) fingerprint: Option<Fingerprint>,
    /// `None` where it is the engine's.
    pub(super) retention: Option<Duration>,
}

impl<T: DeserializeOwned> Reader<T> {
    /// Reads an event. `tenant` is the one that Lambda names for the invocation. Where nothing is
    /// protected, an event has neither key nor fingerprint if there is no key, or if one of the
    /// closures panics: its handler runs as if they were not there.
    pub(super) fn read<E>(
        &self,
        operation: Arc<str>,
        event: &str,
        tenant: Option<&str>,
        is_passive: bool,
    ) -> Result<Contents<T>, InvokeError<E>> {
        if !is_passive && self.kind == Kind::Direct && self.key.is_of_source() {
            return Err(InvokeError::NoKey);
        }
        let content = self.kind.open(event).map_err(wrong)?;
        let payload: T = serde_json::from_str(&content.text).map_err(|error| {
            let reason = causes::of_parser(&error, self.quotes_errors);
            InvokeError::Undecodable { reason }
        })?;
        let identity = || -> Result<_, InvokeError<E>> {
            let find = |selector: Option<&Selector>| match selector {
                Some(selector) => {
                    let token = selector.token(&content.text);
                    token.map_err(|reason| InvokeError::Undecodable { reason })
                }
                None => self.kind.token(&content).map_err(wrong::<E>),
            };
            let key = self.key.key(operation, &payload, &(), tenant, find)?;
            let fingerprint = match &self.fingerprint {
                Some(closure) => closure(&payload),
                None => Some(content.fingerprint(&self.left_out)),
            };
            let retention = self.retention.as_ref();
            let retention = retention.and_then(|closure| closure(&payload));
            Ok((key, fingerprint, retention))
        };
        let (key, fingerprint, retention) = if is_passive {
            let caught = catch_unwind(AssertUnwindSafe(identity));
            caught.ok().and_then(Result::ok).unwrap_or_default()
        } else {
            identity()?
        };
        Ok(Contents {
            payload,
            key,
            fingerprint,
            retention,
        })
    }
}

pub(super) fn wrong<E>(error: KindError) -> InvokeError<E> {
    InvokeError::WrongEvent {
        reason: error.to_string(),
    }
}

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
/// | a list or an object that holds `null` or `""`, at any depth | none: a part of the identity is missing |
///
/// ```
/// use lambda_idempotency::invoke::Selector;
///
/// let of_a_settlement = Selector::pointer("/settlement/id")?;
/// assert!(Selector::pointer("settlement.id").is_err());
/// # Ok::<(), lambda_idempotency::BuildError>(())
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
    pub fn pointer(pointer: &str) -> Result<Self, BuildError> {
        Ok(Self(JsonSelector::pointer(pointer)?))
    }

    /// Selects the value that a [JMESPath](https://jmespath.org) expression finds, such as
    /// `[merchant, settlement_id]`.
    ///
    /// The expression is compiled once, here. One that fails on an event, because a function was
    /// given the wrong type, finds nothing in it. Numbers beyond 64 bits lose digits, and `7` and
    /// `7.0` are not equal; a pointer keeps all digits, and takes each spelling of a number for the
    /// same. JSON with half of a surrogate pair, with a number beyond a double's range or of more
    /// than 127 levels can't be read: such an event fails as
    /// [`Undecodable`](super::InvokeError::Undecodable).
    ///
    /// ```
    /// use lambda_idempotency::invoke::Selector;
    ///
    /// let of_a_merchant = Selector::jmespath("[merchant, settlement_id]")?;
    /// assert!(Selector::jmespath("merchant.[").is_err());
    /// # Ok::<(), lambda_idempotency::BuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The expression doesn't compile.
    #[cfg(feature = "jmespath")]
    #[cfg_attr(docsrs, doc(cfg(feature = "jmespath")))]
    pub fn jmespath(expression: &str) -> Result<Self, BuildError> {
        Ok(Self(JsonSelector::jmespath(expression)?))
    }

    /// Takes the token from a text, where there is one. An error says why it can't read the text.
    pub(super) fn token(&self, text: &str) -> Result<Option<String>, String> {
        self.0.token(text)
    }
}

/// Names the place for an operator.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in the payload", self.0)
    }
}
