//! Replacing a function: the layers and handlers that take its place recognise what it has done.

use std::collections::BTreeMap;
use std::io::Error as HandlerError;

use lambda_idempotency::powertools::PowertoolsKeys;
use lambda_idempotency::sqs::{BatchLayer, Message};
use serde_json::{Value, json};
use tower::Service;

use super::process::Called;
use super::{PREFIX, Shared};
use crate::on_each_server;
use crate::support::Server;
use crate::support::events::{batch, message};

#[derive(serde::Deserialize)]
struct Payment {
    order_id: String,
}

/// What the function's answers have. The types of `aws_lambda_events` ask for members that a function in Python leaves out.
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

on_each_server!(a_worker_that_replaces_one_of_powertools_repeats_nothing_and_back);
async fn a_worker_that_replaces_one_of_powertools_repeats_nothing_and_back(server: Server) {
    let shared = Shared::on(&server).await;
    let mut function = shared.function().await.with("do", "batch");
    assert_eq!(
        function
            .call(json!({"Records": [payment("m-1", "o-1")]}))
            .await,
        Called::Running
    );
    function.return_(json!({"any": "result"})).await;

    let (effects, seen) = std::sync::mpsc::channel();
    let keys = PowertoolsKeys::of(PREFIX);
    let mut worker = BatchLayer::new(shared.engine())
        .raw_id(move |payment: &Payment| keys.id(payment.order_id.as_str()))
        .handler(move |message: Message<Payment>| {
            effects.send(message.body.order_id.clone()).unwrap();
            async { Ok::<_, HandlerError>(()) }
        });
    let both = || [payment("m-1", "o-1"), payment("m-2", "o-2")];
    let reply = worker.call(batch(both())).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["o-2"]);

    let back = function.call(json!({"Records": both()})).await;
    assert_eq!(back, Called::Returned(json!({"batchItemFailures": []})));
}

on_each_server!(a_worker_leaves_to_powertools_what_that_is_at_work_on);
async fn a_worker_leaves_to_powertools_what_that_is_at_work_on(server: Server) {
    let shared = Shared::on(&server).await;
    let mut function = shared.function().await;
    assert_eq!(function.charge("o-1").await, Called::Running);

    let keys = PowertoolsKeys::of(PREFIX);
    let mut worker = BatchLayer::new(shared.engine())
        .raw_id(move |payment: &Payment| keys.id(payment.order_id.as_str()))
        .handler(|_: Message<Payment>| async { Err::<(), _>(HandlerError::other("it ran")) });
    let reply = worker.call(batch([payment("m-1", "o-1")])).await.unwrap();
    assert_eq!(reply.batch_item_failures[0].item_identifier, "m-1");

    function.return_(json!("receipt")).await;
    let reply = worker.call(batch([payment("m-1", "o-1")])).await.unwrap();
    assert!(reply.batch_item_failures.is_empty());
}

on_each_server!(an_api_answers_a_retry_as_the_function_has_answered_it);
async fn an_api_answers_a_retry_as_the_function_has_answered_it(server: Server) {
    let shared = Shared::on(&server).await;
    let config = json!({"event_key_jmespath": "headers.\"idempotency-key\""});
    let mut function = shared
        .function()
        .await
        .with("do", "handler")
        .with("config", config);
    let request = json!({"headers": {"idempotency-key": "k-1"}, "body": "{}"});
    assert_eq!(function.call(request.clone()).await, Called::Running);
    function
        .return_(json!({"statusCode": 201, "headers": {"x-order": "7"}, "body": "{\"order\": 7}"}))
        .await;

    let key = |token: &str| PowertoolsKeys::of(PREFIX).key("POST /orders", token);
    let ran = |_| async { Err::<Answer, _>(HandlerError::other("it ran")) };
    let answer = shared
        .engine()
        .run(key("k-1"), None, ran)
        .await
        .unwrap()
        .into_inner();
    let expected = Answer {
        status_code: 201,
        headers: [("x-order".to_owned(), "7".to_owned())].into(),
        body: Some("{\"order\": 7}".to_owned()),
    };
    assert_eq!(answer, expected);

    let new = |_| async {
        Ok::<_, HandlerError>(Answer {
            status_code: 202,
            headers: BTreeMap::new(),
            body: None,
        })
    };
    shared.engine().run(key("k-2"), None, new).await.unwrap();
    let retry = json!({"headers": {"idempotency-key": "k-2"}, "body": "{}"});
    let Called::Returned(answer) = function.call(retry).await else {
        panic!("it ran")
    };
    assert_eq!(answer["statusCode"], 202);
}
