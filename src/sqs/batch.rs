//! A batch as a whole, after everything has run: pure, no store, no clock.

use std::collections::HashSet;

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsMessage};

use crate::sqs::report::Reason;

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

/// Before anything has run: what isn't known to be done comes again.
pub(super) fn unknown(messages: usize) -> Vec<Fate> {
    std::iter::repeat_with(|| Fate::Reported(Reason::NotRun))
        .take(messages)
        .collect()
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
