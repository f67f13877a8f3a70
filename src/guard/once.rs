//! An operation that isn't naturally idempotent, once for each event.

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, Update};

use super::{GuardError, Guarded, Item, send};
use crate::transaction::Write;

/// How many events an item remembers, unless [`Once::at_most`] says otherwise: they take room in it, and each write is billed by
/// the item's size.
const AT_MOST: u32 = 100;

/// Adds to a number, once for each event: the event's id is kept in the item beside what it changed.
///
/// An item remembers a bounded number of events, and then refuses: it never forgets one by itself, because a forgotten event could
/// apply twice. So it is for items with few events (the payments of an order). For many, use the
/// [claimless form](crate::Idempotency::claimless), which keeps the events as records of their own.
///
/// ```no_run
/// # async fn deposit(client: &aws_sdk_dynamodb::Client) -> Result<(), lambda_idempotency::guard::GuardError> {
/// use aws_sdk_dynamodb::types::AttributeValue::S;
/// use lambda_idempotency::guard::{Guarded, Once};
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

/// Shows where it goes, and neither the item nor the event.
impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("table", &self.table)
            .field("attribute", &self.applied)
            .finish_non_exhaustive()
    }
}

impl Once {
    /// On the item under this key, for this event. An item that isn't there is made.
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

    /// Adds so much to this attribute; a negative number takes away. An attribute that isn't there counts as 0.
    pub fn add(mut self, attribute: impl Into<String>, amount: i64) -> Self {
        self.additions.push((attribute.into(), amount));
        self
    }

    /// The attribute that keeps the events' ids, a string set. Default: `applied_events`.
    pub fn attribute(mut self, name: impl Into<String>) -> Self {
        self.applied = name.into();
        self
    }

    /// How many events the item may remember. Default: 100.
    pub fn at_most(mut self, events: u32) -> Self {
        self.at_most = events;
        self
    }

    /// Applies it by itself, as one request.
    ///
    /// # Errors
    ///
    /// When DynamoDB failed. A condition that fails is no error.
    pub async fn apply(&self, client: &Client) -> Result<Guarded, GuardError> {
        let update = self.update().map_err(|error| GuardError(error.into()))?;
        Ok(match send(client, update).await? {
            Ok(()) => Guarded::Applied,
            Err(found) => self.judge(found.as_ref()),
        })
    }

    /// What the item says that its condition met: this event applied already, or the item is full.
    pub fn judge(&self, found: Option<&HashMap<String, AttributeValue>>) -> Guarded {
        let events = found.and_then(|item| item.get(&self.applied)?.as_ss().ok());
        if events.is_some_and(|events| events.contains(&self.event)) {
            return Guarded::AlreadyApplied;
        }
        Guarded::Refused {
            found: found.cloned(),
        }
    }

    fn update(&self) -> Result<Update, BuildError> {
        self.builder().build()
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

/// Its refusal is judged by [`Once::judge`].
impl From<Once> for Write {
    fn from(once: Once) -> Self {
        once.builder().into()
    }
}
