//! Reads a message: opens its envelopes, decodes what is inside, takes its key and its fingerprint.
//! Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::batch::Source;
use crate::batch::content::Content;
use crate::batch::fetch::Fetch;
use crate::batch::fingerprint::FingerprintSource;
use crate::batch::key::KeySource;
use crate::batch::report::Reason;
use crate::envelope::{Envelope, EnvelopeError, S3Pointer, is_s3_pointer};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::Key;
use crate::protocol::record::error_kind;

/// Says how long the outcome of a message is kept, by its decoded body or by the message as it was
/// delivered.
type Retention<S, T> = dyn Fn(&T, &<S as Source>::Record) -> Option<Duration> + Send + Sync;

/// Decodes the body of a message. The flag says whether an error may quote it.
type Decode<S, T> = dyn Fn(&[u8], &<S as Source>::Record, bool) -> Result<T, Reason> + Send + Sync;

/// Says how the messages of a layer are read.
pub(super) struct Reader<S: Source, T> {
    /// The outermost first.
    pub(super) envelopes: Vec<Envelope>,
    /// Fetches what a pointer to S3 among them stands for.
    pub(super) fetch: Option<Fetch>,
    pub(super) decode: Arc<Decode<S, T>>,
    pub(super) key: KeySource<S, T>,
    pub(super) fingerprint: FingerprintSource<S, T>,
    /// The names of the attributes that are part of the fingerprint.
    pub(super) attributes: Arc<BTreeSet<String>>,
    /// The parser's messages are shown as they are, although they quote the body.
    pub(super) quotes_errors: bool,
    pub(super) retention: Option<Arc<Retention<S, T>>>,
}

clone_fields!([S: Source, T] Reader<S, T> { envelopes, fetch, decode, key, fingerprint, attributes, quotes_errors, retention });

/// Holds what was read of a message.
pub(super) struct Contents<T> {
    pub(super) body: T,
    pub(super) key: Option<Key>,
    pub(super) fingerprint: Option<Fingerprint>,
    /// `None` where it is the engine's.
    pub(super) retention: Option<Duration>,
}

impl<S: Source, T: DeserializeOwned> Reader<S, T> {
    /// Makes the reader of JSON messages without an envelope, whose key is the message id.
    pub(super) fn new() -> Self {
        Self::of(Arc::new(|body: &[u8], _: &S::Record, quotes| {
            serde_json::from_slice(body).map_err(|error| Reason::undecodable(&error, quotes))
        }))
    }
}

impl<S: Source, T> Reader<S, T> {
    /// Makes the reader of messages that this function decodes.
    pub(super) fn with<E: fmt::Display>(
        decode: impl Fn(&[u8], &S::Record) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Arc::new(move |body: &[u8], message: &S::Record, quotes| {
            decode(body, message).map_err(|error| {
                Reason::Undecodable(if quotes {
                    error.to_string()
                } else {
                    error_kind::<E>().to_owned()
                })
            })
        }))
    }

    fn of(decode: Arc<Decode<S, T>>) -> Self {
        Self {
            envelopes: Vec::new(),
            fetch: None,
            decode,
            key: KeySource::message_id(),
            fingerprint: FingerprintSource::without([]),
            attributes: Arc::default(),
            quotes_errors: false,
            retention: None,
        }
    }

    /// Gives the pointer whose object is to be fetched before the message is read.
    pub(super) fn pointer(&self, message: &S::Record) -> Option<(&Fetch, S3Pointer)> {
        let fetch = self.fetch.as_ref()?;
        let opened = Envelope::open_all(&self.envelopes, S::body(message).ok()?, None);
        Some((fetch, opened.ok()??.pointer?))
    }

    /// Reads a message, with what was fetched for it. Where nothing is protected, it has neither key
    /// nor fingerprint if one of the closures for them panics: its handler runs as if they were not
    /// there.
    pub(super) fn read(
        &self,
        operation: Arc<str>,
        message: &S::Record,
        payload: Option<&str>,
        is_passive: bool,
    ) -> Result<Contents<T>, Reason> {
        let body = S::body(message).map_err(Reason::NoBody)?;
        let content = Content::<S>::open(message, body, &self.envelopes, payload);
        let content = content.map_err(Reason::Envelope)?;
        let decoded = (self.decode)(content.bytes(), message, self.quotes_errors);
        let body = decoded.map_err(|reason| match reason {
            Reason::Undecodable(_) if is_s3_pointer(content.text()) => {
                Reason::Envelope(EnvelopeError::S3Pointer)
            }
            reason => reason,
        })?;
        let identity = || {
            let key = self.key.key(operation, &content, &body);
            let fingerprint = self.fingerprint.of(&content, &body, &self.attributes);
            let retention = self.retention.as_ref();
            let retention = retention.and_then(|closure| closure(&body, message));
            (key, fingerprint, retention)
        };
        let (key, fingerprint, retention) = if is_passive {
            catch_unwind(AssertUnwindSafe(identity)).unwrap_or_default()
        } else {
            identity()
        };
        Ok(Contents {
            body,
            key,
            fingerprint,
            retention,
        })
    }
}

impl<S: Source, T> fmt::Debug for Reader<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("envelopes", &self.envelopes)
            .field("fetches", &self.fetch.is_some())
            .field("key", &self.key)
            .field("fingerprint", &self.fingerprint)
            .field("attributes", &self.attributes)
            .field("quotes_errors", &self.quotes_errors)
            .finish_non_exhaustive()
    }
}
