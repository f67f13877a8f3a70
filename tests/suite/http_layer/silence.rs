//! The values that neither a client nor a log gets to read: keys, tenants, bodies, answers, and the store's inner life.

use lambda_idempotency::Idempotency;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::http::IdempotencyLayer;

use super::api::{Api, Call, Door, answer};
use crate::secrets::Log;
use crate::support::{Proxy, Server};

#[tokio::test(start_paused = true)]
async fn secrets_reach_neither_problems_nor_logs() {
    let (log, _capture) = Log::capture();

    let server = Server::dynoxide().await;
    let proxy = Proxy::before(&server).await;
    let table = server.idempotency_table().await;
    let store = DynamoDbStore::new(proxy.server().client(), &table);
    let scope = |_: &http::request::Parts| Some("secret-tenant".to_owned());
    let handler = |run, _| async move {
        match run {
            1 => Err("secret-failure")?,
            2 => Ok(answer(500, "secret-answer")),
            _ => Ok(answer(
                201,
                "secret-answer ".repeat(if run == 3 { 1 } else { 1_000 }),
            )),
        }
    };
    // So small that the large answer has its own item.
    let once = Idempotency::builder(store).namespace("shop");
    let once = once
        .settings(|settings| settings.inline_limit = 90)
        .build()
        .unwrap();
    let hook =
        |_, _, _| async { Err::<http::Response<_>, _>(std::io::Error::other("secret-hook")) };
    let layer = IdempotencyLayer::scoped(once, scope).on_replay(hook);
    let api = Api::under(&layer, handler);
    let call = |key: &'static str| Door::Alb.post(key).json(r#"{"card":"secret-card"}"#);
    let first = call("secret-key");

    api.try_send(&first).await.unwrap_err();
    api.send(&first).await;
    api.send(&first).await;
    assert!(api.send(&first).await.is_replayed());
    api.send(&call("secret-large")).await;

    let mut problems = Vec::new();
    assert!(api.send(&call("secret-large")).await.is_replayed());
    proxy.inject("GetItem", crate::support::Fault::DENY);
    for refused in [
        call("secret-large"),
        call("secret-key").text("secret-other"),
        call("\"secret-malformed"),
        call("secret-a, secret-b"),
        call("secret-\u{fc}"),
    ] {
        problems.push(api.send(&refused).await);
    }
    proxy.inject("PutItem", crate::support::Fault::DENY);
    problems.push(api.send(&call("secret-denied")).await);
    problems.push(no_table(&server).await);

    for problem in &problems {
        assert_eq!(
            problem.header("content-type"),
            Some("application/problem+json")
        );
        let text = problem.text();
        assert!(
            !text.contains("secret") && !text.contains("hidden") && !text.contains(&table),
            "{text}"
        );
        assert!(!text.to_lowercase().contains("dynamodb"), "{text}");
    }
    let logged = log.text();
    for event in [
        "claimed",
        "released",
        "completed",
        "replayed",
        "mismatch",
        "refused",
        "hook_failed",
        "store_failed",
    ] {
        assert!(
            logged.contains(event),
            "{event} is not in the log:\n{logged}"
        );
    }
    assert!(!logged.contains("secret-"), "{logged}");
}

async fn no_table(server: &Server) -> super::api::Answer {
    let store = DynamoDbStore::new(server.client(), "hidden-table");
    let api = Api::on(store, |once| once, |layer| layer, super::api::place_order);
    let call: Call = Door::Http.post("k-1");
    let refused = api.send(&call).await;
    refused.assert_problem(503, "store-unavailable");
    refused
}
