//! Reads an event: opens it, decodes what is inside, takes its key and its fingerprint. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::invoke::error::InvokeError;
use crate::invoke::kind::Kind;
use crate::protocol::causes;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key_source::{Identity, KeySource};
use crate::protocol::pointer::Pointer;
use crate::protocol::selector::Selector;

type Retention<T> = dyn Fn(&T) -> Option<Duration> + Send + Sync;
type Closure<T> = dyn Fn(&T) -> Option<Fingerprint> + Send + Sync;

/// Says how the events of a layer are read.
pub(super) struct Reader<T> {
    pub(super) kind: Kind,
    pub(super) key: KeySource<T, (), Place>,
    /// Makes the fingerprint of the decoded payload.
    pub(super) fingerprint: Option<Arc<Closure<T>>>,
    /// Without the closure, the fingerprint is of the whole content, without these fields.
    pub(super) left_out: Arc<[Pointer]>,
    pub(super) retention: Option<Arc<Retention<T>>>,
    /// The parser's messages are shown as they are, although they quote the payload.
    pub(super) quotes_errors: bool,
}

clone_fields!([T] Reader<T> { kind, key, fingerprint, left_out, retention, quotes_errors });

impl<T: DeserializeOwned> Reader<T> {
    /// Reads an event: its payload, and its identity. `tenant` is the one that Lambda names for the
    /// invocation.
    pub(super) fn read<E>(
        &self,
        operation: Arc<str>,
        event: &str,
        tenant: Option<&str>,
        is_passive: bool,
    ) -> Result<(T, Identity), InvokeError<E>> {
        if !is_passive && self.kind == Kind::Direct && self.key.is_of_source() {
            return Err(InvokeError::NoKey);
        }
        let content = self.kind.open(event).map_err(wrong)?;
        let payload: T = serde_json::from_str(&content.text).map_err(|error| {
            let reason = causes::of_parser(&error, self.quotes_errors);
            InvokeError::Undecodable { reason }
        })?;
        let identity = Identity::take(is_passive, || -> Result<_, InvokeError<E>> {
            let find = |place: Option<&Place>| match place {
                Some(Place(selector)) => {
                    let token = selector.token(&content.text);
                    token.map_err(|reason| InvokeError::Undecodable { reason })
                }
                None => self.kind.token(&content).map_err(wrong::<E>),
            };
            let retention = self.retention.as_ref();
            Ok(Identity {
                key: self.key.key(operation, &payload, &(), tenant, find)?,
                fingerprint: match &self.fingerprint {
                    Some(closure) => closure(&payload),
                    None => Some(content.fingerprint(&self.left_out)),
                },
                retention: retention.and_then(|closure| closure(&payload)),
            })
        })?;
        Ok((payload, identity))
    }
}

pub(super) fn wrong<E>(reason: &str) -> InvokeError<E> {
    InvokeError::WrongEvent {
        reason: reason.to_owned(),
    }
}

/// The place of an event's key.
#[derive(Debug)]
pub(super) struct Place(pub(super) Selector);

/// Names the place for an operator.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in the payload", self.0)
    }
}
