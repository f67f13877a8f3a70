//! Makes events of one invocation as Lambda delivers them.

use std::sync::Arc;
use std::time::Duration;

use lambda_runtime::{Config, Context, LambdaEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use super::TestError;
use crate::engine::claim::Claim;
use crate::invoke::Invocation;
use crate::protocol::clock::{Clock, SystemClock};

/// Makes an event of one invocation as Lambda delivers it: of a function named `function`, without a
/// deadline unless set.
///
/// ```
/// use lambda_idempotency::invoke::{InvokeLayer, Invocation};
/// use lambda_idempotency::testing::TestInvocation;
/// use lambda_idempotency::{Idempotency, store::MemoryStore};
/// use serde_json::json;
/// use tower::Service;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
/// let mut function = InvokeLayer::new(once)
///     .key(|payment: &serde_json::Value| payment["id"].as_str().map(str::to_owned))
///     .handler(|event: Invocation<serde_json::Value>| async move {
///         Ok::<_, std::io::Error>(format!("attempt {}", event.claim.attempt()))
///     });
///
/// let payment = TestInvocation::json(&json!({"id": "p-1"}))?;
/// assert_eq!(function.call(payment.clone().event()).await?.get(), r#""attempt 1""#);
/// assert_eq!(function.call(payment.event()).await?.get(), r#""attempt 1""#);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is the description of an event"]
pub struct TestInvocation {
    payload: Box<RawValue>,
    context: Context,
}

impl TestInvocation {
    /// Makes an event with this JSON text, kept as it is.
    ///
    /// # Errors
    ///
    /// When the text is no JSON.
    pub fn new(payload: impl Into<String>) -> Result<Self, TestError> {
        Ok(Self::of(RawValue::from_string(payload.into())?))
    }

    /// Makes an event of this value as JSON.
    ///
    /// # Errors
    ///
    /// When the value can't be written as JSON.
    pub fn json<T: Serialize + ?Sized>(payload: &T) -> Result<Self, TestError> {
        Ok(Self::of(to_raw_value(payload)?))
    }

    fn of(payload: Box<RawValue>) -> Self {
        let mut context = Context::default();
        context.request_id = "8476a536-e9f4-11e8-9739-2dfe598c3fcd".into();
        context.env_config = Arc::new(Config {
            function_name: "function".into(),
            ..Config::default()
        });
        Self { payload, context }
    }

    /// Sets the time that the invocation has, from now by the system's clock. By a
    /// [`ManualClock`](super::ManualClock) that was moved, set `event.context.deadline` instead, in
    /// milliseconds since 1970.
    ///
    /// Outside Lambda a handler goes on after it: set
    /// [`at_deadline`](crate::Settings::at_deadline) to [`End`](crate::AtDeadline::End) to see what
    /// Lambda does.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let deadline = SystemClock.now() + timeout;
        self.context.deadline = deadline.0.try_into().unwrap_or_default();
        self
    }

    /// Makes the event.
    pub fn event(self) -> LambdaEvent<Box<RawValue>> {
        LambdaEvent::new(self.payload, self.context)
    }

    /// Decodes the event for a handler that the test calls directly, with a claim that
    /// [`TestClaim`](super::TestClaim) makes.
    ///
    /// # Errors
    ///
    /// When the payload doesn't decode.
    pub fn with_claim<T: DeserializeOwned>(self, claim: Claim) -> Result<Invocation<T>, TestError> {
        let payload = serde_json::from_str(self.payload.get())?;
        Ok(Invocation::new(payload, claim, self.context))
    }
}
