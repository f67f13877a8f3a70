//! Describes DynamoDB's failures, with advice to a person.

/// Describes a failure in DynamoDB's terms: the source of a [`StoreError`](crate::StoreError).
///
/// ```
/// use std::error::Error;
///
/// use lambda_idempotency::StoreError;
/// use lambda_idempotency::dynamodb::DynamoDbError;
///
/// fn missing_action(error: &StoreError) -> Option<&'static str> {
///     match error.source()?.downcast_ref()? {
///         DynamoDbError::AccessDenied { action, .. } => Some(action),
///         _ => None,
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DynamoDbError {
    /// The table, or the account, is over its throughput: the source of `Throttled`.
    #[error("raise the table's capacity, or use on-demand")]
    Throughput,
    /// The function may not do this: the source of `Denied`.
    #[error("access denied to table `{table}`: allow the function {action} on it")]
    AccessDenied {
        /// The table. Of a transaction, which may mean any of them, the tables: `a or b`.
        table: String,
        /// The IAM action that is missing.
        action: &'static str,
    },
    /// There is no such table: the source of `Misconfigured`.
    #[error(
        "table `{table}` does not exist in this account and region: create it, or correct its name"
    )]
    TableNotFound {
        /// The table. Of a transaction, which may mean any of them, the tables: `a or b`.
        table: String,
    },
    /// The table's key differs from the configured one, or the request was otherwise invalid: the
    /// source of `Misconfigured`.
    #[error(
        "table `{table}` refused the request: the store expects {expected}; DynamoDB said: {message}"
    )]
    Schema {
        /// The table.
        table: String,
        /// The key schema that the store was configured with.
        expected: String,
        /// The service's message.
        message: String,
    },
}
