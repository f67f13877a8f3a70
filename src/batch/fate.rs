//! Holds the fate of each message of a batch, and derives from it what is reported. Pure.

use std::collections::HashSet;

use crate::batch::Source;
use crate::batch::report::Reason;

/// Says what became of a message, or what it depends on.
#[derive(Debug)]
pub(super) enum Fate {
    /// Its work is done: the source may delete it.
    Done,
    /// It is the same request as the message in this position, and shares the fate of that one.
    Follows(usize),
    /// The source must deliver it again.
    Reported(Reason),
}

/// Makes the fates before any message has run: what isn't known to be done comes again.
pub(super) fn unknown(messages: usize) -> Vec<Fate> {
    std::iter::repeat_with(|| Fate::Reported(Reason::NotRun))
        .take(messages)
        .collect()
}

/// Takes the id of each message; an error is the position of the first message that has none.
pub(super) fn ids<S: Source>(messages: &[S::Record]) -> Result<Vec<String>, usize> {
    let id = |(position, message)| match S::id(message) {
        Some(id) if !id.is_empty() => Ok(id.to_owned()),
        _ => Err(position),
    };
    messages.iter().enumerate().map(id).collect()
}

/// Lists the messages that come again, each with its reason, in the order of the batch.
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

/// Says what is wrong with the store or its permissions, where that kept every message of the batch
/// from being done.
pub(super) fn misconfigured(fates: &[Fate]) -> Option<&str> {
    if fates.iter().any(|fate| matches!(fate, Fate::Done)) {
        return None;
    }
    fates.iter().find_map(|fate| match fate {
        Fate::Reported(Reason::Misconfigured(detail)) => Some(detail.as_str()),
        _ => None,
    })
}

/// Keeps each id once, in the order given.
pub(super) fn distinct<'a>(ids: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut seen = HashSet::new();
    let ids = ids.into_iter().filter(|id| seen.insert(*id));
    ids.map(str::to_owned).collect()
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
