//! Describes DynamoDB's failures, with advice to an operator.

use std::error::Error as StdError;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::batch_get_item::BatchGetItemError;
use aws_sdk_dynamodb::operation::get_item::GetItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::dynamodb::layout::{Item, TableLayout};
use crate::dynamodb::statement::Verb;
use crate::protocol::causes::in_words;
use crate::store::StoreError;

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
    /// A key, a table or the account is over its throughput: the source of `Throttled`.
    #[error(
        "{what} is over its throughput: look for hot keys, or raise the limit that DynamoDB names: {message}"
    )]
    Throughput {
        /// In words: ``table `records` ``; of a transaction that was cancelled, the table of the record or of a write.
        what: String,
        /// The service's message.
        message: String,
    },
    /// The function may not do this: the source of `Denied`.
    #[error(
        "access denied to table `{table}`: allow {action} on it, or what DynamoDB names: {message}"
    )]
    AccessDenied {
        /// The table. Of a transaction, which may mean any of them, the tables: `a or b`.
        table: String,
        /// The IAM action that the request needs.
        action: &'static str,
        /// The service's message: it may name another action, such as one on a key of KMS.
        message: String,
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

/// The SDK's words for missing credentials: of a provider that finds none, and of a client without a
/// provider.
const NO_CREDENTIALS: [&str; 2] = [
    "the credential provider was not enabled",
    "there was no identity resolver",
];

/// Words of the SDK's errors of any provider of credentials.
const OF_CREDENTIALS: [&str; 2] = ["credential", "identity resolver"];

const CREDENTIALS_ADVICE: &str =
    "give the process a role, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";

/// The item that a failed condition met, if the answer has one.
pub(super) struct Met(pub(super) Option<Item>);

impl Met {
    /// Each item has a key, so an empty one is none.
    pub(super) fn of(item: Option<&Item>) -> Self {
        Self(item.filter(|item| !item.is_empty()).cloned())
    }
}

/// An error of the service; one that reports a failed condition has the item that the condition
/// met.
pub(super) trait Refusal: ProvideErrorMetadata + StdError + Send + Sync + 'static {
    /// Answers with the item that the condition met, where it failed.
    fn met(&self) -> Option<Met> {
        None
    }
}

impl Refusal for PutItemError {
    fn met(&self) -> Option<Met> {
        match self {
            Self::ConditionalCheckFailedException(failed) => Some(Met::of(failed.item.as_ref())),
            _ => None,
        }
    }
}

impl Refusal for UpdateItemError {
    fn met(&self) -> Option<Met> {
        match self {
            Self::ConditionalCheckFailedException(failed) => Some(Met::of(failed.item.as_ref())),
            _ => None,
        }
    }
}

impl Refusal for GetItemError {}
impl Refusal for BatchGetItemError {}

/// Translates a request's failure; `action` is the permission that the request needs.
pub(super) fn classify<E: StdError + ProvideErrorMetadata + 'static>(
    table: &str,
    layout: &TableLayout,
    action: &'static str,
    error: &SdkError<E, HttpResponse>,
) -> StoreError {
    let words = || in_words(error).into();
    let context = match error {
        SdkError::TimeoutError(_) => return StoreError::Timeout,
        SdkError::ServiceError(context) => context,
        SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => {
            return unreached(in_words(error));
        }
        _ => return StoreError::Rejected(words()),
    };
    let message = context.err().message().unwrap_or_default();
    let code = context.err().code().unwrap_or_default();
    if let Some(refused) = of_credentials(code) {
        return refused;
    }
    let table = table.to_owned();
    match code {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "RequestLimitExceeded" => throttled(format!("table `{table}`"), message),
        // Each of DynamoDB's refusals has a code, and the page of a proxy has none.
        "" | "RequestTimeout" | "RequestTimeoutException" => StoreError::Unavailable(words()),
        "TransactionConflictException" | "ReplicatedWriteConflictException" => StoreError::Conflict,
        "AccessDeniedException" => {
            let message = message.to_owned();
            let denied = DynamoDbError::AccessDenied {
                table,
                action,
                message,
            };
            StoreError::Denied(denied.into())
        }
        "ResourceNotFoundException" => {
            StoreError::Misconfigured(DynamoDbError::TableNotFound { table }.into())
        }
        "ItemCollectionSizeLimitExceededException" => StoreError::Misconfigured(
            format!(
                "a partition of table `{table}` has the 10 GB that a local secondary index allows: use a table without one"
            )
            .into(),
        ),
        "ValidationException" if says_too_large(message) => StoreError::TooLarge,
        "ValidationException" => {
            let (expected, message) = (layout.describe(), message.to_owned());
            let schema = DynamoDbError::Schema {
                table,
                expected,
                message,
            };
            StoreError::Misconfigured(schema.into())
        }
        _ if context.raw().status().as_u16() >= 500 => StoreError::Unavailable(words()),
        _ => StoreError::Rejected(words()),
    }
}

/// The error for a key, a table or an account over its throughput, with the service's message.
pub(super) fn throttled(what: String, message: &str) -> StoreError {
    let message = message.to_owned();
    StoreError::Throttled(DynamoDbError::Throughput { what, message }.into())
}

/// The codes of DynamoDB and of S3 for credentials that have expired, without `Exception`.
pub(super) const EXPIRED: [&str; 2] = ["ExpiredToken", "TokenRefreshRequired"];

/// The error for credentials that AWS refuses; `None` for another code
/// ([common errors](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CommonErrors.html),
/// [S3's](https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html)). The same request
/// succeeds with others, so that it is no refusal permanently.
pub(super) fn of_credentials(code: &str) -> Option<StoreError> {
    let text = match code.trim_end_matches("Exception") {
        short if EXPIRED.contains(&short) => format!(
            "the AWS credentials have expired (`{code}`): take them from a provider that renews them, such as a role; keys from the \
             environment last as long as the process at most"
        ),
        "UnrecognizedClient"
        | "InvalidClientTokenId"
        | "InvalidAccessKeyId"
        | "InvalidToken"
        | "MissingAuthenticationToken" => {
            format!("AWS doesn't know the credentials (`{code}`): {CREDENTIALS_ADVICE}")
        }
        "InvalidSignature"
        | "IncompleteSignature"
        | "SignatureDoesNotMatch"
        | "RequestExpired"
        | "RequestTimeTooSkewed" => format!(
            "AWS refuses the request's signature (`{code}`): set the machine's clock, or correct the secret key"
        ),
        _ => return None,
    };
    Some(StoreError::Unauthenticated(text.into()))
}

/// Tests whether DynamoDB's message reports an item that would be too large, and no expression that is.
pub(super) fn says_too_large(message: &str) -> bool {
    message.contains("Item size")
}

/// The error for a request that was sent and has no answer, with what to do about a server whose
/// certificate isn't trusted, which the words of rustls alone tell: no later request would be sent, either.
pub(super) fn unreached(mut text: String) -> StoreError {
    if text.contains("invalid peer certificate") {
        text.push_str(": set SSL_CERT_FILE to a file of the certificates to trust, or correct the endpoint's name or certificate");
        return StoreError::Denied(text.into());
    }
    StoreError::Unavailable(text.into())
}

/// The error for a request that failed before it was sent, with what to do about credentials, which the
/// words of the SDK alone tell. It says nothing of the store.
pub(super) fn unsent(text: String) -> StoreError {
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    if has(&NO_CREDENTIALS) {
        let text = format!(
            "no AWS credentials were found: {CREDENTIALS_ADVICE}; a local server takes any"
        );
        return StoreError::Unauthenticated(text.into());
    }
    if has(&OF_CREDENTIALS) {
        let text = format!("the AWS credentials could not be loaded: {CREDENTIALS_ADVICE}: {text}");
        return StoreError::Unauthenticated(text.into());
    }
    StoreError::Rejected(text.into())
}

/// The grouped actions that the service denied to the function.
#[derive(Clone, Debug, Default)]
pub(super) struct Denied(Arc<[AtomicBool; 3]>);

/// A permission that groups alone need.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Insert,
    Update,
    Get,
}

impl From<Verb> for Action {
    fn from(verb: Verb) -> Self {
        match verb {
            Verb::Insert => Self::Insert,
            Verb::Update => Self::Update,
        }
    }
}

impl Action {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Insert => "dynamodb:PartiQLInsert",
            Self::Update => "dynamodb:PartiQLUpdate",
            Self::Get => "dynamodb:BatchGetItem",
        }
    }
}

impl Denied {
    pub(super) fn has(&self, action: Action) -> bool {
        self.flag(action)
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    pub(super) fn note(&self, action: Action, table: &str, reason: &dyn Display) {
        let first = self
            .flag(action)
            .is_some_and(|flag| !flag.swap(true, Ordering::Relaxed));
        if first {
            tracing::warn!(
                event = "groups_denied",
                table,
                action = action.name(),
                %reason,
                "idempotency: requests go out one by one; allow the function this action to group them"
            );
        }
    }

    fn flag(&self, action: Action) -> Option<&AtomicBool> {
        self.0.get(action as usize)
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::error::ErrorMetadata;
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use aws_smithy_types::body::SdkBody;

    use super::*;
    use crate::protocol::causes::unlinked;

    fn classified(error: &SdkError<PutItemError, HttpResponse>) -> StoreError {
        classify(
            "records",
            &TableLayout::default(),
            "dynamodb:PutItem",
            error,
        )
    }

    fn refused(code: &str, message: &str, status: u16) -> StoreError {
        let metadata = ErrorMetadata::builder().code(code).message(message);
        let reply = HttpResponse::new(status.try_into().unwrap(), SdkBody::empty());
        let error = PutItemError::generic(metadata.build());
        classified(&SdkError::service_error(error, reply))
    }

    #[test]
    fn what_may_pass_is_told_from_what_must_be_mended() {
        let late = SdkError::timeout_error("slow");
        assert_matches!(classified(&late), StoreError::Timeout);
        let unsent = SdkError::construction_failure("no region");
        assert_matches!(classified(&unsent), StoreError::Rejected(_));
        for (words, is_denied) in [
            ("invalid peer certificate: UnknownIssuer", true),
            ("invalid peer certificate: certificate expired", true),
            ("peer closed connection without close_notify", false),
        ] {
            let error = classified(&SdkError::dispatch_failure(ConnectorError::io(
                words.into(),
            )));
            assert_eq!(matches!(error, StoreError::Denied(_)), is_denied, "{error}");
            assert_ne!(error.is_unreachable(), is_denied, "{error}");
        }
        for (status, transient) in [(400, false), (499, false), (500, true), (503, true)] {
            let error = refused("Unheard", "", status);
            let unavailable = matches!(error, StoreError::Unavailable(_));
            assert_eq!(unavailable, transient, "{status}");
            assert_ne!(unavailable, matches!(error, StoreError::Rejected(_)));
        }
        for code in [
            "ProvisionedThroughputExceededException",
            "ThrottlingException",
            "RequestLimitExceeded",
        ] {
            let error = refused(code, "the maximum is 7", 400);
            assert_matches!(error, StoreError::Throttled(_), "{code}");
            assert_eq!(
                unlinked(&error),
                "throttled: table `records` is over its throughput: look for hot keys, \
                 or raise the limit that DynamoDB names: the maximum is 7"
            );
        }
        for code in ["RequestTimeout", "RequestTimeoutException"] {
            let error = refused(code, "", 400);
            assert_matches!(error, StoreError::Unavailable(_), "{code}");
        }
        for code in [
            "TransactionConflictException",
            "ReplicatedWriteConflictException",
        ] {
            let error = refused(code, "", 400);
            assert_matches!(error, StoreError::Conflict, "{code}");
        }
        let StoreError::Denied(denied) = refused("AccessDeniedException", "a KMS key", 400) else {
            panic!("not denied")
        };
        assert!(denied.to_string().ends_with("DynamoDB names: a KMS key"));
        let table = || "records".to_owned();
        assert_eq!(
            denied.downcast_ref(),
            Some(&DynamoDbError::AccessDenied {
                table: table(),
                action: "dynamodb:PutItem",
                message: "a KMS key".to_owned()
            })
        );
        let StoreError::Misconfigured(missing) = refused("ResourceNotFoundException", "", 400)
        else {
            panic!("not misconfigured")
        };
        assert_eq!(
            missing.downcast_ref(),
            Some(&DynamoDbError::TableNotFound { table: table() })
        );
    }

    #[test]
    fn a_reply_without_a_code_is_no_answer_of_dynamodb() {
        for status in [200, 302, 403, 413] {
            let error = refused("", "", status);
            assert_matches!(error, StoreError::Unavailable(_), "{status}");
        }
    }

    #[test]
    fn credentials_that_are_refused_are_named_with_what_to_do_and_may_be_accepted_later() {
        for (code, advice) in [
            ("ExpiredTokenException", "a provider that renews them"),
            ("UnrecognizedClientException", "give the process a role"),
            ("InvalidSignatureException", "set the machine's clock"),
        ] {
            let error = refused(code, "The security token included in the request", 400);
            assert!(error.is_transient() && !error.is_unreachable(), "{error:?}");
            let text = unlinked(&error);
            assert!(text.contains(advice) && text.contains(code), "{text}");
        }
    }

    #[test]
    fn an_item_that_is_too_large_is_told_from_a_schema_that_is_another() {
        let validation = |message| refused("ValidationException", message, 400);
        assert_matches!(
            validation("Item size has exceeded the maximum allowed size"),
            StoreError::TooLarge
        );
        assert_matches!(
            validation("Item size to update has exceeded the maximum allowed size"),
            StoreError::TooLarge
        );
        for message in [
            "One or more parameter values were invalid",
            "Invalid ConditionExpression: Expression size has exceeded the maximum allowed size;",
        ] {
            let StoreError::Misconfigured(schema) = validation(message) else {
                panic!("not misconfigured")
            };
            assert_matches!(schema.downcast_ref(), Some(DynamoDbError::Schema { .. }));
        }
        assert_matches!(
            refused("ItemCollectionSizeLimitExceededException", "", 400),
            StoreError::Misconfigured(_)
        );
    }

    #[test]
    fn an_action_has_the_name_that_a_policy_allows_it_by() {
        assert_eq!(Action::from(Verb::Insert).name(), "dynamodb:PartiQLInsert");
        assert_eq!(Action::from(Verb::Update).name(), "dynamodb:PartiQLUpdate");
        assert_eq!(Action::Get.name(), "dynamodb:BatchGetItem");
    }

    #[test]
    fn a_denial_is_remembered_for_its_own_action_and_by_all_clones() {
        let denied = Denied::default();
        let clone = denied.clone();
        denied.note(Action::Update, "records", &"no");
        denied.note(Action::Update, "records", &"no");
        assert!(clone.has(Action::Update));
        assert!(!clone.has(Action::Insert) && !clone.has(Action::Get));
    }
}
