//! Tells a request that was sent from one that waited in this process, for credentials say.

use std::cell::Cell;
use std::error::Error as StdError;
use std::pin::pin;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents, SharedInterceptor};
use aws_sdk_dynamodb::error::{BoxError, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use tokio::time::{Instant, timeout_at};

use super::super::failure::unsent;
use crate::protocol::causes::in_words;
use crate::store::StoreError;
use crate::store::groups::Way;

tokio::task_local! {
    /// Says whether an attempt of the request under way was sent.
    static IS_SENT: Cell<bool>;
}

/// The same client, which notes each send for [`in_time`].
pub(in super::super) fn noting_sends(client: &Client) -> Client {
    let mut config = client.config().to_builder();
    // One that can't be switched off isn't looked up in each of the SDK's steps.
    config.push_interceptor(SharedInterceptor::permanent(Sent));
    Client::from_conf(config.build())
}

#[derive(Debug)]
struct Sent;

impl Intercept for Sent {
    fn name(&self) -> &'static str {
        "sends are noted"
    }

    /// The SDK has its credentials by then, and connects next.
    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // A handler's own request isn't asked about.
        let _ = IS_SENT.try_with(|is_sent| is_sent.set(true));
        Way::note_send();
        Ok(())
    }
}

/// Gives the reply to a request of such a client. What was not sent says nothing of the store.
pub(in super::super) async fn in_time<T, E: StdError + 'static>(
    deadline: Instant,
    request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<Result<T, SdkError<E, HttpResponse>>, StoreError> {
    if Instant::now() >= deadline {
        return Err(StoreError::NotSent);
    }
    Way::note_request();
    let mut noted = pin!(IS_SENT.scope(Cell::new(false), request));
    let reply = match timeout_at(deadline, noted.as_mut()).await {
        Ok(Err(SdkError::TimeoutError(_))) | Err(_) => Err(StoreError::Timeout),
        Ok(reply) => Ok(reply),
    };
    let is_sent = noted.take_value().is_some_and(Cell::into_inner);
    match reply {
        Err(_) if !is_sent => Err(StoreError::NotSent),
        Ok(Err(error @ SdkError::DispatchFailure(_))) if !is_sent => Err(unsent(in_words(&error))),
        reply => reply,
    }
}
