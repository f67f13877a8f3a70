//! Keeps the endings of runs that were dropped, for the engine's next call to send.
//!
//! Nothing is spawned: an ending goes into the queue where its future is dropped, and
//! [`send_unsent`](crate::engine::Engine::send_unsent) sends it before the next claim.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::claim::Hold;
use crate::engine::events;
use crate::engine::request::Request;
use crate::protocol::key::RecordId;
use crate::protocol::record::{Completion, Omission, RecordWrite, StoredOutcome};

mod leave;
mod on_drop;
mod send;
#[cfg(test)]
mod tests;

pub(super) use on_drop::OnDrop;

/// The most endings that are kept.
const MOST: usize = 256;

/// The most bytes of outcomes that are kept.
const MOST_BYTES: usize = 8 * 1_024 * 1_024;

/// The most endings that one call sends.
const AT_ONCE: usize = 25;

/// An ending whose run was dropped before the store had answered.
pub(super) struct Unsent {
    request: Request,
    hold: Hold,
    /// A completion, of a success or of a failure, or a release.
    write: RecordWrite,
    /// The outcome's text, where it is over the inline limit and not kept yet.
    large: Option<String>,
    /// Of the release of a claim that may still arrive: when it is sent again.
    later: Option<Later>,
}

/// The next try of a release that has met no claim.
#[derive(Clone, Copy, Debug)]
struct Later {
    due: Instant,
    tries: usize,
}

impl Later {
    /// The pauses before the tries. A request that is later than all of them has outlived its
    /// connection.
    const PAUSES: [Duration; 3] = [
        Duration::from_secs(1),
        Duration::from_secs(4),
        Duration::from_secs(16),
    ];

    /// Returns the try after this many; `None` after the last.
    fn after(tries: usize) -> Option<Self> {
        let due = Instant::now() + *Self::PAUSES.get(tries)?;
        Some(Self { due, tries })
    }

    fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }
}

impl Unsent {
    /// Counts the bytes of its outcome.
    fn bytes(&self) -> usize {
        let inline = match &self.write {
            RecordWrite::Complete(completion) => match &completion.outcome {
                StoredOutcome::Inline(text) => text.len(),
                StoredOutcome::Packed(packed) => packed.size(),
                StoredOutcome::Omitted(_) => 0,
            },
            _ => 0,
        };
        inline + self.large.as_ref().map_or(0, String::len)
    }

    /// Returns the ending without its outcome: its work was done all the same.
    fn without_outcome(&self) -> Self {
        Self {
            request: self.request.without_batch(),
            hold: self.hold.clone(),
            write: match &self.write {
                RecordWrite::Complete(completion) => {
                    with_outcome(completion, StoredOutcome::Omitted(Omission::NotKept))
                }
                other => other.clone(),
            },
            large: None,
            later: self.later,
        }
    }

    /// Tells whether the call for this key sends it: its own key's at once.
    fn is_due(&self, id: &RecordId) -> bool {
        self.later.is_none_or(|later| later.is_due()) || self.write.id() == id
    }
}

fn with_outcome(completion: &Completion, outcome: StoredOutcome) -> RecordWrite {
    RecordWrite::Complete(Completion {
        outcome,
        ..completion.clone()
    })
}

/// The endings of an engine that are not sent yet, or not answered.
#[derive(Default)]
pub(crate) struct UnsentEndings {
    /// The number of the endings, so that a call learns without the lock that there are none.
    count: AtomicUsize,
    endings: Mutex<VecDeque<Arc<Unsent>>>,
    /// The turn to send: the calls that arrive meanwhile wait for it.
    turn: tokio::sync::Mutex<()>,
}

/// Shows the number alone: an ending has an outcome.
impl fmt::Debug for UnsentEndings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnsentEndings")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl UnsentEndings {
    /// Tells whether the call for this key has anything to send.
    fn has_due(&self, id: &RecordId) -> bool {
        let is_empty = self.count.load(Ordering::Relaxed) == 0;
        !is_empty && self.lock().iter().any(|unsent| unsent.is_due(id))
    }

    /// Adds an ending. Where there are too many then, the oldest are discarded, those that have met no
    /// claim before all others. Where their outcomes are too large together, the largest lose theirs:
    /// none costs another's run its ending.
    fn push(&self, unsent: Unsent) {
        let mut discarded = Vec::new();
        {
            let mut endings = self.lock();
            endings.push_back(Arc::new(unsent));
            while endings.len() > MOST {
                let later = endings.iter().position(|unsent| unsent.later.is_some());
                discarded.extend(endings.remove(later.unwrap_or(0)));
            }
            let mut bytes: usize = endings.iter().map(|unsent| unsent.bytes()).sum();
            // Of two that are as large, the older one.
            while bytes > MOST_BYTES
                && let Some(largest) = endings.iter_mut().rev().max_by_key(|unsent| unsent.bytes())
            {
                let without = largest.without_outcome();
                bytes -= largest.bytes();
                *largest = Arc::new(without);
            }
            self.count.store(endings.len(), Ordering::Relaxed);
        }
        for oldest in discarded {
            events::ending_discarded(&oldest.request, &oldest.hold);
        }
    }

    /// Returns the endings that the next call sends: first those of its own key, then the oldest, then
    /// those that have met no claim before.
    fn next(&self, id: &RecordId) -> Vec<Arc<Unsent>> {
        let endings = self.lock();
        let due = endings.iter().filter(|unsent| unsent.is_due(id));
        let mut due: Vec<_> = due.cloned().collect();
        due.sort_by_key(|unsent| (unsent.write.id() != id, unsent.later.is_some()));
        due.truncate(AT_ONCE);
        due
    }

    /// Forgets an ending that is settled; it may have lost its outcome meanwhile.
    fn remove(&self, settled: &Unsent) {
        let mut endings = self.lock();
        endings.retain(|unsent| unsent.hold.owner != settled.hold.owner);
        self.count.store(endings.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Unsent>>> {
        self.endings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
