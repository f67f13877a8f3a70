//! The output of the layers of messages and of events: about a body, attributes and a receipt handle, and about the handler's and the hook's
//! errors.

use std::sync::{Arc, Mutex};

use lambda_idempotency::Idempotency;
use lambda_idempotency::invoke::{Invocation, InvokeLayer};
use lambda_idempotency::sqs::{BatchLayer, Message, Rejected};
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::TestInvocation;
use serde_json::{Value, json};
use tower::Service;

use super::canary::{Canary, Seen, with_secrets};
use super::engine::Quoting;
use crate::support::events::{batch, message};

fn secret_message(id: &str, secret: &str, body: &Value) -> Value {
    let mut message = message(id, body.to_string());
    message["receiptHandle"] = json!(secret);
    message["attributes"]["SenderId"] = json!(secret);
    message["messageAttributes"]["token"] =
        json!({ "stringValue": format!("{id}{secret}"), "dataType": "String" });
    message
}

async fn scenario(canary: &Canary) -> Seen {
    let mut seen = Seen::of(canary);
    let secret = canary.text();
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("secrets")
        .build()
        .unwrap();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let (noted, quoted) = (shown.clone(), secret.clone());
    let layer = BatchLayer::new(once)
        .operation("charge")
        .key_attribute("token")
        .scope(|body: &Value, _| body["tenant"].as_str().map(str::to_owned))
        .permanent(|error: &Quoting| error.0.starts_with("permanently"))
        .on_rejected(move |_, why: Rejected| {
            noted.lock().unwrap().push(format!("{why:?} {why}"));
            std::future::ready(Err::<(), _>(quoted.clone()))
        });
    seen.debug(&layer);
    let (noted, quoted) = (shown.clone(), secret.clone());
    let mut worker = layer.handler(move |message: Message<Value>| {
        noted.lock().unwrap().push(format!("{message:?}"));
        let ended = match message.body["do"].as_str() {
            Some("fail") => Err(Quoting(quoted.clone())),
            Some("fail permanently") => Err(Quoting(format!("permanently: {quoted}"))),
            _ => Ok(quoted.clone()),
        };
        std::future::ready(ended)
    });
    seen.debug(&worker);
    let body = |what: &str| json!({ "do": what, "card": secret, "tenant": secret });
    let mut garbled = secret_message("garbled", &secret, &json!(null));
    garbled["body"] = json!(format!("{{\"card\": {secret}"));
    let mut keyless = secret_message("keyless", &secret, &body("work"));
    keyless["messageAttributes"] = json!({});
    let mut same = secret_message(
        "same",
        &secret,
        &json!({ "other": secret, "tenant": secret }),
    );
    same["messageAttributes"]["token"]["stringValue"] = json!(format!("works{secret}"));
    let messages = [
        secret_message("works", &secret, &body("work")),
        secret_message("fails", &secret, &body("fail")),
        secret_message("fails permanently", &secret, &body("fail permanently")),
        garbled,
        keyless,
        same,
    ];
    for _ in 0..2 {
        let reply = worker.call(batch(messages.clone())).await.unwrap();
        assert_eq!(reply.batch_item_failures.len(), 5, "{reply:?}");
        seen.debug(&reply);
    }
    let nameless = worker.call(batch([
        json!({ "body": secret, "attributes": {}, "messageAttributes": {} }),
    ]));
    seen.other(&nameless.await.unwrap_err());
    for text in shown.lock().unwrap().drain(..) {
        seen.text(text);
    }
    seen
}

/// Events that the hook answers.
async fn events(canary: &Canary) -> Seen {
    let mut seen = Seen::of(canary);
    let secret = canary.text();
    let once = Idempotency::builder(MemoryStore::new()).namespace("secrets");
    let layer = InvokeLayer::new(once.build().unwrap())
        .key(|payload: &Value| payload["token"].as_str().map(str::to_owned))
        .permanent(|_: &Quoting| true)
        .on_rejected(|_, _| std::future::ready(Ok::<_, Quoting>(())));
    seen.debug(&layer);
    let quoted = secret.clone();
    let mut function = layer.handler(move |_: Invocation<Value>| {
        std::future::ready(Err::<(), _>(Quoting(quoted.clone())))
    });
    seen.debug(&function);
    for payload in [
        // Fails, and fails as it did before.
        json!({ "token": secret }),
        json!({ "token": secret }),
        json!({ "token": secret, "card": secret }),
        json!({ "card": secret }),
    ] {
        let event = TestInvocation::json(&payload).unwrap().event();
        assert_eq!(function.call(event).await.unwrap().get(), "null");
    }
    seen
}

#[test]
fn no_event_that_a_hook_answers_tells_a_secret() {
    let logged = "rejected Idempotency.Failed mismatch key_missing";
    with_secrets(events, |seen| seen.assert_silent(logged));
}

#[test]
fn no_message_tells_a_secret() {
    let events = "sqs_batch sqs_message reported hook_failed undecodable_body mismatch batch";
    with_secrets(scenario, |seen| seen.assert_silent(events));
}
