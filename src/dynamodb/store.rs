//! Sends single requests to the table.

use std::pin::Pin;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use tokio::time::Instant;

use super::change::Change;
use super::client;
use super::layout::{Item, TableLayout, as_item};
use crate::dynamodb::change::Expressions;
use crate::dynamodb::error::{Denied, Met, Refusal, classify};
use crate::protocol::key::RecordId;
use crate::protocol::record::Found;
use crate::setup::BuildError;
use crate::store::{Answer, StoreError};

#[cfg(feature = "s3")]
use super::objects::OutcomeBucket;

/// Names the environment variable that [`DynamoDbStore::from_env`] takes the table's name from.
const TABLE_VARIABLE: &str = "IDEMPOTENCY_TABLE";

/// The store keeps records in a DynamoDB table.
///
/// Cheap to clone. Every write is conditional and asks for the item that a failing condition met,
/// so that a duplicate costs one request.
///
/// ```no_run
/// use lambda_idempotency::{Idempotency, dynamodb::DynamoDbStore};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let once = Idempotency::builder(DynamoDbStore::from_env().await?).namespace("payments").build()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct DynamoDbStore {
    pub(super) client: Client,
    /// Of claims, completions and releases.
    pub(super) writes: Client,
    pub(super) table: String,
    pub(super) layout: TableLayout,
    pub(super) denied: Denied,
    #[cfg(feature = "s3")]
    pub(super) bucket: Option<OutcomeBucket>,
}

debug_fields!([] DynamoDbStore { table, layout });

/// A request under way. Boxed, since the SDK's futures are large.
type Sending<'a, T, E> =
    Pin<Box<dyn Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'a>>;

/// Who sends a request again that got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retries {
    /// The SDK, as its client is configured: the record tells whether the write applied.
    Sdk,
    /// The engine, which must know of each send.
    Engine,
}

impl DynamoDbStore {
    /// Makes a store on a table, with a client that you built. Give the client short timeouts: you
    /// pay for a Lambda that waits.
    ///
    /// `table` is the table's name, or its ARN where it is another account's. A table that is given
    /// by its ARN gets the writes of a batch one by one: PartiQL takes names alone.
    ///
    /// The client's retries apply to all requests but two kinds, which the engine sends again by
    /// itself: commits (`TransactWriteItems`, and the single write that ends a claimless run), so
    /// that it knows of each send that got no answer; and throttled writes, so that all runs of an
    /// engine share one pace.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the store's requests go through it"
    )]
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        let client = client::noting_sends(&client);
        Self {
            writes: client::without_repeats(&client),
            client,
            table: table.into(),
            layout: TableLayout::default(),
            denied: Denied::default(),
            #[cfg(feature = "s3")]
            bucket: None,
        }
    }

    /// Makes a store on the table that `IDEMPOTENCY_TABLE` names, with a client made for Lambda.
    ///
    /// Region, credentials and endpoint come from the environment. [`sdk_config`](super::sdk_config)
    /// has the client's timeouts, retries and trusted certificates, and makes the same configuration
    /// for your own clients. When AWS refuses the credentials as expired, that call fails with
    /// [`StoreError::Unauthenticated`], and the next one asks their provider anew.
    ///
    /// # Errors
    ///
    /// [`BuildError::TableNotNamed`], when the variable is missing or empty.
    pub async fn from_env() -> Result<Self, BuildError> {
        let table = std::env::var(TABLE_VARIABLE).unwrap_or_default();
        if table.is_empty() {
            return Err(BuildError::TableNotNamed);
        }
        Ok(Self::new(client::from_env().await, table))
    }

    /// Changes the [layout](TableLayout), for a table with other attribute names or a composite key.
    /// Building an engine on the store fails where two attributes have one name.
    ///
    /// ```
    /// # use lambda_idempotency::dynamodb::DynamoDbStore;
    /// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = DynamoDbStore::from_env().await?.layout(|layout| layout.expiration = "ttl".into());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn layout(mut self, change: impl FnOnce(&mut TableLayout)) -> Self {
        change(&mut self.layout);
        self
    }

    /// Keeps outcomes that are too large for an item as objects in a bucket. Their keys are
    /// `{prefix}{hash}/{owner}`: end the prefix with `/`. Objects under an earlier prefix aren't found.
    ///
    /// Objects don't expire by themselves: give the bucket a lifecycle rule for the prefix, with more
    /// days than the longest retention. The function needs `s3:PutObject` and `s3:GetObject` on the
    /// prefix. Without `s3:ListBucket` on the bucket, S3 answers "denied" for an object that is gone.
    ///
    /// ```no_run
    /// # use lambda_idempotency::dynamodb::DynamoDbStore;
    /// # async fn start(s3: aws_sdk_s3::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let store = DynamoDbStore::from_env().await?.outcome_bucket(s3, "my-outcomes", "idempotency-outcomes/");
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "s3")]
    #[cfg_attr(docsrs, doc(cfg(feature = "s3")))]
    #[must_use]
    pub fn outcome_bucket(
        mut self,
        client: aws_sdk_s3::Client,
        bucket: impl Into<String>,
        prefix: impl Into<String>,
    ) -> Self {
        self.bucket = Some(OutcomeBucket {
            client,
            bucket: bucket.into(),
            prefix: prefix.into(),
        });
        self
    }

    /// The client, for the handler's own tables.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs one call, and translates its failure. Requests come boxed: the SDK's futures are large,
    /// and every run's future would carry, and move, several of them.
    pub(super) async fn call<T, E, F>(
        &self,
        action: &'static str,
        deadline: Instant,
        request: Pin<Box<F>>,
    ) -> Result<Result<T, Option<Found>>, StoreError>
    where
        E: Refusal,
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>> + ?Sized,
    {
        let (reply, is_silent) = client::in_time(deadline, request).await?;
        match reply {
            Ok(reply) => Ok(Ok(reply)),
            Err(error) => {
                if let Some(Met(item)) = error.as_service_error().and_then(Refusal::met) {
                    return Ok(Err(item.map(|item| self.layout.read(&item))));
                }
                let error = classify(&self.table, &self.layout, action, &error);
                Err(error.uncertain_if(is_silent))
            }
        }
    }

    /// Reads one item.
    pub(super) async fn get(
        &self,
        id: &str,
        deadline: Instant,
    ) -> Result<Option<Item>, StoreError> {
        let request = self.client.get_item().table_name(&self.table);
        let request = request.set_key(Some(self.layout.key_item(id)));
        let request = Box::pin(request.consistent_read(true).send());
        let reply = self.call("dynamodb:GetItem", deadline, request).await?;
        Ok(reply.ok().and_then(|output| output.item))
    }

    /// Returns the record that a failed condition met. Where the answer has none, as some proxies and
    /// emulators leave it out, it is read. The write was refused for certain, and a read that fails
    /// doesn't change that.
    pub(super) async fn met(
        &self,
        found: Option<Found>,
        id: &RecordId,
        deadline: Instant,
    ) -> Option<Found> {
        if found.is_some() {
            return found;
        }
        let item = Box::pin(self.get(id.as_str(), deadline)).await.ok()??;
        Some(self.layout.read(&item))
    }

    /// Carries a change of this record out. An update answers with the whole new item where
    /// `returning` asks for it.
    pub(super) async fn apply(
        &self,
        id: &RecordId,
        change: Change<'_>,
        returning: ReturnValue,
        retries: Retries,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let expressions = Expressions::of(&self.layout, &change);
        if change.is_whole {
            let request = self
                .writes
                .put_item()
                .table_name(&self.table)
                .set_item(Some(change.item(&self.layout)))
                .condition_expression(expressions.condition)
                .set_expression_attribute_names(Some(expressions.names))
                .set_expression_attribute_values(expressions.values)
                .return_values_on_condition_check_failure(OnFailure::AllOld);
            let request: Sending<'_, _, _> = match retries {
                Retries::Sdk => Box::pin(request.send()),
                Retries::Engine => {
                    let once = client::sent_once(&self.client);
                    Box::pin(request.customize().config_override(once).send())
                }
            };
            return Ok(
                match self.call("dynamodb:PutItem", deadline, request).await? {
                    Ok(_) => Answer::Applied(None),
                    Err(found) => Answer::Refused(self.met(found, id, deadline).await),
                },
            );
        }
        let request = self
            .writes
            .update_item()
            .table_name(&self.table)
            .set_key(Some(as_item(change.key)))
            .set_update_expression(expressions.update)
            .condition_expression(expressions.condition)
            .set_expression_attribute_names(Some(expressions.names))
            .set_expression_attribute_values(expressions.values)
            .return_values(returning)
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        let request: Sending<'_, _, _> = match retries {
            Retries::Sdk => Box::pin(request.send()),
            Retries::Engine => {
                let once = client::sent_once(&self.client);
                Box::pin(request.customize().config_override(once).send())
            }
        };
        Ok(
            match self.call("dynamodb:UpdateItem", deadline, request).await? {
                Ok(output) => {
                    Answer::Applied(output.attributes.map(|item| self.layout.read(&item)))
                }
                Err(found) => Answer::Refused(self.met(found, id, deadline).await),
            },
        )
    }
}
