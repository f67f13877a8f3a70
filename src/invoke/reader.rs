//! Reads an event: opens it, decodes what is inside, takes its key and its fingerprint. Pure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::error::InvokeError;
use super::key::KeySource;
use super::kind::{Content, Kind, KindError, is_durable};
use crate::protocol::causes;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;
use crate::protocol::pointer::Pointer;

type Retention<T> = dyn Fn(&T) -> Option<Duration> + Send + Sync;
type Closure<T> = dyn Fn(&T) -> Option<Fingerprint> + Send + Sync;

/// Says what the fingerprint of an event is of.
pub(super) enum FingerprintSource<T> {
    /// The whole content, without these fields.
    Content(Arc<[Pointer]>),
    /// The closure makes it of the decoded payload.
    Closure(Arc<Closure<T>>),
    /// Nothing: events of one key are not compared.
    Nothing,
}

impl<T> Clone for FingerprintSource<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Content(left_out) => Self::Content(Arc::clone(left_out)),
            Self::Closure(closure) => Self::Closure(Arc::clone(closure)),
            Self::Nothing => Self::Nothing,
        }
    }
}

impl<T> FingerprintSource<T> {
    fn of(&self, content: &Content<'_>, payload: &T) -> Option<Fingerprint> {
        match self {
            Self::Content(left_out) => Some(content.fingerprint(left_out)),
            Self::Closure(closure) => closure(payload),
            Self::Nothing => None,
        }
    }
}

/// Says how the events of a layer are read.
pub(super) struct Reader<T> {
    pub(super) kind: Kind,
    pub(super) key: KeySource<T>,
    pub(super) fingerprint: FingerprintSource<T>,
    pub(super) retention: Option<Arc<Retention<T>>>,
    /// The parser's messages are shown as they are, although they quote the payload.
    pub(super) quotes_errors: bool,
}

clone_fields!([T] Reader<T> { kind, key, fingerprint, retention, quotes_errors });

/// Holds what was read of an event.
pub(super) struct Contents<T> {
    pub(super) payload: T,
    pub(super) key: Option<Key>,
    pub(super) fingerprint: Option<Fingerprint>,
    /// `None` where it is the engine's.
    pub(super) retention: Option<Duration>,
}

impl<T: DeserializeOwned> Reader<T> {
    /// Reads an event. Where nothing is protected, it has neither key nor fingerprint if there is
    /// no key, or if one of the closures panics: its handler runs as if they were not there.
    pub(super) fn read<E>(
        &self,
        operation: Arc<str>,
        event: &str,
        is_passive: bool,
    ) -> Result<Contents<T>, InvokeError<E>> {
        // A stored answer of one invocation would be replayed to the next, for as long as it is kept.
        if !is_passive && is_durable(event) {
            return Err(wrong(KindError::Durable));
        }
        if !is_passive && self.key.is_unset(self.kind) {
            return Err(InvokeError::NoKey);
        }
        let content = self.kind.open(event).map_err(wrong)?;
        let payload: T = serde_json::from_str(&content.text).map_err(|error| {
            let reason = if self.quotes_errors {
                error.to_string()
            } else {
                causes::unquoted(&error)
            };
            InvokeError::Undecodable { reason }
        })?;
        let identity = || {
            let key = self.key.key(operation, self.kind, &content, &payload)?;
            let fingerprint = self.fingerprint.of(&content, &payload);
            let retention = self.retention.as_ref();
            let retention = retention.and_then(|closure| closure(&payload));
            Ok((key, fingerprint, retention))
        };
        let identity: Result<_, KindError> = if is_passive {
            let caught = catch_unwind(AssertUnwindSafe(identity));
            Ok(caught.ok().and_then(Result::ok).unwrap_or_default())
        } else {
            identity()
        };
        let (key, fingerprint, retention) = identity.map_err(wrong)?;
        Ok(Contents {
            payload,
            key,
            fingerprint,
            retention,
        })
    }
}

fn wrong<E>(error: KindError) -> InvokeError<E> {
    InvokeError::WrongEvent {
        reason: error.to_string(),
    }
}
