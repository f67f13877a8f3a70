//! Counts the sends of one request that got no answer, the retries of the SDK among them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use aws_sdk_dynamodb::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::{BoxError, ProvideErrorMetadata};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;

/// The sends of one `UpdateItem`. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct Sends(Arc<AtomicU32>);

impl Sends {
    /// Tells whether a send got no answer: it may have applied, or may still arrive and apply.
    pub(super) fn is_silent(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Intercept for Sends {
    fn name(&self) -> &'static str {
        "Sends"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A send that times out or loses its connection never comes here.
    fn read_after_deserialization(
        &self,
        reply: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if is_answer(reply) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Tells whether a reply says what became of its send: it applied, or the service refused it. A 5xx
/// and a body that can't be read say nothing.
fn is_answer(reply: &AfterDeserializationInterceptorContextRef<'_>) -> bool {
    let error = match reply.output_or_error() {
        Ok(_) => return true,
        Err(error) => error.as_operation_error(),
    };
    let error = error.and_then(|error| error.downcast_ref::<UpdateItemError>());
    let is_late = matches!(
        error.and_then(ProvideErrorMetadata::code),
        Some("RequestTimeout" | "RequestTimeoutException")
    );
    reply.response().status().is_client_error() && !is_late
}
