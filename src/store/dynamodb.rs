//! Records in a DynamoDB table, through `aws-sdk-dynamodb`.
//!
//! # The table
//!
//! One string partition key, `id` unless configured otherwise; TTL on `expiration`; on-demand capacity unless you know your
//! traffic. [`TableLayout`] takes tables with other names, or with a composite key.
//!
//! # Permissions
//!
//! `dynamodb:PutItem`, `dynamodb:UpdateItem` and `dynamodb:GetItem` on the table. Nothing is ever deleted by this crate.
//! Transactions need the same, and on the business tables what their writes do: `dynamodb:PutItem`, `UpdateItem`, `DeleteItem`,
//! `ConditionCheckItem`.
//!
//! # Sharing a table with Powertools for AWS Lambda
//!
//! The attributes `id`, `status`, `expiration`, `in_progress_expiration`, `data` and `validation` have the names and meanings
//! that Powertools gives them, so each side honours the other's claims and replays the other's outcomes under an id that both
//! use ([`Key::raw`](crate::Key::raw)). Powertools completes and deletes without a condition, so its stale handlers can
//! still overwrite; its takeover ignores the skew margin; it raises an error on a status of `FAILED`; and its `validation` is
//! another hash, which this crate doesn't compare.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use aws_config::BehaviorVersion;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure};
use tokio::time::{Instant, timeout_at};

use crate::error::StoreError;
use crate::key::RecordId;
use crate::packed::{LargeOutcome, Place};
use crate::record::{Amendment, Completion, Found, NewClaim, Release, Renewal, Takeover, Version};
use crate::store::{Answer, Store};
use crate::transaction::{Admission, Commit, Committed};

mod change;
mod client;
mod commit;
mod expression;
mod failure;
mod group;
mod item;
mod journal;
mod layout;
mod members;
#[cfg(feature = "s3")]
mod objects;
mod oversize;
mod packed;
mod size;
mod statement;
mod transaction;
mod write;

pub use layout::TableLayout;
#[cfg(feature = "s3")]
pub use objects::OutcomeBucket;

use change::Change;
use expression::Expressions;
use failure::{Met, Refusal, classify};
use group::Denied;
use layout::as_item;

/// The environment variable that [`DynamoDbStore::from_env`] takes the table's name from.
pub const TABLE_VARIABLE: &str = "IDEMPOTENCY_TABLE";

/// Records in a DynamoDB table.
///
/// Cheap to clone. Every write is conditional and asks for the item that a failing condition met, so that a duplicate
/// costs one request.
///
/// ```no_run
/// use lambda_idempotency::{Idempotency, store::dynamodb::DynamoDbStore};
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let once = Idempotency::builder(DynamoDbStore::from_env().await?).namespace("payments").build()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct DynamoDbStore {
    client: Client,
    table: String,
    layout: TableLayout,
    denied: Denied,
    #[cfg(feature = "s3")]
    bucket: Option<OutcomeBucket>,
}

impl fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStore")
            .field("table", &self.table)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

/// `from_env()` found no table's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("set the environment variable {TABLE_VARIABLE} to the name of the idempotency table")]
pub struct TableNotNamed;

impl DynamoDbStore {
    /// A store on a table, through a client that you built. Give the client short timeouts: a Lambda that waits is paid for.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
            layout: TableLayout::default(),
            denied: Denied::default(),
            #[cfg(feature = "s3")]
            bucket: None,
        }
    }

    /// A store on the table that `IDEMPOTENCY_TABLE` names, through a client made for Lambda.
    ///
    /// Region, credentials and endpoint come from the environment, as the SDK reads them. The client connects within
    /// 3.1 seconds (one lost SYN and its repetition), gives an attempt 4 and an operation 10 seconds, tries three times with
    /// small pauses, and leaves stalled-stream protection off, which small replies don't need.
    ///
    /// # Errors
    ///
    /// [`TableNotNamed`], when the variable is missing or empty.
    pub async fn from_env() -> Result<Self, TableNotNamed> {
        let table = std::env::var(TABLE_VARIABLE).unwrap_or_default();
        if table.is_empty() {
            return Err(TableNotNamed);
        }
        let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .timeout_config(client::timeouts())
            .retry_config(client::retries())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .load()
            .await;
        Ok(Self::new(Client::new(&config), table))
    }

    /// Takes a table with other attribute names or a composite key.
    #[must_use]
    pub fn layout(mut self, layout: TableLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Keeps outcomes that no item takes in a bucket.
    #[cfg(feature = "s3")]
    #[cfg_attr(docsrs, doc(cfg(feature = "s3")))]
    #[must_use]
    pub fn outcome_bucket(mut self, bucket: OutcomeBucket) -> Self {
        self.bucket = Some(bucket);
        self
    }

    /// The client, for the handler's own tables.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs one call, and says in this crate's words what went wrong. Requests come boxed: the SDK's futures are large, and
    /// every run's future would carry, and move, several of them.
    async fn call<T, E>(
        &self,
        action: &'static str,
        deadline: Instant,
        request: Pin<Box<impl Future<Output = Result<T, E>>>>,
    ) -> Result<Result<T, Option<Found>>, StoreError>
    where
        E: Refusal,
    {
        if Instant::now() >= deadline {
            return Err(StoreError::Timeout);
        }
        match timeout_at(deadline, request).await {
            Err(_) => Err(StoreError::Timeout),
            Ok(Ok(reply)) => Ok(Ok(reply)),
            Ok(Err(error)) => match error.met() {
                Some(Met(item)) => Ok(Err(item.map(|item| item::decode(&self.layout, &item)))),
                None => Err(classify(&self.table, &self.layout, action, error)),
            },
        }
    }

    async fn put(&self, change: Change<'_>, deadline: Instant) -> Result<Answer, StoreError> {
        let expressions = Expressions::of_put(&self.layout, &change);
        let request = Box::pin(
            self.client
                .put_item()
                .table_name(&self.table)
                .set_item(Some(change.item(&self.layout)))
                .condition_expression(expressions.condition)
                .set_expression_attribute_names(Some(expressions.names))
                .set_expression_attribute_values(expressions.values)
                .return_values_on_condition_check_failure(OnFailure::AllOld)
                .send(),
        );
        let reply = self.call("dynamodb:PutItem", deadline, request).await?;
        Ok(match reply {
            Ok(_) => Answer::Applied(()),
            Err(found) => Answer::Refused(found),
        })
    }

    /// Answers with the whole new item where `returning` asks for it.
    async fn update(
        &self,
        change: Change<'_>,
        returning: ReturnValue,
        deadline: Instant,
    ) -> Result<Answer<Option<Found>>, StoreError> {
        let expressions = Expressions::of_update(&self.layout, &change);
        let request = Box::pin(
            self.client
                .update_item()
                .table_name(&self.table)
                .set_key(Some(as_item(change.key)))
                .set_update_expression(expressions.update)
                .condition_expression(expressions.condition)
                .set_expression_attribute_names(Some(expressions.names))
                .set_expression_attribute_values(expressions.values)
                .return_values(returning)
                .return_values_on_condition_check_failure(OnFailure::AllOld)
                .send(),
        );
        let reply = self.call("dynamodb:UpdateItem", deadline, request).await?;
        Ok(match reply {
            Ok(output) => Answer::Applied(
                output
                    .attributes
                    .map(|item| item::decode(&self.layout, &item)),
            ),
            Err(found) => Answer::Refused(found),
        })
    }

    /// An update whose new item nobody asks for.
    async fn change(&self, change: Change<'_>, deadline: Instant) -> Result<Answer, StoreError> {
        Ok(
            match self.update(change, ReturnValue::None, deadline).await? {
                Answer::Applied(_) => Answer::Applied(()),
                Answer::Refused(found) => Answer::Refused(found),
            },
        )
    }
}

impl Store for DynamoDbStore {
    async fn create(&self, claim: &NewClaim, deadline: Instant) -> Result<Answer, StoreError> {
        let change = change::create(&self.layout, claim);
        if self.layout.is_composite() {
            // The same as an UpdateItem, which DynamoDB refuses unless the key is exactly the table's. A PutItem with both keys
            // would be taken by a table that has the first key only, and every request would meet in one record.
            return self.change(change, deadline).await;
        }
        self.put(change, deadline).await
    }

    async fn take_over(
        &self,
        seen: &Version,
        claim: &NewClaim,
        mode: Takeover,
        deadline: Instant,
    ) -> Result<Answer<Found>, StoreError> {
        let claimed = || Found::readable(crate::record::Record::claimed(claim));
        let answer = match mode {
            Takeover::Fresh => match self
                .put(change::replace(&self.layout, seen, claim), deadline)
                .await?
            {
                Answer::Applied(()) => Answer::Applied(None),
                Answer::Refused(found) => Answer::Refused(found),
            },
            Takeover::Resume => {
                let write = change::resume(&self.layout, seen, claim);
                self.update(write, ReturnValue::AllNew, deadline).await?
            }
        };
        Ok(match answer {
            Answer::Applied(found) => Answer::Applied(found.unwrap_or_else(claimed)),
            Answer::Refused(found) => Answer::Refused(found),
        })
    }

    async fn complete(
        &self,
        completion: &Completion,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        self.change(change::complete(&self.layout, completion), deadline)
            .await
    }

    async fn renew(&self, renewal: &Renewal, deadline: Instant) -> Result<Answer, StoreError> {
        self.change(change::renew(&self.layout, renewal), deadline)
            .await
    }

    async fn amend(&self, amendment: &Amendment, deadline: Instant) -> Result<Answer, StoreError> {
        self.change(change::amend(&self.layout, amendment), deadline)
            .await
    }

    async fn release(&self, release: &Release, deadline: Instant) -> Result<Answer, StoreError> {
        self.change(change::release(&self.layout, release), deadline)
            .await
    }

    fn admission(&self) -> Option<Admission> {
        Some(write::admit)
    }

    async fn commit(&self, commit: Commit<'_>, deadline: Instant) -> Result<Committed, StoreError> {
        commit::commit(self, commit, deadline).await
    }

    async fn load(&self, id: &RecordId, deadline: Instant) -> Result<Option<Found>, StoreError> {
        let request = Box::pin(
            self.client
                .get_item()
                .table_name(&self.table)
                .set_key(Some(self.layout.key_item(id.as_str())))
                .consistent_read(true)
                .send(),
        );
        let reply = self.call("dynamodb:GetItem", deadline, request).await?;
        Ok(match reply {
            Ok(output) => output.item.map(|item| item::decode(&self.layout, &item)),
            Err(found) => found,
        })
    }

    async fn keep(&self, outcome: &LargeOutcome, deadline: Instant) -> Result<Place, StoreError> {
        oversize::keep(self, outcome, deadline).await
    }

    async fn fetch(
        &self,
        id: &RecordId,
        place: &Place,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        oversize::fetch(self, id, place, deadline).await
    }

    async fn create_all(
        &self,
        claims: &[NewClaim],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        group::create_all(self, claims, deadline).await
    }

    async fn complete_all(
        &self,
        completions: &[Completion],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        group::complete_all(self, completions, deadline).await
    }

    async fn release_all(
        &self,
        releases: &[Release],
        deadline: Instant,
    ) -> Vec<Result<Answer, StoreError>> {
        group::release_all(self, releases, deadline).await
    }

    async fn load_all(
        &self,
        ids: &[RecordId],
        deadline: Instant,
    ) -> Vec<Result<Option<Found>, StoreError>> {
        group::load_all(self, ids, deadline).await
    }
}
