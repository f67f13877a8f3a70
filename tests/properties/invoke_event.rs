//! No event makes a layer panic; one that was answered gets the same answer again, without a run; one that failed for its content has
//! run nothing, and says so with a word.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lambda_idempotency::invoke::{Invocation, InvokeError, InvokeLayer};
use lambda_idempotency::testing::TestInvocation;
use lambda_idempotency::{Idempotency, Selector};
use serde_json::Value;
use serde_json::value::RawValue;
use tower::ServiceExt;

use super::{block_on, empty};

/// The first byte chooses the layer, the others are an event as Lambda delivers it.
///
/// # Panics
///
/// When the property doesn't hold.
pub fn check(data: &[u8]) {
    let Some((layer, event)) = data.split_first() else {
        return;
    };
    let event = std::str::from_utf8(event).ok();
    let Some(event) = event.and_then(|event| TestInvocation::new(event).ok()) else {
        return;
    };
    block_on(judge(*layer, event));
}

type Layer = InvokeLayer<Value, Infallible>;

fn layer(choice: u8, once: &Idempotency) -> Layer {
    let once = once.clone();
    match choice % 6 {
        0 => InvokeLayer::sns(once),
        1 => InvokeLayer::event_bridge(once),
        2 => InvokeLayer::scheduler(once),
        3 => InvokeLayer::step_functions(once),
        4 => InvokeLayer::new(once).key_from(Selector::pointer("/id").expect("a pointer")),
        _ => InvokeLayer::new(once).key(|event: &Value| event["id"].as_str().map(str::to_owned)),
    }
}

async fn judge(choice: u8, event: TestInvocation) {
    let once = empty();
    let runs = Arc::new(AtomicU32::new(0));
    let mut answers = Vec::new();
    for _ in 0..2 {
        let count = Arc::clone(&runs);
        let function = layer(choice, &once).handler(move |event: Invocation<Value>| {
            let run = count.fetch_add(1, Ordering::Relaxed);
            async move { Ok((run, event.payload)) }
        });
        answers.push(function.oneshot(event.clone().event()).await);
    }
    let runs = runs.load(Ordering::Relaxed);
    let again = answers.pop().expect("two deliveries");
    match (&answers[0], &again) {
        (Ok(first), Ok(again)) => {
            assert_eq!(RawValue::get(first), RawValue::get(again));
            assert_eq!(runs, 1);
        }
        (Err(first), Err(again)) => {
            assert_eq!(first.error_type(), again.error_type());
            let is_of_content = matches!(
                first,
                InvokeError::WrongEvent { .. } | InvokeError::Undecodable { .. }
            );
            let is_of_key = matches!(
                first.error_type(),
                Some("Idempotency.KeyMissing" | "Idempotency.UnusableKey")
            );
            assert!(is_of_content || is_of_key, "{first:?}");
            assert_eq!(runs, 0, "{first:?}");
        }
        both => panic!("the same event, and two ends: {both:?}"),
    }
}
