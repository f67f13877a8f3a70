//! Writes that refuse a second application by themselves: for replays that come when every record has long expired.
//!
//! A guard needs no idempotency key: what it compares is in the business item. [`Transition`] moves a state one way,
//! [`Once`] applies an operation that isn't naturally idempotent ("add 5") once for each event. Each tells three things apart: it
//! applied, it had applied before, or it is refused.
//!
//! Alone, a guard is one `UpdateItem`: [`Transition::apply`], [`Once::apply`]. In a handler's transaction it is one of the
//! writes, for [`Claim::write`](crate::Claim::write):
//!
//! ```
//! use aws_sdk_dynamodb::types::AttributeValue::S;
//! use lambda_idempotency::Claim;
//! use lambda_idempotency::guard::{Guarded, Transition};
//! use lambda_idempotency::transaction::{Write, WriteError};
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
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValuesOnConditionCheckFailure as OnFailure, Update,
};

mod once;
mod transition;

pub use once::Once;
pub use transition::Transition;

use crate::error::BoxError;

type Item = HashMap<String, AttributeValue>;

/// What a guarded write came to. Its `Debug` shows nothing of an item.
#[derive(Clone, PartialEq)]
pub enum Guarded {
    /// It applied now.
    Applied,
    /// It had applied before; nothing changed.
    AlreadyApplied,
    /// It doesn't apply to what is there; nothing changed.
    Refused {
        /// What is there; `None` where there is no such item.
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

/// A guarded write could not be sent, or the table could not take it.
///
/// Its source is the SDK's error, whose `Debug` may quote what was sent; that of this one doesn't.
#[derive(thiserror::Error)]
#[error("the guarded write failed: {0}")]
pub struct GuardError(#[source] BoxError);

impl fmt::Debug for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardError({})", self.0)
    }
}

/// Sends a guarded update by itself. `Err` inside: the condition failed, and this is what it met.
async fn send(client: &Client, update: Update) -> Result<Result<(), Option<Item>>, GuardError> {
    let request = client
        .update_item()
        .table_name(update.table_name)
        .set_key(Some(update.key))
        .update_expression(update.update_expression)
        .set_condition_expression(update.condition_expression)
        .set_expression_attribute_names(update.expression_attribute_names)
        .set_expression_attribute_values(update.expression_attribute_values)
        .return_values_on_condition_check_failure(OnFailure::AllOld);
    match Box::pin(request.send()).await {
        Ok(_) => Ok(Ok(())),
        Err(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                Ok(Err(failed.item.clone()))
            }
            _ => Err(GuardError(error.into())),
        },
    }
}

#[cfg(test)]
mod tests;
