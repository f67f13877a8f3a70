//! Guards business writes against a second application, for replays that come when every record has
//! long expired.
//!
//! A [`Guard`] needs no idempotency key: it compares values in the business item. A
//! [`transition`](Guard::transition) moves a state one way, [`once`](Guard::once) applies an operation
//! that isn't naturally idempotent ("add 5") once for each event, [`latest`](Guard::latest) keeps the
//! newest version of an item, in whatever order versions come. Each has three results: it applied, it
//! had applied before, or it is refused.
//!
//! Alone, a guard is one `UpdateItem`: [`Guard::apply`]. The client sends it again as its retries are
//! configured. A send without an answer (a timeout, a lost connection, a 5xx, the page of a proxy) may
//! have applied, or may still arrive and apply. The answer to a later send then gives the result:
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
//! use lambda_idempotency::dynamodb::guard::Guard;
//! use lambda_idempotency::store::transaction::{Write, WriteError};
//!
//! #[derive(Debug, thiserror::Error)]
//! enum PayError {
//!     #[error("this payment has paid the order before")]
//!     PaidBefore,
//!     #[error("the order can't be paid now")]
//!     NotPayable,
//!     #[error(transparent)]
//!     Write(#[from] WriteError),
//! }
//!
//! async fn pay(claim: Claim, payment: String) -> Result<(), PayError> {
//!     let by = S(payment);
//!     let paid = Guard::transition("orders", [("order_id", S("17".into()))], ["pending"], "paid")
//!         .set("paid_by", by.clone());
//!     claim.write(Write::from(paid).or_else(move |refusal| match refusal.item() {
//!         // The order may have moved on since: it is shipped, say.
//!         Some(order) if order.get("paid_by") == Some(&by) => PayError::PaidBefore,
//!         _ => PayError::NotPayable,
//!     }))?;
//!     Ok(())
//! }
//! ```

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::AttributeValue::{self, Bs, L, M, N, Ns, S, Ss};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure as OnFailure, Update};

use crate::dynamodb::client::{Noted, noted};
use crate::dynamodb::error::{Met, Refusal};
use crate::dynamodb::layout::Item;
use crate::dynamodb::transaction::without_values;
use crate::protocol::causes::{in_words, unlinked};
use crate::protocol::fingerprint::canonical_text;
use crate::store::BoxError;
use crate::store::transaction::Write;
use crate::store::version::Form;

#[cfg(test)]
mod tests;

pub use crate::store::version::Version;

/// The result of a guarded write. Its `Debug` shows nothing of an item.
#[derive(Clone, PartialEq)]
#[must_use = "a write that is refused changes nothing"]
pub enum Guarded {
    /// The write applied now.
    Applied,
    /// The write had applied before: in an earlier call, or by an earlier send of this call whose
    /// answer was lost. An effect that must follow the write follows this result, too.
    AlreadyApplied,
    /// The item doesn't allow the write; nothing changed. A transition that had applied is refused, too,
    /// when another operation has moved the state on.
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
/// Its source is the SDK's error, whose texts may quote what was sent; those of this one don't.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The write did not apply, and can't any more: it could not be sent, or DynamoDB answered each
    /// send of it with an error.
    #[error("the guarded write failed: {}{}", words(.0), see!("guard-failed"))]
    Failed(#[source] BoxError),
    /// A send of the write got no answer: it may have applied, or may still arrive and apply. Fail,
    /// so that the event is delivered again.
    #[error("the outcome of the guarded write is unknown: {}{}", words(.0), see!("guard-unknown"))]
    Unknown(#[source] BoxError),
}

impl fmt::Debug for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "Failed({})", words(error)),
            Self::Unknown(error) => write!(f, "Unknown({})", words(error)),
        }
    }
}

/// Returns the words of the error and its causes: the SDK's own are "service error".
fn words(error: &BoxError) -> String {
    without_values(&unlinked(&in_words(&**error)))
}

/// A write that its own item keeps from a second application. The changes that are named on it apply
/// with it, or not at all.
#[derive(Clone, PartialEq)]
#[must_use = "it does nothing until it is applied, or written to a claim"]
pub struct Guard {
    table: String,
    key: Item,
    attribute: String,
    kind: Kind,
    at_most: Option<u32>,
    changes: Vec<(String, Change)>,
}

#[derive(Clone, PartialEq)]
enum Kind {
    Transition { from: Vec<String>, to: String },
    Once(String),
    Latest(Version),
}

#[derive(Clone, PartialEq)]
enum Change {
    Set(AttributeValue),
    Remove,
    Add(i64),
}

debug_fields!([] Guard { table, attribute });

impl Guard {
    fn new<K: Into<String>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, AttributeValue)>,
        attribute: &str,
        kind: Kind,
    ) -> Self {
        let key = key.into_iter().map(|(name, value)| (name.into(), value));
        Self {
            table: table.into(),
            key: key.collect(),
            attribute: attribute.to_owned(),
            kind,
            at_most: None,
            changes: Vec::new(),
        }
    }

    /// Moves an item's state one way, from one of several to another: `pending` to `paid`, and never
    /// again.
    ///
    /// The item must exist. Without [`set`](Self::set), an item that another operation moved to the
    /// same state counts as moved already. With values that name the operation (`paid_by`, the
    /// payment's id), such an item is refused: only the same operation counts as applied. When the state
    /// has moved on (`shipped`), the same operation is refused, too: look for its value in the item before
    /// you take it for another's.
    ///
    /// ```no_run
    /// # async fn pay(client: &aws_sdk_dynamodb::Client) -> Result<(), lambda_idempotency::dynamodb::guard::GuardError> {
    /// use aws_sdk_dynamodb::types::AttributeValue::S;
    /// use lambda_idempotency::dynamodb::guard::{Guard, Guarded};
    ///
    /// let by = S("payment-9".into());
    /// let paid = Guard::transition("orders", [("order_id", S("17".into()))], ["pending"], "paid")
    ///     .set("paid_by", by.clone());
    /// match paid.apply(client).await? {
    ///     Guarded::Applied => println!("paid now"),
    ///     Guarded::AlreadyApplied => println!("paid before, by this payment"),
    ///     Guarded::Refused { found: Some(order) } if order.get("paid_by") == Some(&by) => {
    ///         println!("paid before, by this payment, and the order has moved on");
    ///     }
    ///     Guarded::Refused { .. } => println!("cancelled, or paid by another"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn transition<K: Into<String>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, AttributeValue)>,
        from: impl IntoIterator<Item: Into<String>>,
        to: impl Into<String>,
    ) -> Self {
        let kind = Kind::Transition {
            from: from.into_iter().map(Into::into).collect(),
            to: to.into(),
        };
        Self::new(table, key, "status", kind)
    }

    /// Applies the changes once for each event: the item keeps the event's id beside them. An item
    /// that doesn't exist is created.
    ///
    /// An item remembers a [bounded](Self::at_most) number of events, and then refuses: it never
    /// forgets one by itself, because a forgotten event could apply twice. Use this guard for items
    /// with few events, such as the payments of an order. For many events, use the
    /// [claimless form](crate::Idempotency::claimless), which keeps them as their own records.
    ///
    /// ```no_run
    /// # async fn take(client: &aws_sdk_dynamodb::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use aws_sdk_dynamodb::types::AttributeValue::S;
    /// use lambda_idempotency::dynamodb::guard::{Guard, Guarded};
    ///
    /// let payment = Guard::once("orders", [("order_id", S("17".into()))], "payment-9").add("paid_cents", 1250);
    /// match payment.apply(client).await? {
    ///     Guarded::Applied => println!("taken now"),
    ///     Guarded::AlreadyApplied => println!("taken before: the event was delivered again"),
    ///     Guarded::Refused { .. } => return Err("the order is full: this payment isn't taken".into()),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn once<K: Into<String>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, AttributeValue)>,
        event: impl Into<String>,
    ) -> Self {
        Self::new(table, key, "applied_events", Kind::Once(event.into())).at_most(100)
    }

    /// Writes an item, if it is newer than the one that is there: versions may come twice, and in any
    /// order, and the newest stays.
    ///
    /// An item that doesn't exist is created. Attributes that the write doesn't name stay as they are,
    /// so each version names the same ones, by [`set`](Self::set) or by [`remove`](Self::remove). An
    /// item that was deleted has forgotten its version: where older versions may still come, keep the
    /// item, and set an attribute that says that it is deleted.
    ///
    /// ```no_run
    /// # async fn stock(client: &aws_sdk_dynamodb::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use aws_sdk_dynamodb::types::AttributeValue::{N, S};
    /// use lambda_idempotency::dynamodb::guard::{Guard, Guarded, Version};
    ///
    /// let version = Version::sequence("49590338271490256608559692538361571095921575989136588898")?;
    /// let stock = Guard::latest("stock", [("sku", S("a-1".into()))], version).set("pieces", N("5".into()));
    /// if stock.apply(client).await? == Guarded::AlreadyApplied {
    ///     println!("this version, or a newer one, is there");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn latest<K: Into<String>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, AttributeValue)>,
        version: impl Into<Version>,
    ) -> Self {
        Self::new(table, key, "version", Kind::Latest(version.into()))
    }

    /// Names the attribute that holds the state (default: `status`), the events' ids as a string set
    /// (`applied_events`), or the version (`version`).
    pub fn attribute(mut self, name: impl Into<String>) -> Self {
        self.attribute = name.into();
        self
    }

    /// Bounds the events that the item of [`once`](Self::once) may remember. Default: 100. They take
    /// room in the item, and each write is billed by its size. DynamoDB refuses a guard of another
    /// kind that has a bound.
    pub fn at_most(mut self, events: u32) -> Self {
        self.at_most = Some(events);
        self
    }

    /// Sets an attribute. A [`transition`](Self::transition) recognises its own move by the values that
    /// are set.
    pub fn set(self, name: impl Into<String>, value: AttributeValue) -> Self {
        self.change(name, Change::Set(value))
    }

    /// Removes an attribute.
    pub fn remove(self, name: impl Into<String>) -> Self {
        self.change(name, Change::Remove)
    }

    /// Adds this amount to an attribute; a negative number subtracts. An absent attribute counts as 0.
    /// A version that isn't the [`latest`](Self::latest) adds nothing.
    pub fn add(self, name: impl Into<String>, amount: i64) -> Self {
        self.change(name, Change::Add(amount))
    }

    fn change(mut self, name: impl Into<String>, change: Change) -> Self {
        self.changes.push((name.into(), change));
        self
    }

    /// Applies the guard by itself, as one request. A [`latest`](Self::latest) version gives
    /// [`Guarded::AlreadyApplied`] where this version or a newer one is there.
    ///
    /// # Errors
    ///
    /// [`GuardError::Failed`], when DynamoDB failed, the guard lacks something, or the item has a
    /// version of another kind.
    /// [`GuardError::Unknown`], when a send got no answer and no later one says that the write
    /// applied. Any other condition that fails after sends that were all answered is no error.
    ///
    /// # Cancellation
    ///
    /// A call that is dropped before its result may have applied, or may still apply.
    pub async fn apply(&self, client: &Client) -> Result<Guarded, GuardError> {
        let update = self.builder().build();
        let update = update.map_err(|error| GuardError::Failed(error.into()))?;
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
            Some(Met(Some(found))) => Ok(self.judge(Some(&found))),
            // There is no item, or the answer leaves it out, as some proxies and emulators do.
            Some(Met(None)) => match Box::pin(read.send()).await {
                Ok(output) => Ok(self.judge(output.item.as_ref())),
                Err(error) if error.code() == Some("AccessDeniedException") => Ok(self.judge(None)),
                Err(error) => return Err(GuardError::Unknown(error.into())),
            },
            None => Err(error),
        };
        match judged {
            Ok(Guarded::Refused { .. }) if sends.is_silent() => {
                let reason = "a send of the write got no answer, and a later one was refused";
                Err(GuardError::Unknown(reason.into()))
            }
            Ok(Guarded::Refused { found }) if matches!(self.kind, Kind::Latest(_)) => {
                let reason = match found {
                    Some(_) => format!(
                        "the attribute `{}` of the item holds no version of this kind, so that the two can't be compared: write each item with versions of one kind",
                        self.attribute
                    ),
                    None => {
                        "the item that was met can't be read: allow `dynamodb:GetItem`".to_owned()
                    }
                };
                Err(GuardError::Failed(reason.into()))
            }
            Ok(judged) => Ok(judged),
            Err(error) if sends.is_silent() => Err(GuardError::Unknown(error.into())),
            Err(error) => Err(GuardError::Failed(error.into())),
        }
    }

    /// Judges the item that the condition met: the write had applied already, or the item doesn't allow
    /// it. An item of [`transition`](Self::transition) that is refused may have moved on since the write,
    /// one of [`once`](Self::once) is full, one of [`latest`](Self::latest) has a version that can't be
    /// compared.
    pub fn judge(&self, found: Option<&HashMap<String, AttributeValue>>) -> Guarded {
        let has_applied = |item: &Item| match (&self.kind, item.get(&self.attribute)) {
            (Kind::Transition { to, .. }, Some(S(state))) => {
                let is_there = |(name, change): &(String, Change)| match change {
                    Change::Set(value) => item.get(name).is_some_and(|met| is_same(met, value)),
                    Change::Remove | Change::Add(_) => true,
                };
                state == to && self.changes.iter().all(is_there)
            }
            (Kind::Once(event), Some(Ss(events))) => events.contains(event),
            (Kind::Latest(version), Some(met)) => match (version.form(), met) {
                (Form::Number(_), N(_)) => true,
                (Form::Text { kind, .. }, S(met)) => met.starts_with(kind),
                _ => false,
            },
            _ => false,
        };
        if found.is_some_and(has_applied) {
            return Guarded::AlreadyApplied;
        }
        Guarded::Refused {
            found: found.cloned(),
        }
    }

    fn builder(&self) -> UpdateBuilder {
        let mut names = HashMap::from([("#guard".to_owned(), self.attribute.clone())]);
        let mut values = HashMap::new();
        let mut bind = |alias: &str, value: AttributeValue| {
            values.insert(alias.to_owned(), value);
        };
        let (mut sets, mut removes, mut adds) = (Vec::new(), Vec::new(), Vec::new());
        let condition = match &self.kind {
            Kind::Transition { from, to } => {
                bind(":guard", S(to.clone()));
                sets.push("#guard = :guard".to_owned());
                let from = from.iter().enumerate().map(|(place, state)| {
                    let alias = format!(":f{place}");
                    bind(&alias, S(state.clone()));
                    alias
                });
                format!("#guard IN ({})", from.collect::<Vec<_>>().join(", "))
            }
            Kind::Once(event) => {
                bind(":guard", Ss(vec![event.clone()]));
                bind(":event", S(event.clone()));
                adds.push("#guard :guard".to_owned());
                "attribute_not_exists(#guard) OR (NOT contains(#guard, :event) AND size(#guard) < :at_most)".to_owned()
            }
            Kind::Latest(version) => {
                sets.push("#guard = :guard".to_owned());
                // A comparison of a number with a text is false.
                let newer = match version.form() {
                    Form::Number(number) => {
                        bind(":guard", N(number.to_string()));
                        "#guard < :guard"
                    }
                    Form::Text { kind, text } => {
                        bind(":guard", S(text.clone()));
                        bind(":kind", S((*kind).to_owned()));
                        "(#guard < :guard AND begins_with(#guard, :kind))"
                    }
                };
                format!("attribute_not_exists(#guard) OR {newer}")
            }
        };
        // DynamoDB refuses a value that no expression uses, so that no bound is ignored.
        if let Some(events) = self.at_most {
            bind(":at_most", N(events.to_string()));
        }
        for (place, (name, change)) in self.changes.iter().enumerate() {
            let (changed, value) = (format!("#c{place}"), format!(":c{place}"));
            match change {
                Change::Set(to) => {
                    sets.push(format!("{changed} = {value}"));
                    bind(&value, to.clone());
                }
                Change::Remove => removes.push(changed.clone()),
                Change::Add(amount) => {
                    adds.push(format!("{changed} {value}"));
                    bind(&value, N(amount.to_string()));
                }
            }
            names.insert(changed, name.clone());
        }
        let clauses = [("SET", sets), ("REMOVE", removes), ("ADD", adds)];
        let clauses = clauses.iter().filter(|(_, parts)| !parts.is_empty());
        let clauses = clauses.map(|(verb, parts)| format!("{verb} {}", parts.join(", ")));
        Update::builder()
            .table_name(&self.table)
            .set_key(Some(self.key.clone()))
            .update_expression(clauses.collect::<Vec<_>>().join(" "))
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values))
    }
}

/// [`Guard::judge`] judges the refusal of this write.
impl From<Guard> for Write {
    fn from(guard: Guard) -> Self {
        guard.builder().into()
    }
}

/// Compares values as DynamoDB does: it returns numbers in another form, and sets in another order.
fn is_same(stored: &AttributeValue, wanted: &AttributeValue) -> bool {
    // JSON has no `+5`, no `05` and no `.5`.
    let number = |text: &String| {
        let sign = if text.starts_with('-') { "-" } else { "" };
        let digits = text.trim_start_matches(['+', '-', '0']);
        let zero = if digits.starts_with(|first: char| first.is_ascii_digit()) {
            ""
        } else {
            "0"
        };
        let json = format!("{sign}{zero}{digits}");
        canonical_text(json.as_bytes()).unwrap_or(json)
    };
    match (stored, wanted) {
        (N(stored), N(wanted)) => number(stored) == number(wanted),
        (Ss(stored), Ss(wanted)) => sorted(stored.clone()) == sorted(wanted.clone()),
        (Ns(stored), Ns(wanted)) => {
            sorted(stored.iter().map(number).collect())
                == sorted(wanted.iter().map(number).collect())
        }
        (Bs(stored), Bs(wanted)) => {
            stored.len() == wanted.len() && wanted.iter().all(|blob| stored.contains(blob))
        }
        (L(stored), L(wanted)) => {
            let mut pairs = stored.iter().zip(wanted);
            stored.len() == wanted.len() && pairs.all(|(stored, wanted)| is_same(stored, wanted))
        }
        (M(stored), M(wanted)) => {
            let is_there = |(name, wanted)| {
                stored
                    .get(name)
                    .is_some_and(|stored| is_same(stored, wanted))
            };
            stored.len() == wanted.len() && wanted.iter().all(is_there)
        }
        (stored, wanted) => stored == wanted,
    }
}

fn sorted(mut members: Vec<String>) -> Vec<String> {
    members.sort_unstable();
    members
}
