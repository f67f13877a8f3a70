//! Keeps the newest version of an item.

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, Update};

use super::super::layout::Item;
use super::{GuardError, Guarded};
use crate::store::transaction::Write;
use crate::store::version::{Form, Version};

/// Writes an item, if it is newer than the one that is there: versions may come twice, and in any
/// order, and the newest stays.
///
/// An item that doesn't exist is created. Attributes that the write doesn't name stay as they are, so
/// each version names the same ones, by [`set`](Self::set) or by [`remove`](Self::remove). An item
/// that was deleted has forgotten its version: where older versions may still come, keep the item, and
/// set an attribute that says that it is deleted.
///
/// ```no_run
/// # async fn stock(client: &aws_sdk_dynamodb::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use aws_sdk_dynamodb::types::AttributeValue::{N, S};
/// use lambda_idempotency::dynamodb::guard::{Guarded, Latest, Version};
///
/// let version = Version::sequence("49590338271490256608559692538361571095921575989136588898")?;
/// let stock = Latest::new("stock", [("sku", S("a-1".into()))], version).set("pieces", N("5".into()));
/// if stock.apply(client).await? == Guarded::AlreadyApplied {
///     println!("this version, or a newer one, is there");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq)]
#[must_use = "it does nothing until it is applied, or written to a claim"]
pub struct Latest {
    table: String,
    key: Item,
    attribute: String,
    version: Version,
    values: Vec<(String, Option<AttributeValue>)>,
}

/// Shows the table, the attribute and the version, and neither the item nor its values.
impl fmt::Debug for Latest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latest")
            .field("table", &self.table)
            .field("attribute", &self.attribute)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Latest {
    /// Creates a write of this version of the item with this key.
    pub fn new<K: Into<String>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, AttributeValue)>,
        version: impl Into<Version>,
    ) -> Self {
        let key = key.into_iter().map(|(name, value)| (name.into(), value));
        Self {
            table: table.into(),
            key: key.collect(),
            attribute: "version".to_owned(),
            version: version.into(),
            values: Vec::new(),
        }
    }

    /// Names the attribute that holds the version. Default: `version`.
    pub fn attribute(mut self, name: impl Into<String>) -> Self {
        self.attribute = name.into();
        self
    }

    /// Sets an attribute of this version.
    pub fn set(mut self, name: impl Into<String>, value: AttributeValue) -> Self {
        self.values.push((name.into(), Some(value)));
        self
    }

    /// Removes an attribute that this version doesn't have.
    pub fn remove(mut self, name: impl Into<String>) -> Self {
        self.values.push((name.into(), None));
        self
    }

    /// Applies the write by itself, as one request: [`Guarded::Applied`] where it is the newest,
    /// [`Guarded::AlreadyApplied`] where this version or a newer one is there.
    ///
    /// # Errors
    ///
    /// [`GuardError::Failed`], when DynamoDB failed, or the item has a version of another kind.
    /// [`GuardError::Unknown`], when a send got no answer and no later one says that the write
    /// applied.
    ///
    /// # Cancellation
    ///
    /// A call that is dropped before its result may have applied, or may still apply.
    pub async fn apply(&self, client: &Client) -> Result<Guarded, GuardError> {
        let guarded = super::apply(client, self.builder(), |found| self.judge(found)).await?;
        if let Guarded::Refused { found } = guarded {
            let reason = match found {
                Some(_) => format!(
                    "the attribute `{}` of the item holds no version of this kind, so that the two can't be compared: write each item with versions of one kind",
                    self.attribute
                ),
                None => "the item that was met can't be read: allow `dynamodb:GetItem`".to_owned(),
            };
            return Err(GuardError::Failed(reason.into()));
        }
        Ok(guarded)
    }

    /// Judges the item that the condition met: this version or a newer one is there, or one that can't
    /// be compared with it.
    pub fn judge(&self, found: Option<&HashMap<String, AttributeValue>>) -> Guarded {
        super::judge(found, |item| {
            match (self.version.form(), item.get(&self.attribute)) {
                (Form::Number(_), Some(AttributeValue::N(_))) => true,
                (Form::Text { kind, .. }, Some(AttributeValue::S(met))) => met.starts_with(kind),
                _ => false,
            }
        })
    }

    fn builder(&self) -> UpdateBuilder {
        let mut update = Update::builder()
            .table_name(&self.table)
            .set_key(Some(self.key.clone()))
            .expression_attribute_names("#version", &self.attribute);
        // A comparison of a number with a text is false.
        let newer = match self.version.form() {
            Form::Number(number) => {
                let number = AttributeValue::N(number.to_string());
                update = update.expression_attribute_values(":version", number);
                "#version < :version"
            }
            Form::Text { kind, text } => {
                let (text, kind) = (text.clone(), (*kind).to_owned());
                update = update
                    .expression_attribute_values(":version", AttributeValue::S(text))
                    .expression_attribute_values(":kind", AttributeValue::S(kind));
                "(#version < :version AND begins_with(#version, :kind))"
            }
        };
        let (mut sets, mut removals) = (vec!["#version = :version".to_owned()], Vec::new());
        for (place, (name, value)) in self.values.iter().enumerate() {
            update = update.expression_attribute_names(format!("#v{place}"), name);
            if let Some(value) = value {
                update = update.expression_attribute_values(format!(":v{place}"), value.clone());
                sets.push(format!("#v{place} = :v{place}"));
            } else {
                removals.push(format!("#v{place}"));
            }
        }
        let mut expression = format!("SET {}", sets.join(", "));
        if !removals.is_empty() {
            expression = format!("{expression} REMOVE {}", removals.join(", "));
        }
        update
            .update_expression(expression)
            .condition_expression(format!("attribute_not_exists(#version) OR {newer}"))
    }
}

/// [`Latest::judge`] judges the refusal of this write.
impl From<Latest> for Write {
    fn from(latest: Latest) -> Self {
        latest.builder().into()
    }
}
