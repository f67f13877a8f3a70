//! A state that moves one way.

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, Update};

use super::{GuardError, Guarded, Item, send};
use crate::fingerprint::canonical_text;
use crate::transaction::Write;

/// A one-way move of an item's state, from one of several to another: `pending` to `paid`, and never again.
///
/// The item must exist. Without [`mark`](Self::mark), an item that somebody else moved to the same state counts as moved already;
/// with marks that name the operation (`paid_by`, the payment's id) it is refused, and only the same operation has
/// applied before.
///
/// ```no_run
/// # async fn pay(client: &aws_sdk_dynamodb::Client) -> Result<(), lambda_idempotency::guard::GuardError> {
/// use aws_sdk_dynamodb::types::AttributeValue::S;
/// use lambda_idempotency::guard::{Guarded, Transition};
///
/// let paid = Transition::new("orders", [("order_id", S("17".into()))])
///     .from("pending")
///     .to("paid")
///     .mark("paid_by", S("payment-9".into()));
/// match paid.apply(client).await? {
///     Guarded::Applied => println!("paid now"),
///     Guarded::AlreadyApplied => println!("paid before, by this payment"),
///     Guarded::Refused { .. } => println!("cancelled, or paid by another"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq)]
#[must_use = "a transition does nothing until it is applied, or written to a claim"]
pub struct Transition {
    table: String,
    key: Item,
    attribute: String,
    from: Vec<String>,
    to: String,
    marks: Vec<(String, AttributeValue)>,
}

/// Shows the states, and neither the item nor its marks.
impl fmt::Debug for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transition")
            .field("table", &self.table)
            .field("attribute", &self.attribute)
            .field("from", &self.from)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

impl Transition {
    /// Of the item under this key. Say [`from`](Self::from) where, and [`to`](Self::to) where.
    pub fn new<K: Into<String>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, AttributeValue)>,
    ) -> Self {
        let key = key.into_iter().map(|(name, value)| (name.into(), value));
        Self {
            table: table.into(),
            key: key.collect(),
            attribute: "status".to_owned(),
            from: Vec::new(),
            to: String::new(),
            marks: Vec::new(),
        }
    }

    /// The attribute that holds the state. Default: `status`.
    pub fn attribute(mut self, name: impl Into<String>) -> Self {
        self.attribute = name.into();
        self
    }

    /// A state that it may come from; call it again for another.
    pub fn from(mut self, state: impl Into<String>) -> Self {
        self.from.push(state.into());
        self
    }

    /// The state that it goes to.
    pub fn to(mut self, state: impl Into<String>) -> Self {
        self.to = state.into();
        self
    }

    /// Sets another attribute along with the state, and knows its own move by it.
    pub fn mark(mut self, name: impl Into<String>, value: AttributeValue) -> Self {
        self.marks.push((name.into(), value));
        self
    }

    /// Applies it by itself, as one request.
    ///
    /// # Errors
    ///
    /// When DynamoDB failed, or the transition lacks something. A condition that fails is no error.
    pub async fn apply(&self, client: &Client) -> Result<Guarded, GuardError> {
        let update = self.update().map_err(|error| GuardError(error.into()))?;
        Ok(match send(client, update).await? {
            Ok(()) => Guarded::Applied,
            Err(found) => self.judge(found.as_ref()),
        })
    }

    /// What the item says that its condition met: moved already, or refused.
    pub fn judge(&self, found: Option<&HashMap<String, AttributeValue>>) -> Guarded {
        let to = AttributeValue::S(self.to.clone());
        let state = (&self.attribute, &to);
        let marks = self.marks.iter().map(|(name, value)| (name, value));
        let mut expected = std::iter::once(state).chain(marks);
        let is_there = |item: &Item| {
            expected
                .all(|(name, value)| item.get(name).is_some_and(|stored| is_same(stored, value)))
        };
        if found.is_some_and(is_there) {
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
        let mut update = Update::builder()
            .table_name(&self.table)
            .set_key(Some(self.key.clone()))
            .expression_attribute_names("#state", &self.attribute)
            .expression_attribute_values(":to", AttributeValue::S(self.to.clone()));
        let mut sets = vec!["#state = :to".to_owned()];
        for (place, (name, value)) in self.marks.iter().enumerate() {
            sets.push(format!("#m{place} = :m{place}"));
            update = update
                .expression_attribute_names(format!("#m{place}"), name)
                .expression_attribute_values(format!(":m{place}"), value.clone());
        }
        let mut from = Vec::with_capacity(self.from.len());
        for (place, state) in self.from.iter().enumerate() {
            let alias = format!(":f{place}");
            update = update.expression_attribute_values(&alias, AttributeValue::S(state.clone()));
            from.push(alias);
        }
        update
            .update_expression(format!("SET {}", sets.join(", ")))
            .condition_expression(format!("#state IN ({})", from.join(", ")))
    }
}

/// Its refusal is judged by [`Transition::judge`].
impl From<Transition> for Write {
    fn from(transition: Transition) -> Self {
        transition.builder().into()
    }
}
/// As DynamoDB sees it: numbers come back in another form, and sets in another order.
fn is_same(stored: &AttributeValue, wanted: &AttributeValue) -> bool {
    use AttributeValue::{N, Ns, Ss};
    let number = |text: &String| canonical_text(text.as_bytes()).unwrap_or_else(|| text.clone());
    match (stored, wanted) {
        (N(stored), N(wanted)) => number(stored) == number(wanted),
        (Ss(stored), Ss(wanted)) => sorted(stored.clone()) == sorted(wanted.clone()),
        (Ns(stored), Ns(wanted)) => {
            sorted(stored.iter().map(number).collect())
                == sorted(wanted.iter().map(number).collect())
        }
        (stored, wanted) => stored == wanted,
    }
}

fn sorted(mut members: Vec<String>) -> Vec<String> {
    members.sort_unstable();
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_same_in_every_form_and_a_set_in_every_order() {
        use AttributeValue::{N, S, Ss};
        let set = |members: [&str; 2]| Ss(members.map(str::to_owned).to_vec());
        assert!(is_same(&N("10.5".into()), &N("10.50".into())));
        assert!(is_same(&N("1000".into()), &N("1e3".into())));
        assert!(!is_same(&N("10.5".into()), &N("10.51".into())));
        assert!(is_same(&set(["a", "b"]), &set(["b", "a"])));
        assert!(!is_same(&S("10.5".into()), &S("10.50".into())));
    }
}
