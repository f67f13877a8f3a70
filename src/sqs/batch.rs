//! A batch as a whole, before anything runs and after everything has: pure, no store, no clock.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsMessage};
use serde::de::DeserializeOwned;

use crate::fingerprint::Fingerprint;
use crate::key::{Key, KeyError, RecordId};
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

/// What became of a message, or what it depends on.
#[derive(Debug)]
pub(super) enum Fate {
    /// Its work is done: SQS may delete it.
    Done,
    /// The same request as the message in this position: what becomes of that one becomes of it.
    Follows(usize),
    /// SQS is to deliver it again.
    Reported(Reason),
}

/// The fate of each message so far, and those that are to run.
#[derive(Debug)]
pub(super) struct Plan<T> {
    pub(super) fates: Vec<Fate>,
    pub(super) ready: Vec<Ready<T>>,
    /// The ordered group of each message, where there is one.
    pub(super) groups: Vec<Option<String>>,
}

/// How messages are told apart.
pub(super) struct Planner<'a, T, F> {
    pub(super) operation: Option<&'a Arc<str>>,
    pub(super) source: &'a KeySource<T>,
    pub(super) order: Order,
    /// The record that a key stands for; `None` where messages are not to be compared.
    pub(super) identify: F,
}

impl<T, F> Planner<'_, T, F>
where
    T: DeserializeOwned,
    F: Fn(&Key) -> Option<Result<RecordId, KeyError>>,
{
    /// The first message of each request is to run, the others follow it: the same key twice in a batch runs once.
    pub(super) fn plan(&self, messages: Vec<SqsMessage>) -> Plan<T> {
        let mut leaders = HashMap::with_capacity(messages.len());
        let mut plan = Plan {
            fates: Vec::with_capacity(messages.len()),
            ready: Vec::with_capacity(messages.len()),
            groups: messages
                .iter()
                .map(|message| self.order.group_of(message))
                .collect(),
        };
        let mut tails: HashMap<String, Tail> = HashMap::new();
        for (position, message) in messages.into_iter().enumerate() {
            let mut alone = Tail::default();
            let group = plan.groups.get(position).cloned().flatten();
            let is_ordered = group.is_some();
            let tail = match group {
                Some(group) => tails.entry(group).or_default(),
                None => &mut alone,
            };
            let prepared = tail
                .check()
                .and_then(|()| self.prepare(position, message))
                .and_then(|mut ready| {
                    let leader = self.leader(&mut leaders, &mut ready)?;
                    Ok((leader, ready))
                });
            plan.fates.push(match prepared {
                Ok((None, mut ready)) => {
                    if is_ordered {
                        ready.after = std::mem::replace(&mut tail.after, vec![position]);
                    }
                    plan.ready.push(ready);
                    Fate::Reported(Reason::NotRun)
                }
                Ok((Some(leader), _)) => {
                    tail.after.push(leader);
                    Fate::Follows(leader)
                }
                Err(reason) => {
                    tail.broken = true;
                    Fate::Reported(reason)
                }
            });
        }
        plan
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
    broken: bool,
}

impl Tail {
    fn check(&self) -> Result<(), Reason> {
        if self.broken {
            Err(Reason::GroupStopped)
        } else {
            Ok(())
        }
    }
}

/// Reports every message that comes after a reported one of its group: a later one that is acknowledged could overtake it.
pub(super) fn stop_groups(fates: &mut [Fate], groups: &[Option<String>]) {
    let mut broken = HashSet::new();
    for (position, group) in groups.iter().enumerate() {
        let Some(group) = group else { continue };
        if broken.contains(group) {
            if let Some(fate @ (Fate::Done | Fate::Follows(_))) = fates.get_mut(position) {
                *fate = Fate::Reported(Reason::GroupStopped);
            }
        } else if !is_done(fates, position) {
            broken.insert(group);
        }
    }
}

fn is_done(fates: &[Fate], position: usize) -> bool {
    match fates.get(position) {
        Some(Fate::Done) => true,
        Some(Fate::Follows(leader)) => matches!(fates.get(*leader), Some(Fate::Done)),
        _ => false,
    }
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

/// The id of each message, or the position of the first that has none.
pub(super) fn ids(messages: &[SqsMessage]) -> Result<Vec<String>, usize> {
    let id = |(position, message): (usize, &SqsMessage)| match &message.message_id {
        Some(id) if !id.is_empty() => Ok(id.clone()),
        _ => Err(position),
    };
    messages.iter().enumerate().map(id).collect()
}

/// Which messages come again and why, in the order of the batch.
pub(super) fn reported<'a>(
    ids: &'a [String],
    fates: &'a [Fate],
) -> impl Iterator<Item = (&'a str, &'a Reason)> {
    let reason = |fate| match fate {
        &Fate::Done => None,
        Fate::Reported(reason) => Some(reason),
        Fate::Follows(leader) => match fates.get(*leader) {
            Some(Fate::Done) => None,
            _ => Some(&Reason::Leader),
        },
    };
    ids.iter()
        .zip(fates)
        .filter_map(move |(id, fate)| Some((id.as_str(), reason(fate)?)))
}

/// The reply that asks for these messages again: in the order given, each once.
pub(super) fn reply<'a>(ids: impl IntoIterator<Item = &'a str>) -> SqsBatchResponse {
    let mut seen = HashSet::new();
    let mut response = SqsBatchResponse::default();
    for id in ids {
        if seen.insert(id) {
            response.add_failure(id);
        }
    }
    response
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
