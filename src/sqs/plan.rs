//! What is to become of each message, before it runs: pure, no store, no clock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aws_lambda_events::event::sqs::SqsMessage;
use serde::de::DeserializeOwned;

use crate::fingerprint::Fingerprint;
use crate::key::{Key, KeyError, RecordId};
use crate::sqs::batch::Fate;
use crate::sqs::key::KeySource;
use crate::sqs::report::Reason;

/// A message that is ready to run: all that identifies it was taken before any handler could touch it.
#[derive(Debug)]
pub(super) struct Ready<T> {
    /// Its place in the batch.
    pub(super) position: usize,
    /// The body and the message around it. Boxed: they are handed down through several futures, and each would have room for
    /// all of it.
    pub(super) received: Box<(T, SqsMessage)>,
    pub(super) key: Option<Key>,
    pub(super) fingerprint: Fingerprint,
    /// The positions of those that must be done before it starts.
    pub(super) after: Vec<usize>,
}

/// What is to become of a message, as far as that can be said before it runs.
#[derive(Debug)]
pub(super) enum Planned<T> {
    ToRun(Ready<T>),
    Decided(Fate),
}

/// How messages are told apart.
pub(super) struct Planner<'a, T, F> {
    pub(super) operation: Option<&'a Arc<str>>,
    pub(super) source: &'a KeySource<T>,
    /// The record that a key stands for; `None` where messages are not to be compared.
    pub(super) identify: F,
}

/// The messages of one batch, one after the other: each is looked at when there is room for it to run, so that a large batch
/// isn't held decoded.
pub(super) struct Planning<'a, T, F> {
    planner: Planner<'a, T, F>,
    leaders: Leaders,
    tails: HashMap<&'a str, Tail>,
}

impl<'a, T, F> Planning<'a, T, F>
where
    T: DeserializeOwned,
    F: Fn(&Key) -> Option<Result<RecordId, KeyError>>,
{
    /// The first message of each request is to run, the others follow it: the same key twice in a batch runs once.
    pub(super) fn next(
        &mut self,
        position: usize,
        message: SqsMessage,
        group: Option<&'a str>,
    ) -> Planned<T> {
        let mut alone = Tail::default();
        let tail = match group {
            Some(group) => self.tails.entry(group).or_default(),
            None => &mut alone,
        };
        if tail.is_broken {
            return Planned::Decided(Fate::Reported(Reason::GroupStopped));
        }
        match self.planner.take(&mut self.leaders, position, message) {
            Ok((None, mut ready)) => {
                if group.is_some() {
                    ready.after = std::mem::replace(&mut tail.after, vec![position]);
                }
                Planned::ToRun(ready)
            }
            Ok((Some(leader), _)) => {
                tail.after.push(leader);
                Planned::Decided(Fate::Follows(leader))
            }
            Err(reason) => {
                tail.is_broken = true;
                Planned::Decided(Fate::Reported(reason))
            }
        }
    }
}

impl<'a, T, F> Planner<'a, T, F>
where
    T: DeserializeOwned,
    F: Fn(&Key) -> Option<Result<RecordId, KeyError>>,
{
    /// For a batch of so many messages.
    pub(super) fn begin(self, messages: usize) -> Planning<'a, T, F> {
        Planning {
            planner: self,
            leaders: HashMap::with_capacity(messages),
            tails: HashMap::new(),
        }
    }

    /// The message, and the earlier one that it follows.
    fn take(
        &self,
        leaders: &mut Leaders,
        position: usize,
        message: SqsMessage,
    ) -> Result<(Option<usize>, Ready<T>), Reason> {
        let mut ready = self.prepare(position, message)?;
        Ok((self.leader(leaders, &mut ready)?, ready))
    }

    /// The earlier message that is the same request; `None` for the first, which leads from now on.
    fn leader(&self, leaders: &mut Leaders, ready: &mut Ready<T>) -> Result<Option<usize>, Reason> {
        let Some(key) = &ready.key else {
            return Ok(None);
        };
        let Some(record) = (self.identify)(key) else {
            return Ok(None);
        };
        let record = record.map_err(Reason::Key)?;
        ready.key = Some(key.resolved(record.clone()));
        match leaders.entry(record) {
            Entry::Vacant(place) => {
                place.insert((ready.position, ready.fingerprint.clone()));
                Ok(None)
            }
            Entry::Occupied(place) => match place.get() {
                (leader, same) if *same == ready.fingerprint => Ok(Some(*leader)),
                (leader, _) => Err(Reason::Mismatch { leader: *leader }),
            },
        }
    }

    fn prepare(&self, position: usize, message: SqsMessage) -> Result<Ready<T>, Reason> {
        let operation = match self.operation {
            Some(operation) => Arc::clone(operation),
            None => queue_name(&message).into(),
        };
        let text = message.body.as_deref().ok_or(Reason::NoBody)?;
        // The caller's code runs here, too (decoding, the key): a panic in it is this message's alone.
        let decode = || {
            let body = serde_json::from_str(text).map_err(|error| Reason::undecodable(&error))?;
            Ok((self.source.key(operation, &message, text, &body), body))
        };
        let (key, body) =
            catch_unwind(AssertUnwindSafe(decode)).unwrap_or(Err(Reason::Panicked))?;
        let fingerprint = Fingerprint::json(text.as_bytes());
        Ok(Ready {
            position,
            received: Box::new((body, message)),
            key,
            fingerprint,
            after: Vec::new(),
        })
    }
}

/// In which order messages run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// As [`Groups`](Self::Groups) where the queue's ARN ends in `.fifo`, else as [`Unordered`](Self::Unordered) (default).
    #[default]
    ByQueue,
    /// Side by side.
    Unordered,
    /// Those of one message group one after the other, groups side by side. After a message that is reported, no later one of
    /// its group runs, and all of them are reported.
    Groups,
    /// One after the other. After a message that is reported, no later one of the batch runs, and all of them are reported.
    Batch,
}

impl Order {
    /// The ordered group of each message, where there is one.
    pub(super) fn groups(self, messages: &[SqsMessage]) -> Vec<Option<String>> {
        messages
            .iter()
            .map(|message| self.group_of(message))
            .collect()
    }

    fn group_of(self, message: &SqsMessage) -> Option<String> {
        let is_fifo = || {
            message
                .event_source_arn
                .as_deref()
                .is_some_and(|arn| arn.strip_suffix(".fifo").is_some())
        };
        let group = || {
            message
                .attributes
                .get("MessageGroupId")
                .cloned()
                .unwrap_or_default()
        };
        match self {
            Self::ByQueue => is_fifo().then(group),
            Self::Unordered => None,
            Self::Groups => Some(group()),
            Self::Batch => Some(String::new()),
        }
    }
}

/// The end of an ordered group, as far as it has been planned.
#[derive(Debug, Default)]
struct Tail {
    /// The next message must wait for these.
    after: Vec<usize>,
    /// A message can't run, so no later one may.
    is_broken: bool,
}

/// The position and the fingerprint of the first message of each record.
type Leaders = HashMap<RecordId, (usize, Fingerprint)>;

/// The last part of `arn:aws:sqs:region:account:queue`.
fn queue_name(message: &SqsMessage) -> &str {
    message
        .event_source_arn
        .as_deref()
        .and_then(|arn| arn.rsplit(':').next())
        .filter(|name| !name.is_empty())
        .unwrap_or("sqs")
}

#[cfg(test)]
pub(super) mod tests;
