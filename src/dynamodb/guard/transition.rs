//! Moves a state one way.

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, Update};

use super::super::layout::Item;
use super::{GuardError, Guarded};
use crate::protocol::fingerprint::canonical_text;
use crate::store::transaction::Write;

/// Moves an item's state one way, from one of several to another: `pending` to `paid`, and never
/// again.
///
/// The item must exist. Without [`mark`](Self::mark), an item that another operation moved to the
/// same state counts as moved already. With marks that name the operation (`paid_by`, the payment's
/// id), such an item is refused: only the same operation counts as applied.
///
/// ```no_run
/// # async fn pay(client: &aws_sdk_dynamodb::Client) -> Result<(), lambda_idempotency::dynamodb::guard::GuardError> {
/// use aws_sdk_dynamodb::types::AttributeValue::S;
/// use lambda_idempotency::dynamodb::guard::{Guarded, Transition};
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
    /// Makes a transition of the item with this key. [`from`](Self::from) and [`to`](Self::to) set
    /// its states.
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

    /// Names the attribute that holds the state. Default: `status`.
    pub fn attribute(mut self, name: impl Into<String>) -> Self {
        self.attribute = name.into();
        self
    }

    /// Adds a state that the item may come from; call it again for another.
    pub fn from(mut self, state: impl Into<String>) -> Self {
        self.from.push(state.into());
        self
    }

    /// Sets the state that the item goes to.
    pub fn to(mut self, state: impl Into<String>) -> Self {
        self.to = state.into();
        self
    }

    /// Sets another attribute along with the state, by which the transition recognises its own
    /// move.
    pub fn mark(mut self, name: impl Into<String>, value: AttributeValue) -> Self {
        self.marks.push((name.into(), value));
        self
    }

    /// Applies the transition by itself, as one request.
    ///
    /// # Errors
    ///
    /// [`GuardError::Failed`], when DynamoDB failed, or the transition lacks something.
    /// [`GuardError::Unknown`], when a send got no answer and no later one says that the write
    /// applied. A condition that fails after sends that were all answered is no error.
    ///
    /// # Cancellation
    ///
    /// A call that is dropped before its result may have applied, or may still apply.
    pub async fn apply(&self, client: &Client) -> Result<Guarded, GuardError> {
        super::apply(client, self.builder(), |found| self.judge(found)).await
    }

    /// Judges the item that the condition met: moved already, or refused.
    pub fn judge(&self, found: Option<&HashMap<String, AttributeValue>>) -> Guarded {
        let to = AttributeValue::S(self.to.clone());
        let state = (&self.attribute, &to);
        let marks = self.marks.iter().map(|(name, value)| (name, value));
        let mut expected = std::iter::once(state).chain(marks);
        let is_there = |item: &Item| {
            expected
                .all(|(name, value)| item.get(name).is_some_and(|stored| is_same(stored, value)))
        };
        super::judge(found, is_there)
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

/// [`Transition::judge`] judges the refusal of this write.
impl From<Transition> for Write {
    fn from(transition: Transition) -> Self {
        transition.builder().into()
    }
}

/// Compares values as DynamoDB does: it returns numbers in another form, and sets in another order.
fn is_same(stored: &AttributeValue, wanted: &AttributeValue) -> bool {
    use AttributeValue::{Bs, L, M, N, Ns, Ss};
    let number = |text: &String| canonical_text(text.as_bytes()).unwrap_or_else(|| text.clone());
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

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::primitives::Blob;

    use super::*;

    #[test]
    fn a_number_is_the_same_in_every_form_and_a_set_in_every_order() {
        use AttributeValue::{Bs, L, M, N, S, Ss};
        let set = |members: [&str; 2]| Ss(members.map(str::to_owned).to_vec());
        assert!(is_same(&N("10.5".into()), &N("10.50".into())));
        assert!(is_same(&N("1000".into()), &N("1e3".into())));
        assert!(!is_same(&N("10.5".into()), &N("10.51".into())));
        assert!(is_same(&set(["a", "b"]), &set(["b", "a"])));
        assert!(!is_same(&S("10.5".into()), &S("10.50".into())));
        let blobs = |bytes: [&[u8]; 2]| Bs(bytes.map(Blob::new).to_vec());
        assert!(is_same(&blobs([b"a", b"b"]), &blobs([b"b", b"a"])));
        let nested = |total: &str| {
            let total = ("total".to_owned(), N(total.to_owned()));
            M([total.clone(), ("all".to_owned(), L(vec![total.1]))].into())
        };
        assert!(is_same(&nested("10.5"), &nested("10.50")));
        assert!(!is_same(&nested("10.5"), &nested("10.51")));
        assert!(!is_same(&L(vec![N("1".into())]), &L(Vec::new())));
    }
}
