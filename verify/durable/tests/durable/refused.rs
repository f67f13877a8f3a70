//! The combinations that do not go together, and their errors.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aws_durable_execution_sdk as durable;
use durable::test_util::LocalRunner;
use durable::{BoxError, DurableContext, InvocationPayload};
use lambda_idempotency::invoke::{Invocation, InvokeLayer};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, FaultyStore, TestInvocation};
use lambda_idempotency::{Fingerprint, Idempotency, Key, Selector};
use lambda_runtime::{Context, Diagnostic, LambdaEvent};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::Gateway;

const ARN: &str =
    "arn:aws:lambda:eu-central-1:123456789012:function:orders:1/durable-execution/o-1/e-1";

/// The payload of an invocation, as the SDK reads it.
fn envelope(token: &str) -> Value {
    let event = json!({ "Id": "execution", "Type": "EXECUTION", "Status": "STARTED", "ExecutionDetails": { "InputPayload": "5" } });
    json!({ "DurableExecutionArn": ARN, "CheckpointToken": token, "InitialExecutionState": { "Operations": [event] } })
}

/// A durable function as the runtime calls it.
fn function() -> impl Fn(LambdaEvent<InvocationPayload>) -> Answer + Send + Sync {
    let config = durable::SdkConfig::builder().build();
    let options = durable::Options::builder()
        .sdk_config(config)
        .build()
        .unwrap();
    let wrapped = durable::wrap(
        |amount: u64, _: DurableContext| async move { Ok(amount) },
        options,
    );
    move |event| Box::pin(wrapped(event))
}

type Answer = Pin<
    Box<dyn Future<Output = Result<durable::InvocationResponse, lambda_runtime::Error>> + Send>,
>;

#[tokio::test]
async fn a_layer_around_a_durable_function_refuses_what_the_sdk_serves() {
    let payload = serde_json::from_value(envelope("t-1")).unwrap();
    let served = function()(LambdaEvent::new(payload, Context::default()))
        .await
        .unwrap();
    assert_eq!(
        serde_json::to_value(&served).unwrap()["Status"],
        "SUCCEEDED"
    );

    let once = Idempotency::builder(MemoryStore::new())
        .namespace("orders")
        .build()
        .unwrap();
    let durable = Arc::new(function());
    let layered = InvokeLayer::new(once)
        .operation("order")
        .key_from(Selector::pointer("/DurableExecutionArn").unwrap())
        .settings(|settings| {
            settings.fingerprint_without = vec!["/CheckpointToken".parse().unwrap()];
        })
        .handler(move |event: Invocation<InvocationPayload>| {
            durable(LambdaEvent::new(event.payload, event.context))
        });
    for token in ["t-1", "t-2"] {
        let event = TestInvocation::json(&envelope(token)).unwrap().event();
        let refused: Diagnostic = layered.clone().oneshot(event).await.unwrap_err().into();
        assert_eq!(refused.error_type, "Idempotency.WrongEvent");
        assert!(
            refused.error_message.contains("inside `ctx.step`"),
            "{refused:?}"
        );
    }
}

/// The SDK drops the handler when the execution suspends. The engine releases the claim then; a function that is frozen before
/// the release arrives is this one.
#[tokio::test]
async fn the_replay_meets_a_claim_that_was_held_at_a_wait() {
    let table = FaultyStore::new(MemoryStore::new());
    let once = Idempotency::builder(table.clone())
        .namespace("orders")
        .build()
        .unwrap();
    let _frozen = table.crash_before(Call::Release);
    let gateway = Gateway::default();
    let charge = gateway.clone();
    let handler = move |amount: u64, ctx: DurableContext| {
        let (once, gateway) = (once.clone(), charge.clone());
        async move {
            let request = Fingerprint::of(&amount)?;
            let held = once.run(Key::new("charge", "o-1"), request, |claim| async move {
                ctx.wait(Duration::from_mins(1)).await?;
                Ok::<_, BoxError>(gateway.charge(amount, claim.derive_key("gateway")).await?)
            });
            Ok(held.await.map_err(|error| error.to_string())?.into_inner())
        }
    };
    let failed = LocalRunner::new()
        .run::<u64, String, _, _>(handler, 5)
        .await;
    let text = failed.error_message().unwrap_or_default();
    assert!(text.contains("another attempt"), "{failed:?}");
    assert_eq!(gateway.charges(), 0);
}
