//! Applies an operation that isn't naturally idempotent once for each event.

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, Update};

use super::super::layout::Item;
use super::{GuardError, Guarded};
use crate::store::transaction::Write;

/// Bounds the events that an item remembers, unless [`Once::at_most`] sets another bound: they take
/// room in the item, and each write is billed by its size.
const AT_MOST: u32 = 100;

/// Adds to a number, once for each event: the item keeps the event's id beside the number.
///
/// An item remembers a bounded number of events, and then refuses: it never forgets one by itself,
/// because a forgotten event could apply twice. Use this guard for items with few events, such as
/// the payments of an order. For many events, use the
/// [claimless form](crate::Idempotency::claimless), which keeps them as their own records.
///
/// ```no_run
/// # async fn deposit(client: &aws_sdk_dynamodb::Client) -> Result<(), lambda_idempotency::dynamodb::guard::GuardError> {
/// use aws_sdk_dynamodb::types::AttributeValue::S;
/// use lambda_idempotency::dynamodb::guard::{Guarded, Once};
///
/// let deposit = Once::new("accounts", [("account", S("a-1".into()))], "event-9").add("balance", 5);
/// if deposit.apply(client).await? == Guarded::AlreadyApplied {
///     println!("the event came again");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq)]
#[must_use = "it does nothing until it is applied, or written to a claim"]
pub struct Once {
    table: String,
    key: Item,
    event: String,
    applied: String,
    at_most: u32,
    additions: Vec<(String, i64)>,
}

/// Shows the table and the attribute, and neither the item nor the event.
impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("table", &self.table)
            .field("attribute", &self.applied)
            .finish_non_exhaustive()
    }
}

impl Once {
    /// Makes a guard on the item with this key, for this event. An item that doesn't exist is
    /// created.
    pub fn new<K: Into<String>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, AttributeValue)>,
        event: impl Into<String>,
    ) -> Self {
        let key = key.into_iter().map(|(name, value)| (name.into(), value));
        Self {
            table: table.into(),
            key: key.collect(),
            event: event.into(),
            applied: "applied_events".to_owned(),
            at_most: AT_MOST,
            additions: Vec::new(),
        }
    }

    /// Adds this amount to an attribute; a negative number subtracts. An absent attribute counts as
    /// 0.
    pub fn add(mut self, attribute: impl Into<String>, amount: i64) -> Self {
        self.additions.push((attribute.into(), amount));
        self
    }

    /// Names the attribute that keeps the events' ids, a string set. Default: `applied_events`.
    pub fn attribute(mut self, name: impl Into<String>) -> Self {
        self.applied = name.into();
        self
    }

    /// Bounds the events that the item may remember. Default: 100.
    pub fn at_most(mut self, events: u32) -> Self {
        self.at_most = events;
        self
    }

    /// Applies the addition by itself, as one request.
    ///
    /// # Errors
    ///
    /// [`GuardError::Failed`], when DynamoDB failed.
    /// [`GuardError::Unknown`], when a send got no answer and no later one says that the write
    /// applied. A condition that fails after sends that were all answered is no error.
    ///
    /// # Cancellation
    ///
    /// A call that is dropped before its result may have applied, or may still apply.
    pub async fn apply(&self, client: &Client) -> Result<Guarded, GuardError> {
        super::apply(client, self.builder(), |found| self.judge(found)).await
    }

    /// Judges the item that the condition met: this event has applied already, or the item is full.
    pub fn judge(&self, found: Option<&HashMap<String, AttributeValue>>) -> Guarded {
        let is_known = |item: &Item| {
            let events = item.get(&self.applied).and_then(|value| value.as_ss().ok());
            events.is_some_and(|events| events.contains(&self.event))
        };
        super::judge(found, is_known)
    }

    fn builder(&self) -> UpdateBuilder {
        let event = AttributeValue::S(self.event.clone());
        let mut update = Update::builder()
            .table_name(&self.table)
            .set_key(Some(self.key.clone()))
            .expression_attribute_names("#applied", &self.applied)
            .expression_attribute_values(":event", event)
            .expression_attribute_values(":events", AttributeValue::Ss(vec![self.event.clone()]))
            .expression_attribute_values(":max", AttributeValue::N(self.at_most.to_string()));
        let mut additions = vec!["#applied :events".to_owned()];
        for (place, (name, amount)) in self.additions.iter().enumerate() {
            additions.push(format!("#a{place} :a{place}"));
            update = update
                .expression_attribute_names(format!("#a{place}"), name)
                .expression_attribute_values(
                    format!(":a{place}"),
                    AttributeValue::N(amount.to_string()),
                );
        }
        update
            .update_expression(format!("ADD {}", additions.join(", ")))
            .condition_expression(
                "attribute_not_exists(#applied) OR (NOT contains(#applied, :event) AND size(#applied) < :max)",
            )
    }
}

/// [`Once::judge`] judges the refusal of this write.
impl From<Once> for Write {
    fn from(once: Once) -> Self {
        once.builder().into()
    }
}
