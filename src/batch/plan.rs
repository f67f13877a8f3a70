//! Plans a message before it runs: reads it, and compares it with the messages before it. Pure.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::batch::Source;
use crate::batch::fate::Fate;
use crate::batch::reader::{Contents, Reader};
use crate::batch::report::Reason;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, KeyError, RecordId};

/// Holds a message that is ready to run: its identity was taken before the handler can change it.
pub(super) struct Ready<S: Source, T> {
    /// The message's place in the batch.
    pub(super) position: usize,
    /// The body and the message around it. They are boxed, because several futures hand them on,
    /// and each would have room for all of it.
    pub(super) received: Box<(T, S::Record)>,
    /// The body is a payload that was fetched, and may be larger than the event.
    pub(super) is_fetched: bool,
    pub(super) key: Option<Key>,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) retention: Option<Duration>,
}

/// Holds a message whose turn it is.
pub(super) struct Turn<R> {
    /// The message's place in the batch.
    pub(super) position: usize,
    pub(super) message: R,
    /// What its body points to, where that was fetched.
    pub(super) payload: Option<Result<String, Reason>>,
}

/// Says what becomes of a message, as far as that is known before it runs.
pub(super) enum Planned<S: Source, T> {
    ToRun(Ready<S, T>),
    Decided(Fate),
}

/// Plans the messages of one batch, each when its turn has come: a message is decoded when there is
/// room for it to run, so that a large batch is never held decoded.
pub(super) struct Planner<'a, S: Source, T, F> {
    operation: Option<&'a Arc<str>>,
    reader: &'a Reader<S, T>,
    /// Gives the record of a key; `None` where nothing is protected, and no messages are compared.
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
    /// that a key runs once in a batch.
    pub(super) fn plan(&mut self, turn: Turn<S::Record>) -> Planned<S, T> {
        let planned = self.prepare(turn);
        match planned.and_then(|mut ready| Ok((self.leader(&mut ready)?, ready))) {
            Ok((None, ready)) => Planned::ToRun(ready),
            Ok((Some(leader), _)) => Planned::Decided(Fate::Follows(leader)),
            Err(reason) => Planned::Decided(Fate::Reported(reason)),
        }
    }

    /// Finds the earlier message that is the same request; `None` for the first, which leads from
    /// now on.
    fn leader(&mut self, ready: &mut Ready<S, T>) -> Result<Option<usize>, Reason> {
        let (Some(key), Some(identify)) = (&ready.key, &self.identify) else {
            return Ok(None);
        };
        let operation = key.shared_operation();
        let record = identify(key).map_err(Reason::Key)?;
        ready.key = Some(key.resolved(record.clone()));
        match self.leaders.entry(record) {
            Entry::Vacant(place) => {
                place.insert((ready.position, operation, ready.fingerprint.clone()));
                Ok(None)
            }
            Entry::Occupied(place) => {
                let (leader, first, payload) = place.get();
                // A raw id doesn't tell operations apart. Even one that nobody named doesn't change
                // its name within a batch.
                if *first != operation || differs(payload.as_ref(), ready.fingerprint.as_ref()) {
                    return Err(Reason::Mismatch { leader: *leader });
                }
                Ok(Some(*leader))
            }
        }
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
        let Contents {
            body,
            key,
            fingerprint,
            retention,
        } = catch_unwind(AssertUnwindSafe(read)).unwrap_or(Err(Reason::Panicked))?;
        Ok(Ready {
            position,
            received: Box::new((body, message)),
            is_fetched,
            key: key.map(|key| key.bound_to(self.operation)),
            fingerprint,
            retention,
        })
    }
}

/// Tells whether two messages of one key are different requests: as the store compares them, where
/// both have a fingerprint.
fn differs(one: Option<&Fingerprint>, other: Option<&Fingerprint>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

#[cfg(test)]
pub(super) mod tests;
