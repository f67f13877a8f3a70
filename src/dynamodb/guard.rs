//! Guards business writes against a second application, for replays that come when every record has
//! long expired.
//!
//! A guard needs no idempotency key: it compares values in the business item. [`Transition`] moves
//! a state one way, [`Once`] applies an operation that isn't naturally idempotent ("add 5") once
//! for each event, [`Latest`] keeps the newest version of an item, in whatever order versions come.
//! Each has three results: it applied, it had applied before, or it is refused.
//!
//! Alone, a guard is one `UpdateItem`: [`Transition::apply`], [`Once::apply`],
//! [`Latest::apply`]. The client sends it
//! again as its retries are configured. A send without an answer (a timeout, a lost connection, a
//! 5xx) may have applied, or may still arrive and apply. The answer to a later send then gives the
//! result:
//!
//! | the later send | result |
//! |---|---|
//! | applied | [`Guarded::Applied`] |
//! | met the write's own values | [`Guarded::AlreadyApplied`]: it can't be told whether this call or an earlier one wrote them |
//! | met an item that doesn't allow the write | [`GuardError::Unknown`]: the silent send may have applied before another write changed the item, or may apply when the item allows it again |
//! | failed, or got no answer either | [`GuardError::Unknown`] |
//!
//! In a handler's transaction a guard is one of the writes, for
//! [`Claim::write`](crate::Claim::write):
//!
//! ```
//! use aws_sdk_dynamodb::types::AttributeValue::S;
//! use lambda_idempotency::Claim;
//! use lambda_idempotency::dynamodb::guard::{Guarded, Transition};
//! use lambda_idempotency::store::transaction::{Write, WriteError};
//!
//! #[derive(Debug, thiserror::Error)]
//! enum PayError {
//!     #[error("the order was paid before")]
//!     PaidBefore,
//!     #[error("the order can't be paid now")]
//!     NotPayable,
//!     #[error(transparent)]
//!     Write(#[from] WriteError),
//! }
//!
//! async fn pay(claim: Claim) -> Result<(), PayError> {
//!     let paid = Transition::new("orders", [("order_id", S("17".into()))]).from("pending").to("paid");
//!     let judge = paid.clone();
//!     claim.write(Write::from(paid).or_else(move |refusal| match judge.judge(refusal.item()) {
//!         Guarded::AlreadyApplied => PayError::PaidBefore,
//!         _ => PayError::NotPayable,
//!     }))?;
//!     Ok(())
//! }
//! ```

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure as OnFailure};

use crate::dynamodb::client::{Noted, noted};
use crate::dynamodb::error::{Met, Refusal};
use crate::dynamodb::layout::Item;
use crate::protocol::causes::unlinked;
use crate::store::BoxError;

mod latest;
mod once;
#[cfg(test)]
mod tests;
mod transition;

pub use crate::dynamodb::guard::latest::Latest;
pub use crate::dynamodb::guard::once::Once;
pub use crate::dynamodb::guard::transition::Transition;
pub use crate::store::version::{Version, VersionError};

/// The result of a guarded write. Its `Debug` shows nothing of an item.
#[derive(Clone, PartialEq)]
pub enum Guarded {
    /// The write applied now.
    Applied,
    /// The write had applied before: in an earlier call, or by an earlier send of this call whose
    /// answer was lost. An effect that must follow the write follows this result, too.
    AlreadyApplied,
    /// The item doesn't allow the write; nothing changed.
    Refused {
        /// The item; `None` where there is none.
        found: Option<HashMap<String, AttributeValue>>,
    },
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied => f.write_str("Applied"),
            Self::AlreadyApplied => f.write_str("AlreadyApplied"),
            Self::Refused { found: Some(_) } => f.write_str("Refused(an item)"),
            Self::Refused { found: None } => f.write_str("Refused(no item)"),
        }
    }
}

/// A guarded write is not known to have applied.
///
/// Its source is the SDK's error, whose `Debug` may quote what was sent; that of this one doesn't.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The write did not apply, and can't any more: it could not be sent, or DynamoDB answered each
    /// send of it with an error.
    #[error("the guarded write failed: {}{}", unlinked(.0), see!("guard-failed"))]
    Failed(#[source] BoxError),
    /// A send of the write got no answer: it may have applied, or may still arrive and apply. Fail,
    /// so that the event is delivered again.
    #[error("the outcome of the guarded write is unknown: {}{}", unlinked(.0), see!("guard-unknown"))]
    Unknown(#[source] BoxError),
}

impl fmt::Debug for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "Failed({error})"),
            Self::Unknown(error) => write!(f, "Unknown({error})"),
        }
    }
}

/// Sends a guarded update by itself, and judges what a failing condition met.
async fn apply(
    client: &Client,
    update: UpdateBuilder,
    judge: impl FnOnce(Option<&Item>) -> Guarded,
) -> Result<Guarded, GuardError> {
    let update = update
        .build()
        .map_err(|error| GuardError::Failed(error.into()))?;
    let read = client
        .get_item()
        .table_name(&update.table_name)
        .set_key(Some(update.key.clone()))
        .consistent_read(true);
    let request = client
        .update_item()
        .table_name(update.table_name)
        .set_key(Some(update.key))
        .update_expression(update.update_expression)
        .set_condition_expression(update.condition_expression)
        .set_expression_attribute_names(update.expression_attribute_names)
        .set_expression_attribute_values(update.expression_attribute_values)
        .return_values_on_condition_check_failure(OnFailure::AllOld);
    let request = request.customize().interceptor(Noted);
    let (reply, sends) = noted(Box::pin(request.send())).await;
    let Err(error) = reply else {
        return Ok(Guarded::Applied);
    };
    let judged = match error.as_service_error().and_then(Refusal::met) {
        Some(Met(Some(found))) => Ok(judge(Some(&found))),
        // There is no item, or the answer leaves it out, as some proxies and emulators do.
        Some(Met(None)) => match Box::pin(read.send()).await {
            Ok(output) => Ok(judge(output.item.as_ref())),
            Err(error) if error.code() == Some("AccessDeniedException") => Ok(judge(None)),
            Err(error) => return Err(GuardError::Unknown(error.into())),
        },
        None => Err(error),
    };
    match judged {
        Ok(Guarded::Refused { .. }) if sends.is_silent() => {
            let reason = "a send of the write got no answer, and a later one was refused";
            Err(GuardError::Unknown(reason.into()))
        }
        Ok(judged) => Ok(judged),
        Err(error) if sends.is_silent() => Err(GuardError::Unknown(error.into())),
        Err(error) => Err(GuardError::Failed(error.into())),
    }
}

/// Judges a failed condition by the item that it met.
fn judge(found: Option<&Item>, has_applied: impl FnOnce(&Item) -> bool) -> Guarded {
    if found.is_some_and(has_applied) {
        return Guarded::AlreadyApplied;
    }
    Guarded::Refused {
        found: found.cloned(),
    }
}
