//! What the service's errors mean to a caller.

use std::error::Error as StdError;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::batch_execute_statement::BatchExecuteStatementError;
use aws_sdk_dynamodb::operation::batch_get_item::BatchGetItemError;
use aws_sdk_dynamodb::operation::get_item::GetItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use super::layout::{Item, TableLayout};
use crate::error::StoreError;

/// The item that a failing condition met, if there was one.
pub(super) struct Met(pub(super) Option<Item>);

/// A failure of a request, in which a condition that didn't hold can be told from the rest.
pub(super) trait Refusal: Sized {
    type Service: ProvideErrorMetadata + StdError + Send + Sync + 'static;

    fn into_sdk(self) -> SdkError<Self::Service, HttpResponse>;

    /// Where a condition failed: what it met.
    fn met(&self) -> Option<Met>;
}

macro_rules! refusal {
    ($service:ty, $error:ident => $met:expr) => {
        impl Refusal for SdkError<$service, HttpResponse> {
            type Service = $service;

            fn into_sdk(self) -> SdkError<Self::Service, HttpResponse> {
                self
            }

            fn met(&self) -> Option<Met> {
                let $error = self.as_service_error()?;
                $met
            }
        }
    };
}

refusal!(PutItemError, error => match error {
    PutItemError::ConditionalCheckFailedException(failed) => Some(Met(failed.item.clone())),
    _ => None,
});
refusal!(UpdateItemError, error => match error {
    UpdateItemError::ConditionalCheckFailedException(failed) => Some(Met(failed.item.clone())),
    _ => None,
});
refusal!(GetItemError, _error => None);
refusal!(BatchGetItemError, _error => None);
refusal!(BatchExecuteStatementError, _error => None);
// Which of several conditions failed is for `transaction.rs` to tell.
refusal!(TransactWriteItemsError, _error => None);

pub(super) fn classify<E: Refusal>(
    table: &str,
    layout: &TableLayout,
    action: &'static str,
    error: E,
) -> StoreError {
    let error = error.into_sdk();
    let (code, message, status) = match &error {
        SdkError::TimeoutError(_) => return StoreError::Timeout,
        SdkError::ServiceError(context) => (
            context.err().code().unwrap_or_default(),
            context.err().message().unwrap_or_default(),
            context.raw().status().as_u16(),
        ),
        SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => {
            return StoreError::Unavailable(in_words(&error).into());
        }
        _ => return StoreError::Rejected(in_words(&error).into()),
    };
    let table = table.to_owned();
    match code {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "RequestLimitExceeded" => StoreError::Throttled,
        "TransactionConflictException" | "ReplicatedWriteConflictException" => StoreError::Conflict,
        "AccessDeniedException" => StoreError::AccessDenied { table, action },
        "ResourceNotFoundException" => StoreError::TableNotFound { table },
        "ItemCollectionSizeLimitExceededException" => StoreError::TooLarge,
        "ValidationException" if says_too_large(message) => StoreError::TooLarge,
        "ValidationException" => StoreError::Schema {
            table,
            expected: layout.describe(),
            message: message.to_owned(),
        },
        _ if status >= 500 => StoreError::Unavailable(in_words(&error).into()),
        _ => StoreError::Rejected(in_words(&error).into()),
    }
}

/// Whether DynamoDB's words say that an item would be larger than one may be.
pub(super) fn says_too_large(message: &str) -> bool {
    message.contains("size has exceeded") || message.contains("size to update has exceeded")
}

/// The error and its causes, in one line. Not their `Debug`, which may hold an item.
pub(super) fn in_words(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use aws_sdk_dynamodb::error::ErrorMetadata;
    use aws_smithy_types::body::SdkBody;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the request failed")]
    struct Failed(#[source] Refused);

    #[derive(Debug, thiserror::Error)]
    #[error("no connection")]
    struct Refused(#[source] io::Error);

    fn classified(error: SdkError<PutItemError, HttpResponse>) -> StoreError {
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
        classified(SdkError::service_error(error, reply))
    }

    #[test]
    fn what_may_pass_is_told_from_what_must_be_mended() {
        let late = SdkError::timeout_error("slow");
        assert!(matches!(classified(late), StoreError::Timeout));
        let unsent = SdkError::construction_failure("no region");
        assert!(matches!(classified(unsent), StoreError::Rejected(_)));
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
            let error = refused(code, "", 400);
            assert!(matches!(error, StoreError::Throttled), "{code}");
        }
        for code in [
            "TransactionConflictException",
            "ReplicatedWriteConflictException",
        ] {
            let error = refused(code, "", 400);
            assert!(matches!(error, StoreError::Conflict), "{code}");
        }
        assert!(matches!(
            refused("AccessDeniedException", "", 400),
            StoreError::AccessDenied { .. }
        ));
        assert!(matches!(
            refused("ResourceNotFoundException", "", 400),
            StoreError::TableNotFound { .. }
        ));
    }

    #[test]
    fn an_item_that_is_too_large_is_told_from_a_schema_that_is_another() {
        let validation = |message| refused("ValidationException", message, 400);
        assert!(matches!(
            validation("Item size has exceeded the maximum allowed size"),
            StoreError::TooLarge
        ));
        assert!(matches!(
            validation("Item size to update has exceeded the maximum allowed size"),
            StoreError::TooLarge
        ));
        assert!(matches!(
            validation("One or more parameter values were invalid"),
            StoreError::Schema { .. }
        ));
        assert!(matches!(
            refused("ItemCollectionSizeLimitExceededException", "", 400),
            StoreError::TooLarge
        ));
    }

    #[test]
    fn an_error_names_its_causes_down_to_the_first() {
        let error = Failed(Refused(io::Error::other("the host has no address")));
        assert_eq!(
            in_words(&error),
            "the request failed: no connection: the host has no address"
        );
    }
}
