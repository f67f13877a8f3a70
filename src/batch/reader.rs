//! Reads a message: opens its envelopes, decodes what is inside, takes its key and its fingerprint.
//! Pure.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::batch::Source;
use crate::batch::key::{self, KeyPlace};
use crate::batch::message::Content;
use crate::batch::report::{Fate, Reason};
use crate::batch::settings::Settings;
use crate::engine::hook::Hook;
use crate::envelope::{Envelope, S3Pointer, UNDECLARED_POINTER, is_s3_pointer};
use crate::protocol::causes::cut;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, KeyError, RecordId};
use crate::protocol::key_source::{Identity, KeySource};
use crate::protocol::pointer::Pointer;
use crate::protocol::record::error_kind;
use crate::protocol::selector::Selector;

#[cfg(test)]
pub(crate) mod tests;

/// Returns how long the outcome of a message is kept, by its decoded body or by the message as it was
/// delivered.
type Retention<S, T> = dyn Fn(&T, &<S as Source>::Record) -> Option<Duration> + Send + Sync;

/// Decodes the body of a message. The flag says whether an error may quote it.
type Decode<S, T> = dyn Fn(&[u8], &<S as Source>::Record, bool) -> Result<T, Reason> + Send + Sync;

/// Reads the messages of a layer.
pub(super) struct Reader<S: Source, T> {
    /// The outermost first.
    pub(super) envelopes: Vec<Envelope>,
    /// Fetches what a pointer to S3 among them stands for.
    pub(super) fetch: Option<Fetch>,
    pub(super) decode: Arc<Decode<S, T>>,
    pub(super) key: KeySource<T, S::Record, KeyPlace>,
    pub(super) fingerprint: FingerprintSource<S, T>,
    /// The parser's messages are shown as they are, although they quote the body.
    pub(super) quotes_errors: bool,
    pub(super) retention: Option<Arc<Retention<S, T>>>,
}

clone_fields!([S: Source, T] Reader<S, T> { envelopes, fetch, decode, key, fingerprint, quotes_errors, retention });

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
                    cut(&error.to_string())
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
            key: KeySource::of_source(),
            fingerprint: FingerprintSource::new(),
            quotes_errors: false,
            retention: None,
        }
    }

    /// Returns the pointer whose object is to be fetched before the message is read.
    pub(super) fn pointer(&self, message: &S::Record) -> Option<(&Fetch, S3Pointer)> {
        let fetch = self.fetch.as_ref()?;
        let opened = Envelope::open_all(&self.envelopes, S::body(message).ok()?, None);
        Some((fetch, opened.ok()??.pointer?))
    }

    /// Reads a message, with what was fetched for it: its body, and its identity.
    pub(super) fn read(
        &self,
        operation: Arc<str>,
        message: &S::Record,
        payload: Option<&str>,
        is_passive: bool,
    ) -> Result<(T, Identity), Reason> {
        let body = S::body(message).map_err(Reason::NoBody)?;
        let content = Content::<S>::open(message, body, &self.envelopes, payload);
        let content = content.map_err(Reason::Envelope)?;
        let decoded = (self.decode)(content.bytes(), message, self.quotes_errors);
        let body = decoded.map_err(|reason| match reason {
            Reason::Undecodable(_) if is_s3_pointer(content.text()) => {
                Reason::Envelope(UNDECLARED_POINTER)
            }
            reason => reason,
        })?;
        let identity = Identity::take(is_passive, || -> Result<_, Reason> {
            let find = |place: Option<&KeyPlace>| match place {
                Some(place) => place.token(&content).map_err(Reason::Undecodable),
                None => Ok(content.id().map(Cow::into_owned)),
            };
            let retention = self.retention.as_ref();
            Ok(Identity {
                key: self.key.key(operation, &body, message, None, find)?,
                fingerprint: self.fingerprint.of(&content, &body),
                retention: retention.and_then(|closure| closure(&body, message)),
            })
        })?;
        Ok((body, identity))
    }
}

impl<S: Source, T> fmt::Debug for Reader<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("envelopes", &self.envelopes)
            .field("fetches", &self.fetch.is_some())
            .field("key", &self.key)
            .field("fingerprint", &self.fingerprint)
            .field("quotes_errors", &self.quotes_errors)
            .finish_non_exhaustive()
    }
}

/// Holds a message that is ready to run: its identity was taken before the handler can change it.
pub(super) struct Ready<S: Source, T> {
    /// The message's place in the batch.
    pub(super) position: usize,
    /// The body and the message around it. They are boxed, because several futures hand them on,
    /// and each would have room for all of it.
    pub(super) received: Box<(T, S::Record)>,
    /// Whether the body was fetched, and so may be larger than the event.
    pub(super) is_fetched: bool,
    pub(super) identity: Identity,
    /// An earlier message of the batch has its key, and has ended for good.
    pub(super) is_second: bool,
}

/// Holds a message whose turn it is.
pub(super) struct Turn<R> {
    /// The message's place in the batch.
    pub(super) position: usize,
    pub(super) message: R,
    /// The payload that its body points to, where that was fetched.
    pub(super) payload: Option<Result<String, Reason>>,
}

/// The fate of a message, as far as that is known before it runs.
pub(super) enum Planned<S: Source, T> {
    ToRun(Ready<S, T>),
    /// It differs from the message in this position, which has the same key.
    Differs(usize, S::Record),
    Decided(Fate),
}

/// Plans the messages of one batch, each when its turn has come: a message is decoded when there is
/// room for it to run, so that a large batch is never held decoded.
pub(super) struct Planner<'a, S: Source, T, F> {
    operation: Option<&'a Arc<str>>,
    reader: &'a Reader<S, T>,
    /// Returns the record of a key; `None` where nothing is protected, and no messages are compared.
    identify: Option<F>,
    /// The first message of each record: its position, its operation and its fingerprint.
    leaders: HashMap<RecordId, (usize, Arc<str>, Option<Fingerprint>)>,
}

impl<'a, S, T, F> Planner<'a, S, T, F>
where
    S: Source,
    F: Fn(&Key) -> Result<RecordId, KeyError>,
{
    /// Makes the planner of a batch of so many messages.
    pub(super) fn new(
        messages: usize,
        operation: Option<&'a Arc<str>>,
        reader: &'a Reader<S, T>,
        identify: Option<F>,
    ) -> Self {
        Self {
            operation,
            reader,
            identify,
            leaders: HashMap::with_capacity(messages),
        }
    }

    /// Plans a message whose turn it is: the first of each request runs, the others follow it, so
    /// that a key runs once in a batch. One that differs from the first waits until that one has ended
    /// for good: then only the store knows whether it is another request.
    pub(super) fn plan(&mut self, turn: Turn<S::Record>, fates: &[Fate]) -> Planned<S, T> {
        match self.prepare(turn) {
            Ok(ready) => self.among_leaders(ready, fates),
            Err(reason) => Planned::Decided(Fate::Reported(reason)),
        }
    }

    /// Compares a message with the earlier one of its key. The first of a request leads from now on.
    fn among_leaders(&mut self, mut ready: Ready<S, T>, fates: &[Fate]) -> Planned<S, T> {
        let (Some(key), Some(identify)) = (&ready.identity.key, &self.identify) else {
            return Planned::ToRun(ready);
        };
        let Ok(record) = identify(key) else {
            // The engine refuses the key, and logs it.
            return Planned::ToRun(ready);
        };
        let operation = key.shared_operation();
        let fingerprint = ready.identity.fingerprint.clone();
        ready.identity.key = Some(key.resolved(record.clone()));
        if let Some((leader, first, payload)) = self.leaders.get(&record) {
            // A raw id doesn't tell operations apart. Even one that nobody named doesn't change its
            // name within a batch.
            if *first == operation && !differs(payload.as_ref(), fingerprint.as_ref()) {
                return Planned::Decided(Fate::Follows(*leader));
            }
            if !fates.get(*leader).is_some_and(Fate::is_final) {
                return Planned::Differs(*leader, ready.received.1);
            }
            ready.is_second = true;
        }
        let leads = (ready.position, operation, fingerprint);
        self.leaders.insert(record, leads);
        Planned::ToRun(ready)
    }

    fn prepare(&self, turn: Turn<S::Record>) -> Result<Ready<S, T>, Reason> {
        let Turn {
            position,
            message,
            payload,
        } = turn;
        let payload = payload.transpose()?;
        let is_fetched = payload.is_some();
        let operation = match self.operation {
            Some(operation) => Arc::clone(operation),
            None => S::origin(&message).unwrap_or(S::NAME).into(),
        };
        // The caller's code runs here, too (decoding, key, fingerprint): a panic in it concerns this
        // message alone.
        let is_passive = self.identify.is_none();
        let read = || {
            let payload = payload.as_deref();
            self.reader.read(operation, &message, payload, is_passive)
        };
        let read = catch_unwind(AssertUnwindSafe(read));
        let (body, mut identity) = read.unwrap_or(Err(Reason::Panicked))?;
        identity.key = identity.key.map(|key| key.bound_to(self.operation));
        Ok(Ready {
            position,
            received: Box::new((body, message)),
            is_fetched,
            identity,
            is_second: false,
        })
    }
}

/// Returns whether two messages of one key are different requests: as the store compares them, where
/// both have a fingerprint.
fn differs(one: Option<&Fingerprint>, other: Option<&Fingerprint>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

/// Fetches what a pointer stands for.
type Fetch = Hook<S3Pointer, String>;

/// Takes the fingerprint from a decoded body, or from the message as it was delivered.
type Closure<S, T> = dyn Fn(&T, &<S as Source>::Record) -> Option<Fingerprint> + Send + Sync;

/// The part of a message that its fingerprint is of.
pub(super) struct FingerprintSource<S: Source, T> {
    /// The closure makes it of the decoded body.
    closure: Option<Arc<Closure<S, T>>>,
    /// Else it is of a value of the message as it was received.
    selector: Option<Selector>,
    /// Else it is of the whole content, without these fields.
    left_out: Arc<[Pointer]>,
    /// The names of the attributes that are part of it.
    attributes: Arc<BTreeSet<String>>,
}

clone_fields!([S: Source, T] FingerprintSource<S, T> { closure, selector, left_out, attributes });

impl<S: Source, T> FingerprintSource<S, T> {
    /// Makes the fingerprint of the whole content.
    fn new() -> Self {
        Self {
            closure: None,
            selector: None,
            left_out: Arc::default(),
            attributes: Arc::default(),
        }
    }

    /// Takes what the settings say of it.
    pub(super) fn set(&mut self, settings: &Settings) {
        self.selector.clone_from(&settings.fingerprint_from);
        self.left_out = settings.fingerprint_without.clone().into();
        let names = settings.fingerprint_attributes.iter().cloned();
        self.attributes = Arc::new(names.collect());
    }

    pub(super) fn set_closure<V: Into<Option<Fingerprint>>>(
        &mut self,
        fingerprint: impl Fn(&T, &S::Record) -> V + Send + Sync + 'static,
    ) {
        self.closure = Some(Arc::new(move |body, message| {
            fingerprint(body, message).into()
        }));
    }

    /// Takes the fingerprint, and that of the attributes; `None` where the message is not compared.
    pub(super) fn of(&self, content: &Content<'_, S>, body: &T) -> Option<Fingerprint> {
        let names = &*self.attributes;
        let fingerprint = match (&self.closure, &self.selector) {
            (Some(closure), _) => closure(body, content.message())?,
            // It would differ from that of the payload, once this is fetched.
            (None, _) if content.is_unknown() && names.is_empty() => return None,
            (None, Some(selector)) if !content.is_unknown() => {
                key::fingerprint(selector, content.bytes())
            }
            (None, _) => content.fingerprint(&self.left_out),
        };
        Some(with_attributes(fingerprint, content, names))
    }
}

/// Adds the attributes of these names to a fingerprint; without names, it stays as it is.
fn with_attributes<S: Source>(
    fingerprint: Fingerprint,
    content: &Content<'_, S>,
    names: &BTreeSet<String>,
) -> Fingerprint {
    if names.is_empty() {
        return fingerprint;
    }
    let attributes = names.iter().flat_map(|name| {
        let value = content.attribute(name);
        // An attribute that is not there differs from an empty one.
        let presence: &[u8] = if value.is_some() { b"1" } else { b"0" };
        let texts = [
            name.as_bytes(),
            presence,
            value.as_deref().unwrap_or_default().as_bytes(),
        ];
        texts.map(Fingerprint::bytes)
    });
    let parts: Vec<_> = std::iter::once(fingerprint).chain(attributes).collect();
    Fingerprint::combine(&parts)
}

impl<S: Source, T> fmt::Debug for FingerprintSource<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FingerprintSource")
            .field("is_closure", &self.closure.is_some())
            .field("selector", &self.selector)
            .field("left_out", &self.left_out)
            .field("attributes", &self.attributes)
            .finish()
    }
}
