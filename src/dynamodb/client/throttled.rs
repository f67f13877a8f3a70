//! Leaves throttled writes to the engine, which sends them again at a pace that all its runs share.

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::retries::classifiers::{
    ClassifyRetry, RetryAction, RetryClassifierPriority,
};

/// The same client, which sends no throttled request again: each call of the SDK would, three
/// times, without knowing of the others.
pub(in super::super) fn without_repeats(client: &Client) -> Client {
    let config = client.config().to_builder();
    Client::from_conf(config.retry_classifier(Forbidden).build())
}

#[derive(Debug)]
struct Forbidden;

impl ClassifyRetry for Forbidden {
    fn classify_retry(&self, _: &InterceptorContext) -> RetryAction {
        RetryAction::NoActionIndicated
    }

    fn classify_retry_v2(&self, _: &InterceptorContext, previous: &RetryAction) -> RetryAction {
        if *previous == RetryAction::throttling_error() {
            return RetryAction::RetryForbidden;
        }
        RetryAction::NoActionIndicated
    }

    fn name(&self) -> &'static str {
        "throttled writes are left to the engine"
    }

    /// After those that tell what the answer means.
    fn priority(&self) -> RetryClassifierPriority {
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }
}

#[cfg(test)]
mod tests;
