//! Replacing a function: the layers and handlers that take its place recognise what it has done.

use std::collections::BTreeMap;
use std::io::Error as HandlerError;

use lambda_idempotency::invoke::{Invocation, InvokeError, InvokeLayer};
use lambda_idempotency::sqs::{BatchLayer, Message};
use lambda_idempotency::{Error, Key, powertools};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tower::Service;

use super::process::{Called, VALIDATION, raised, returned};
use super::{PREFIX, Shared, charge, it_ran};
use crate::support::events::{batch, message};

#[derive(serde::Deserialize)]
struct Payment {
    order_id: String,
}

/// An answer of the function. The types of `aws_lambda_events` ask for members that a function in Python leaves out.
#[derive(Debug, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
}

fn payment(message_id: &str, order: &str) -> Value {
    message(message_id, json!({ "order_id": order }).to_string())
}

on_both!(a_worker_that_replaces_one_of_powertools_repeats_nothing_and_back);
async fn a_worker_that_replaces_one_of_powertools_repeats_nothing_and_back(shared: Shared) {
    let mut function = shared.function().await.with("do", "batch");
    let first = json!({"Records": [payment("m-1", "o-1")]});
    assert_eq!(function.call(first).await, Called::Running);
    function.return_(json!({"any": "result"})).await;

    let (effects, seen) = std::sync::mpsc::channel();
    let mut worker = BatchLayer::new(shared.engine())
        .raw_id(|payment: &Payment, _| powertools::id(PREFIX, payment.order_id.as_str()))
        .handler(move |message: Message<Payment>| {
            effects.send(message.body.order_id.clone()).unwrap();
            async { Ok::<_, HandlerError>(()) }
        });
    let both = || [payment("m-1", "o-1"), payment("m-2", "o-2")];
    let reply = worker.call(batch(both())).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["o-2"]);

    let back = function.call(json!({"Records": both()})).await;
    assert_eq!(back, returned(json!({"batchItemFailures": []})));
}

on_both!(a_worker_leaves_to_powertools_what_that_is_at_work_on);
async fn a_worker_leaves_to_powertools_what_that_is_at_work_on(shared: Shared) {
    let mut function = shared.function().await;
    assert_eq!(function.charge("o-1").await, Called::Running);

    let mut worker = BatchLayer::new(shared.engine())
        .raw_id(|payment: &Payment, _| powertools::id(PREFIX, payment.order_id.as_str()))
        .handler(|_: Message<Payment>| async { Err::<(), _>(HandlerError::other("it ran")) });
    let reply = worker.call(batch([payment("m-1", "o-1")])).await.unwrap();
    assert_eq!(reply.batch_item_failures[0].item_identifier, "m-1");

    function.return_(json!("receipt")).await;
    let reply = worker.call(batch([payment("m-1", "o-1")])).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
}

on_both!(a_key_in_the_body_of_a_record_is_the_same_as_in_the_decoded_body);
/// With `data_keyword_argument="record"` the payload is the SQS record. The whole record is new in each delivery.
async fn a_key_in_the_body_of_a_record_is_the_same_as_in_the_decoded_body(shared: Shared) {
    let of_order: fn(&Value) -> Value = |body| body["order_id"].clone();
    let of_body: fn(&Value) -> Value = Value::clone;
    for (expression, select, redelivered) in [
        ("powertools_json(body).order_id", of_order, None),
        ("powertools_json(body)", of_body, None),
        ("", of_body, Some(Called::Running)),
    ] {
        let shared = Shared::on(&shared.server).await;
        let mut function = shared.keyed_by(expression).await;
        let mut record = message("m-1", r#"{"order_id": "o-1", "amount": 12.0}"#);
        assert_eq!(function.call(record.clone()).await, Called::Running);
        function.return_(json!("receipt")).await;
        record["receiptHandle"] = json!("of the second delivery");
        let expected = redelivered.clone().unwrap_or(returned("receipt"));
        assert_eq!(function.call(record.clone()).await, expected);

        let mut worker = BatchLayer::new(shared.engine())
            .raw_id(move |body: &Value, _| powertools::id(PREFIX, select(body)))
            .handler(|_: Message<Value>| async { Err::<(), _>(HandlerError::other("it ran")) });
        let reply = worker.call(batch([record])).await.unwrap();
        let is_known = reply.batch_item_failures.is_empty();
        assert_eq!(is_known, redelivered.is_none(), "{expression}");
    }
}

on_both!(a_key_beside_the_body_is_taken_from_the_message);
async fn a_key_beside_the_body_is_taken_from_the_message(shared: Shared) {
    let mut function = shared.keyed_by("messageId").await;
    assert_eq!(function.call(payment("m-1", "o-1")).await, Called::Running);
    function.return_(json!("receipt")).await;

    let (effects, seen) = std::sync::mpsc::channel();
    let mut worker = BatchLayer::new(shared.engine())
        .raw_id(|_, message| powertools::id(PREFIX, message.message_id.as_deref()))
        .handler(move |message: Message<Payment>| {
            effects.send(message.body.order_id.clone()).unwrap();
            async { Ok::<_, HandlerError>("done here") }
        });
    let both = [payment("m-1", "o-1"), payment("m-2", "o-2")];
    let reply = worker.call(batch(both)).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["o-2"]);

    let back = function.call(payment("m-2", "o-2")).await;
    assert_eq!(back, returned("done here"));
}

on_both!(a_worker_that_observes_keeps_its_records_in_its_engines_namespace);
/// A permission for the function's prefix doesn't cover them.
async fn a_worker_that_observes_keeps_its_records_in_its_engines_namespace(shared: Shared) {
    shared.function().await.run("o-1", json!("receipt")).await;
    let before = shared.records().await;

    let (effects, seen) = std::sync::mpsc::channel();
    let mut worker = BatchLayer::new(shared.engine_with(|once| once.observe(true)))
        .raw_id(|payment: &Payment, _| powertools::id(PREFIX, payment.order_id.as_str()))
        .handler(move |message: Message<Payment>| {
            effects.send(message.body.order_id).unwrap();
            async { Ok::<_, HandlerError>(()) }
        });
    worker.call(batch([payment("m-1", "o-1")])).await.unwrap();
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["o-1"]);

    let (old, shadows): (Vec<_>, Vec<_>) = shared
        .records()
        .await
        .into_iter()
        .partition(|record| before.contains(record));
    assert_eq!((old.len(), shadows.len()), (1, 1));
    let id = shadows[0]["id"].as_s().unwrap();
    assert!(id.starts_with("payments.observed#"), "{id}");
}

#[derive(serde::Deserialize)]
struct Charge {
    order_id: String,
    amount: u64,
}

on_both!(a_function_of_one_event_that_replaces_one_of_powertools_repeats_nothing_and_back);
async fn a_function_of_one_event_that_replaces_one_of_powertools_repeats_nothing_and_back(
    shared: Shared,
) {
    let mut function = shared.validating().await;
    let charge = |order: &str, amount: u64| json!({"order_id": order, "amount": amount});
    assert_eq!(function.call(charge("o-1", 1_250)).await, Called::Running);
    function.return_(json!({"charged": 1_250})).await;

    let mut successor = InvokeLayer::new(shared.engine())
        .operation("charge")
        .raw_id(|charge: &Charge| powertools::id(PREFIX, charge.order_id.as_str()))
        .fingerprint(|charge: &Charge| powertools::payload(charge.amount))
        .handler(|event: Invocation<Charge>| async move {
            Ok::<_, HandlerError>(json!({"charged": event.payload.amount, "by": "the successor"}))
        });
    let mut call = async |event: Value| -> Result<Value, InvokeError<HandlerError>> {
        let event = RawValue::from_string(event.to_string()).unwrap();
        let answer = successor.call(LambdaEvent::new(event, Context::default()));
        Ok(serde_json::from_str(answer.await?.get()).unwrap())
    };
    let old = call(charge("o-1", 1_250)).await.unwrap();
    assert_eq!(old, json!({"charged": 1_250}));
    let new = call(charge("o-2", 7)).await.unwrap();
    assert_eq!(new, json!({"charged": 7, "by": "the successor"}));
    let refused = call(charge("o-2", 8)).await.unwrap_err();
    assert_eq!(refused.error_type(), Some("Idempotency.Mismatch"));

    assert_eq!(function.call(charge("o-2", 7)).await, returned(new));
    assert_eq!(function.call(charge("o-2", 8)).await, raised(VALIDATION));
}

on_both!(a_result_of_another_type_is_refused_by_run_and_taken_by_the_layers);
async fn a_result_of_another_type_is_refused_by_run_and_taken_by_the_layers(shared: Shared) {
    let result = json!({"any": "result"});
    shared.function().await.run("o-1", result.clone()).await;

    let once = shared.engine();
    let refused = once.run(charge("o-1"), None, it_ran::<u64>).await;
    assert!(matches!(refused, Err(Error::Unreadable(_))), "{refused:?}");

    let mut successor = InvokeLayer::new(shared.engine())
        .operation("charge")
        .raw_id(|charge: &Payment| powertools::id(PREFIX, charge.order_id.as_str()))
        .handler(|_: Invocation<Payment>| async { Err::<u64, _>(HandlerError::other("it ran")) });
    let event = RawValue::from_string(json!({"order_id": "o-1"}).to_string()).unwrap();
    let answer = successor.call(LambdaEvent::new(event, Context::default()));
    let answer: Value = serde_json::from_str(answer.await.unwrap().get()).unwrap();
    assert_eq!(answer, result);

    let mut worker = BatchLayer::new(shared.engine())
        .raw_id(|payment: &Payment, _| powertools::id(PREFIX, payment.order_id.as_str()))
        .handler(|_: Message<Payment>| async { Err::<u64, _>(HandlerError::other("it ran")) });
    let reply = worker.call(batch([payment("m-1", "o-1")])).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
}

on_both!(an_api_answers_a_retry_as_the_function_has_answered_it);
async fn an_api_answers_a_retry_as_the_function_has_answered_it(shared: Shared) {
    let mut function = shared.keyed_by("headers.\"idempotency-key\"").await;
    function = function.with("do", "handler");
    let request = json!({"headers": {"idempotency-key": "k-1"}, "body": "{}"});
    assert_eq!(function.call(request.clone()).await, Called::Running);
    function
        .return_(json!({"statusCode": 201, "headers": {"x-order": "7"}, "body": "{\"order\": 7}"}))
        .await;

    let key = |token: &str| powertools::id(PREFIX, token).map(|id| Key::raw("POST /orders", id));
    let once = shared.engine();
    let replayed = once.run(key("k-1"), None, it_ran::<Answer>).await;
    let expected = Answer {
        status_code: 201,
        headers: [("x-order".to_owned(), "7".to_owned())].into(),
        body: Some("{\"order\": 7}".to_owned()),
    };
    assert_eq!(replayed.unwrap().into_inner(), expected);

    let new = |_| async {
        Ok::<_, HandlerError>(Answer {
            status_code: 202,
            headers: BTreeMap::new(),
            body: None,
        })
    };
    once.run(key("k-2"), None, new).await.unwrap();
    let retry = json!({"headers": {"idempotency-key": "k-2"}, "body": "{}"});
    let Called::Returned(answer) = function.call(retry).await else {
        panic!("it ran")
    };
    assert_eq!(answer["statusCode"], 202);
}
