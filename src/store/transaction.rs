//! Business writes commit together with the record: all of them, or none.
//!
//! A handler hands its writes to the claim ([`Claim::write`](crate::Claim::write)) instead of
//! sending them. When it has succeeded, the engine commits them and the completed record in one
//! transaction, under the fence. So there is no moment in which the effect is there and the record
//! isn't, and a handler that outlived its lease writes nothing.
//!
//! The type of a write depends on the store: `dynamodb` has an example with the writes of DynamoDB's
//! SDK. `docs/choose.md` in the repository says which form to use for what,
//! `docs/recipes/transactions.md` where the limits are.

use std::any::{Any, type_name};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::clock::{Clock, EpochMillis, EpochSeconds};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::RecordId;
use crate::protocol::lock::lock;
use crate::protocol::record::{Final, Found, Owner};
use crate::protocol::{Asking, Decision, Rules, decide};

#[cfg(test)]
mod tests;

/// The answer to a condition that failed, with the name of its type.
type Answer = (Box<dyn Any + Send>, &'static str);
type OrElse = Box<dyn FnOnce(&Refusal) -> Answer + Send + Sync>;

/// A business write, in a form that the store understands.
pub struct Write {
    body: Box<dyn Any + Send + Sync>,
    or_else: Option<OrElse>,
}

impl Write {
    /// Makes a write of a value that a store of your own takes. For `DynamoDbStore`, use
    /// `Write::from`.
    pub fn new(body: impl Any + Send + Sync) -> Self {
        Self {
            body: Box::new(body),
            or_else: None,
        }
    }

    /// Sets the answer for a condition of this write that fails: the handler's own error. In the
    /// HTTP layer, that or the response that the handler would have given: `Response` with the body
    /// type of the wrapped service; for `http::events`, the response type of the event.
    ///
    /// The caller gets [`Error::Refused`](crate::Error::Refused) instead of an answer of another
    /// type, which its text names, and where the closure panics.
    #[must_use]
    pub fn or_else<E: Any + Send>(
        mut self,
        answer: impl FnOnce(&Refusal) -> E + Send + Sync + 'static,
    ) -> Self {
        self.or_else = Some(Box::new(move |refusal| {
            (Box::new(answer(refusal)), type_name::<E>())
        }));
        self
    }

    /// Returns the write, where it is of this type.
    pub fn body<W: Any>(&self) -> Option<&W> {
        self.body.downcast_ref()
    }
}

// Shows no content: a write may hold anything.
debug_fields!([] Write {});

/// The condition of a business write didn't hold: nothing was written, and the claim is released.
pub struct Refusal {
    /// The place of the write: 0 for the first that was added to the claim.
    pub index: usize,
    met: Option<Box<dyn Any + Send + Sync>>,
    answer: Option<Mutex<Answer>>,
}

impl Refusal {
    /// Makes the refusal of the write in this place, with what its condition met.
    pub fn new(index: usize, met: Option<Box<dyn Any + Send + Sync>>) -> Self {
        Self {
            index,
            met,
            answer: None,
        }
    }

    /// Returns what the condition met, where it is of this type. For `DynamoDbStore`, use `item`.
    pub fn met<M: Any>(&self) -> Option<&M> {
        self.met.as_deref()?.downcast_ref()
    }

    /// The answer that was planned for it, if it has this type.
    pub(crate) fn into_answer<A: Any>(mut self) -> Result<A, Self> {
        let Some(answer) = self.answer.take() else {
            return Err(self);
        };
        let (answer, name) = answer.into_inner().unwrap_or_else(PoisonError::into_inner);
        answer.downcast().map(|answer| *answer).map_err(|answer| {
            self.answer = Some(Mutex::new((answer, name)));
            self
        })
    }

    /// Says that the answer which was planned has a type that the handler can't return.
    pub(crate) fn unread_answer(&self) -> impl fmt::Display {
        fmt::from_fn(|f| match &self.answer {
            Some(answer) => {
                let (_, name) = &*lock(answer);
                write!(
                    f,
                    ", and `or_else` gives `{name}`, which is not the handler's own type"
                )
            }
            None => Ok(()),
        })
    }

    /// Asks the write that was refused what to answer.
    pub(crate) fn asked(mut self, mut writes: Vec<Write>) -> Self {
        let or_else = writes
            .get_mut(self.index)
            .and_then(|write| write.or_else.take());
        let ask = |or_else: OrElse| catch_unwind(AssertUnwindSafe(|| or_else(&self))).ok();
        self.answer = or_else.and_then(ask).map(Mutex::new);
        self
    }
}

debug_fields!([] Refusal { index });

/// The error of a write that can't be made, or can't join the transaction. Nothing was sent.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The store keeps records only, or other writes than this one.
    #[error(
        "the store can't commit this write together with the record: use a store with transactions, such as `DynamoDbStore` (in a test, that of `TestDynamoDb`), and writes of its own kind{}", see!("write-not-supported")
    )]
    NotSupported,
    /// A transaction has room for so many writes, besides the record.
    #[error("a transaction takes {max} writes beside the record: split the operation{}", see!("too-many-writes"))]
    TooMany {
        /// The number of writes that there may be.
        max: usize,
    },
    /// The writes of the transaction are too large together, or one of them is by itself.
    #[error("{bytes} bytes to write, {max} are allowed: keep large values elsewhere{}", see!("write-too-large"))]
    TooLarge {
        /// Bytes found.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Two writes of one transaction may not have the same target.
    #[error("write {first} has the same target: say both in one write, or name the second event{}", see!("same-target"))]
    SameTarget {
        /// The place of the earlier one, from 0.
        first: usize,
    },
    /// The write lacks something that every write has.
    #[error("the write is not complete: {}{}", .0, see!("write-incomplete"))]
    Incomplete(String),
    /// No [`Version`](crate::store::version::Version) can be made of the text, or of the time.
    #[error("{}{}", .0, see!("version"))]
    Version(String),
    /// The data of an event has no JSON form.
    #[error("the event's data can't be serialised as JSON: {}{}", .0, see!("event-data"))]
    Data(String),
    /// The claimless form needs a retention of an hour or more: a copy of a commit that the network
    /// delivers after the record has expired would apply once more, and AWS takes a signature for
    /// some minutes. Nothing ran.
    #[error(
        "the claimless form needs a `retention` and a `failure_retention` of an hour or more, and one of them is {} s: a late copy of a commit would apply again{}",
        .retention.as_secs(),
        see!("retention-too-short")
    )]
    RetentionTooShort {
        /// The shorter one of the two that the request has.
        retention: Duration,
    },
    /// The handler has returned: what it wrote is decided already.
    #[error("the handler has returned, so that nothing can join its transaction{}", see!("write-closed"))]
    Closed,
}

debug_by_display!(WriteError);

/// An event announces a change, in an outbox. Its `Debug` shows its type alone.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "an event is told by `Outbox::emit`"]
#[non_exhaustive]
pub struct Event {
    #[doc(hidden)]
    pub kind: String,
    #[doc(hidden)]
    pub aggregate: String,
    #[doc(hidden)]
    pub name: String,
}

impl Event {
    /// Makes an event of this type (`order.created`), about this aggregate (an order's id). Events
    /// of one aggregate are published in order.
    pub fn new(kind: impl Into<String>, aggregate: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            aggregate: aggregate.into(),
            name: String::new(),
        }
    }

    /// Sets a name, which is part of the id, to distinguish two events of one type and one
    /// aggregate in a transaction.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

debug_fields!([] Event { kind });

/// Decides whether a write may join those that a transaction has already.
pub(crate) type Admission = fn(&[Write], &Write) -> Result<(), WriteError>;

/// The writes that a handler has handed to its claim so far.
#[derive(Debug)]
pub(crate) struct Collected {
    admission: Option<Admission>,
    writes: Mutex<Option<Vec<Write>>>,
    /// The record that they are written with, where no claim came before it.
    unwritten: Option<Unwritten>,
}

impl Collected {
    pub(crate) fn new(admission: Option<Admission>, unwritten: Option<Unwritten>) -> Self {
        Self {
            admission,
            writes: Mutex::new(Some(Vec::new())),
            unwritten,
        }
    }

    pub(crate) fn unwritten(&self) -> Option<&Unwritten> {
        self.unwritten.as_ref()
    }

    /// Returns a copy of the first write of this type.
    pub(crate) fn find<W: Any + Clone>(&self) -> Option<W> {
        let writes = lock(&self.writes);
        writes.as_ref()?.iter().find_map(Write::body).cloned()
    }

    pub(crate) fn add(&self, write: Write) -> Result<(), WriteError> {
        let admit = self.admission.ok_or(WriteError::NotSupported)?;
        let mut writes = lock(&self.writes);
        let writes = writes.as_mut().ok_or(WriteError::Closed)?;
        admit(writes, &write)?;
        writes.push(write);
        Ok(())
    }

    /// Counts the writes.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count_of(|_| true)
    }

    /// Returns the place of the first write that meets this condition.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn position(&self, condition: impl Fn(&Write) -> bool) -> Option<usize> {
        lock(&self.writes).iter().flatten().position(condition)
    }

    /// Counts the writes that meet this condition.
    #[cfg(any(test, feature = "dynamodb", feature = "http"))]
    pub(crate) fn count_of(&self, condition: impl Fn(&Write) -> bool) -> usize {
        let writes = lock(&self.writes);
        writes
            .iter()
            .flatten()
            .filter(|write| condition(write))
            .count()
    }

    /// Takes all writes, once; none can be added any more.
    pub(crate) fn close(&self) -> Vec<Write> {
        lock(&self.writes).take().unwrap_or_default()
    }
}

/// A commit is what [`Store::commit`](crate::store::Store::commit) writes: all of it, or nothing.
/// Every send of it is equal.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Commit<'a> {
    /// A token that sets repeated sends of this request apart from other requests; at most 36
    /// characters. For stores whose transactions take one.
    pub token: &'a str,
    /// The final record; `None` where nothing protects the run.
    pub record: Option<&'a Final>,
    /// The business writes, in the order in which they were added; there may be none.
    pub writes: &'a [Write],
}

impl<'a> Commit<'a> {
    /// Makes a commit of this record and these business writes.
    #[doc(hidden)]
    pub fn new(token: &'a str, record: Option<&'a Final>, writes: &'a [Write]) -> Self {
        Self {
            token,
            record,
            writes,
        }
    }
}

/// The answer to a [`Commit`].
#[derive(Debug)]
pub enum Committed {
    /// All of it was written.
    Applied,
    /// The record was not what it must be. Nothing was written; this was found instead: it may be
    /// what an earlier send of the same commit left. Said before any business condition that failed
    /// as well.
    Fenced(Option<Found>),
    /// A business condition failed. Nothing was written.
    Refused(Refusal),
}

/// The record of a run in the claimless form, as a store with open transactions sees it while the
/// handler runs: `Claim::unwritten` gives it.
///
/// Such a store puts the record's id into the transaction that it opens for the handler, before the
/// handler's own statements. Where another record is in its place, the store tells it to
/// [`meet`](Self::meet).
#[doc(hidden)]
pub struct Unwritten {
    /// The id of the record.
    pub id: RecordId,
    /// The owner that the record will have.
    pub owner: Owner,
    /// The expiration that the record will have if it is completed in this second.
    pub expiration: EpochSeconds,
    /// The time for which the run may wait for another one of the same key:
    /// [`InFlight`](crate::InFlight) says so. Zero where it must not.
    pub wait: Duration,
    /// The deadline of the run's invocation, where it is known.
    pub deadline: Option<EpochMillis>,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) rules: Rules,
    pub(crate) clock: Arc<dyn Clock>,
    /// The record that was met last, and when.
    pub(crate) met: Mutex<Option<(Found, EpochMillis)>>,
    /// Of the keys that the record lets the handler derive, as far as it is known.
    pub(crate) generation: AtomicU32,
}

impl Unwritten {
    /// Notes the record that the transaction met instead of its own, and tells whether the
    /// handler may go on: it may where the record has expired, or was released.
    ///
    /// Where it may not, the handler's result doesn't count: the run ends with what the record says,
    /// the outcome of an earlier run or an obstacle.
    #[doc(hidden)]
    #[must_use = "the handler must not go on where this is false"]
    pub fn meet(&self, found: Found) -> bool {
        let now = self.clock.now();
        let asking = Asking::new(&self.owner, self.fingerprint.as_ref(), now);
        let decision = decide(Some(&found), asking, &self.rules);
        let may_go_on = matches!(decision, Decision::Create | Decision::TakeOver { .. });
        let generation = decision.key_generation(Some(&found));
        self.generation.store(generation, Ordering::Relaxed);
        *lock(&self.met) = Some((found, now));
        may_go_on
    }

    pub(crate) fn key_generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Takes the record that was met last, and the time when it was.
    pub(crate) fn take_met(&self) -> Option<(Found, EpochMillis)> {
        lock(&self.met).take()
    }
}

debug_fields!([] Unwritten { id });
