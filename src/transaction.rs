//! Business writes that commit together with the record: all of them, or none.
//!
//! A handler hands its writes to the claim ([`Claim::write`]) instead of sending them. When it has succeeded, the engine commits
//! them and the completed record in one transaction, under the fence. So there is no moment in which the effect
//! is there and the record isn't, and a handler that outlived its lease writes nothing.
//!
//! ```
//! # #[cfg(feature = "dynamodb")] mod example {
//! use aws_sdk_dynamodb::types::{AttributeValue::{N, S}, Put, Update};
//! use lambda_idempotency::transaction::{Write, WriteError};
//! use lambda_idempotency::{Claim, Error, Fingerprint, Idempotency, Key, Outcome, store::dynamodb::DynamoDbStore};
//!
//! #[derive(Debug, thiserror::Error)]
//! enum OrderError {
//!     #[error("sold out")]
//!     SoldOut,
//!     #[error(transparent)]
//!     Write(#[from] WriteError),
//! }
//!
//! async fn place(once: &Idempotency<DynamoDbStore>, body: &[u8]) -> Result<Outcome<String>, Error<OrderError>> {
//!     once.run(Key::new("order", "cart-17"), Fingerprint::json(body), |claim| async move {
//!         let order_id = claim.derive_uuid("order");
//!         claim.write(Put::builder().table_name("orders").item("order_id", S(order_id.clone())))?;
//!         let take_one = Update::builder()
//!             .table_name("stock")
//!             .key("sku", S("tea".into()))
//!             .update_expression("SET #left = #left - :one")
//!             .condition_expression("#left >= :one")
//!             .expression_attribute_names("#left", "left")
//!             .expression_attribute_values(":one", N("1".into()));
//!         claim.write(Write::from(take_one).or_else(|_refusal| OrderError::SoldOut))?;
//!         Ok(order_id)
//!     })
//!     .await
//! }
//! # }
//! ```
//!
//! `docs/exactly-once.md` in the repository tells which form to use for what, and where the limits are.

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::claim::Claim;
use crate::record::{Completion, Found, NewClaim, Takeover, Version};

type Answer = Box<dyn Any + Send>;
type OrElse = Box<dyn FnOnce(&Refusal) -> Answer + Send + Sync>;

/// One business write, in a form that the store understands: for `DynamoDbStore`, an SDK `Put`, `Update`, `Delete` or
/// `ConditionCheck`, or the builder of one.
pub struct Write {
    body: Box<dyn Any + Send + Sync>,
    or_else: Option<OrElse>,
}

impl Write {
    /// Of whatever a store of your own takes. For `DynamoDbStore`, use `Write::from`.
    pub fn new(body: impl Any + Send + Sync) -> Self {
        Self {
            body: Box::new(body),
            or_else: None,
        }
    }

    /// What to answer when this write's condition fails: the handler's own error. In the HTTP layer, the
    /// response that the handler would have given (`Response` with the body type of the wrapped service).
    ///
    /// An answer of any other type is lost, and the caller gets [`Error::Refused`](crate::Error::Refused).
    #[must_use]
    pub fn or_else<E: Any + Send>(
        mut self,
        answer: impl FnOnce(&Refusal) -> E + Send + Sync + 'static,
    ) -> Self {
        self.or_else = Some(Box::new(move |refusal| Box::new(answer(refusal))));
        self
    }

    /// The write, where it is of this type.
    pub fn body<W: Any>(&self) -> Option<&W> {
        self.body.downcast_ref()
    }
}

/// Shows nothing: it may hold anything.
impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write").finish_non_exhaustive()
    }
}

/// The condition of a business write didn't hold: nothing was written, and the claim is released.
pub struct Refusal {
    index: usize,
    met: Option<Box<dyn Any + Send + Sync>>,
    answer: Option<Mutex<Answer>>,
}

impl Refusal {
    /// Of the write in this place, with what its condition met.
    pub fn new(index: usize, met: Option<Box<dyn Any + Send + Sync>>) -> Self {
        Self {
            index,
            met,
            answer: None,
        }
    }

    /// Which write: 0 for the first that was added to the claim.
    pub fn index(&self) -> usize {
        self.index
    }

    /// What the condition met, where it is of this type. For `DynamoDbStore`, use `item`.
    pub fn met<M: Any>(&self) -> Option<&M> {
        self.met.as_deref()?.downcast_ref()
    }

    /// The answer that was planned for it, if it has this type.
    pub(crate) fn into_answer<A: Any>(mut self) -> Result<A, Self> {
        let Some(answer) = self.answer.take() else {
            return Err(self);
        };
        let answer = answer.into_inner().unwrap_or_else(PoisonError::into_inner);
        answer.downcast().map(|answer| *answer).map_err(|answer| {
            self.answer = Some(Mutex::new(answer));
            self
        })
    }

    /// Asks the write that was refused what to answer.
    pub(crate) fn asked(mut self, mut writes: Vec<Write>) -> Self {
        let or_else = writes
            .get_mut(self.index)
            .and_then(|write| write.or_else.take());
        self.answer = or_else.map(|or_else| Mutex::new(or_else(&self)));
        self
    }
}

/// Shows the place alone.
impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// Why a write can't join the transaction. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The store keeps records only, or other writes than this one.
    #[error(
        "the store can't commit this write together with the record: use `DynamoDbStore`, and its SDK's writes"
    )]
    NotSupported,
    /// A transaction has room for so many writes, besides the record.
    #[error("a transaction takes {max} writes beside the record: split the operation")]
    TooMany {
        /// How many there may be.
        max: usize,
    },
    /// The items of the transaction are too large together, or one of them is by itself.
    #[error("{bytes} bytes to write, {max} are allowed: keep large values elsewhere")]
    TooLarge {
        /// Bytes found.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Two writes of one transaction may not concern the same item.
    #[error("write {first} concerns the same item: say both in one write")]
    SameItem {
        /// The place of the earlier one, from 0.
        first: usize,
    },
    /// The write lacks something that every write has.
    #[error("the write is not complete: {0}")]
    Incomplete(String),
    /// The handler has returned: what it wrote is decided already.
    #[error("the handler has returned, so that nothing can join its transaction")]
    Closed,
}

/// Says whether a write may join those that are there.
pub type Admission = fn(&[Write], &Write) -> Result<(), WriteError>;

/// The writes that a handler has handed to its claim so far.
#[derive(Debug)]
pub(crate) struct Collected {
    admission: Option<Admission>,
    writes: Mutex<Option<Vec<Write>>>,
}

impl Collected {
    pub(crate) fn new(admission: Option<Admission>) -> Self {
        Self {
            admission,
            writes: Mutex::new(Some(Vec::new())),
        }
    }

    fn add(&self, write: Write) -> Result<(), WriteError> {
        let admit = self.admission.ok_or(WriteError::NotSupported)?;
        let mut writes = self.writes();
        let writes = writes.as_mut().ok_or(WriteError::Closed)?;
        admit(writes, &write)?;
        writes.push(write);
        Ok(())
    }

    /// How many there are.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn count(&self) -> usize {
        self.writes().as_ref().map_or(0, Vec::len)
    }

    /// All of them, once; nothing can be added any more.
    pub(crate) fn close(&self) -> Vec<Write> {
        self.writes().take().unwrap_or_default()
    }

    /// A panic elsewhere can't leave it in disorder: a write is there or isn't.
    fn writes(&self) -> MutexGuard<'_, Option<Vec<Write>>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Adds a business write to the handler's transaction: it commits together with the record when the handler has succeeded,
    /// and not at all when it fails.
    ///
    /// Nothing is sent now, so what the handler reads doesn't show it. In a run that nothing protects (the kill switch, a
    /// missing key that is let pass) the writes commit as one transaction without a record.
    ///
    /// # Errors
    ///
    /// At once, before anything is sent: when the store can't do it, or the transaction would break a limit.
    pub fn write(&self, write: impl Into<Write>) -> Result<(), WriteError> {
        self.collected().add(write.into())
    }
}

/// What [`Store::commit`](crate::store::Store::commit) is to write: all of it, or nothing. Every send of it says the same.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// Tells repeated sends of this request from other requests; at most 36 characters. For stores whose transactions take one.
    pub token: &'a str,
    /// The final record; `None` where nothing protects the run.
    pub record: Option<&'a Final>,
    /// The business writes, in the order in which they were added; there may be none.
    pub writes: &'a [Write],
}

/// A record that becomes final together with business writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Final {
    /// What it becomes.
    pub completion: Completion,
    /// What must stand there before.
    pub basis: Basis,
}

/// What must stand under the key for a [`Commit`] to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Basis {
    /// The owner's claim, in progress: the fence.
    Claimed,
    /// Nothing: no claim came before. The record is as this claim would have made it, then completed.
    Absent(NewClaim),
    /// A record that expired or was released, and is still exactly at this version.
    Version {
        /// The version that was observed.
        seen: Version,
        /// What is kept of it.
        mode: Takeover,
        /// As in `Absent`.
        claim: NewClaim,
    },
}

/// What a [`Commit`] answers.
#[derive(Debug)]
pub enum Committed {
    /// All of it stands.
    Applied,
    /// The record was not what it must be. Nothing was written; this was found instead: it may be what an earlier send of the
    /// same commit left. Said before any business condition that failed as well.
    Fenced(Option<Found>),
    /// A business condition failed. Nothing was written.
    Refused(Refusal),
}

#[cfg(test)]
mod tests;
