//! The ways to find a record, and the message about one that isn't found.

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use serde_json::json;

use super::{WHY, deliver, engine, id};
use crate::support::{Said, command, ended_with, key, on, place, refused, run, serve, table};

#[tokio::test]
async fn a_record_is_found_by_its_id_its_key_and_its_hash() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    deliver(&table, "B").await.unwrap();
    let id = id(&table, "A-17");
    let hash = id.rsplit('#').next().unwrap();
    for words in [
        id.clone(),
        "--operation charge --token A-17".to_owned(),
        format!("--operation charge --hash {hash}"),
        format!("--hash {hash} --yes"),
        format!("--hash {} --yes", &hash[..8]),
    ] {
        let said = on(&table, &format!("get {words} --namespace payments --json")).await;
        assert_eq!(said.ended_with(0).json()["id"], *id, "{words}");
    }
}

#[tokio::test]
async fn an_operation_and_a_namespace_restrict_the_search_for_a_hash() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let hash = &id.rsplit('#').next().unwrap()[..8];
    for (words, code, said) in [
        ("--operation refund", 2, "no record's hash begins with"),
        ("--namespace refunds", 2, "no record's hash begins with"),
        ("--operation charge --namespace payments", 0, &*id),
    ] {
        on(&table, &format!("get --yes --hash {hash} {words}"))
            .await
            .refused(code, said);
    }
}

/// The id of a record doesn't have the hash where a caller supplied it.
#[tokio::test]
async fn a_record_under_an_id_of_ones_own_is_found_by_its_hash_alone() {
    let table = table().await;
    let engine = engine(&table);
    let key = lambda_idempotency::Key::raw("charge", "order-17");
    let id = engine.record_id(&key).unwrap();
    let handler = async |_claim| Ok::<_, std::io::Error>(17);
    engine.run(key, None, handler).await.unwrap();
    let by_hash = format!("--hash {} --yes", id.hash());
    let operation = "--operation charge --namespace payments";
    let refusal = "under an id of your own: give that, or `--hash` alone";
    for (command, code) in [("get", 2), ("explain", 0)] {
        let line = format!("{command} {by_hash} {operation}");
        on(&table, &line).await.refused(code, refusal);
    }
    refused(on(&table, &format!("get {by_hash}")), 0, "order-17").await;
}

#[tokio::test]
async fn a_scope_is_part_of_the_key() {
    let table = table().await;
    let handler = async |_claim| Ok::<_, std::io::Error>(17);
    let scoped = key("A-17").scope("tenant-7");
    engine(&table).run(scoped, None, handler).await.unwrap();
    let get = "get --namespace payments --operation charge --token A-17";
    on(&table, get).await.refused(2, "there is no record");
    ended_with(on(&table, &format!("{get} --scope tenant-7")), 0).await;
}

#[tokio::test]
async fn what_cannot_be_found_is_said_in_words() {
    let table = table().await;
    for (line, refusal) in [
        (
            "get payments#charge#0f",
            "there is no record `payments#charge#0f`",
        ),
        ("get --operation charge --token A-17", "give --namespace"),
        ("explain --operation charge --token A-17", "error"),
        (
            "get --hash 0f0f0f",
            "There is no terminal to ask at: add --yes",
        ),
        (
            "get --hash 0f0f0f --yes",
            "no record's hash begins with 0f0f0f",
        ),
        ("get --hash xyz", "a hash has 6 to 64 hex digits"),
        ("get", "required"),
    ] {
        let said = on(&table, line).await.refused(2, refusal);
        assert!(said.err.contains("error"), "{said:?}");
    }
    refused(run("get any"), 2, "name the table of the records: --table").await;
    on("nowhere", "get any").await.refused(3, "nowhere");
    on("nowhere", "list --yes")
        .await
        .refused(3, "the table `nowhere` is not there");
}

#[tokio::test]
async fn several_records_of_one_hash_are_named() {
    let table = table().await;
    // Of 400 hashes, two begin with the same digit at least.
    let mut ids = Vec::new();
    for number in 0..17 {
        let token = format!("A-{number}");
        deliver(&table, &token).await.unwrap();
        ids.push(id(&table, &token));
    }
    // Six digits that several records share, as no log line would have them.
    let engine = engine(&table);
    for (number, end) in ["a", "b"].into_iter().enumerate() {
        let raw = format!("payments#charge#0f0f0f{}{end}", "0".repeat(57));
        let handler = async |_claim| Ok::<_, std::io::Error>(number);
        let key = lambda_idempotency::Key::raw("charge", &raw);
        engine.run(key, None, handler).await.unwrap();
    }
    on(&table, "get --hash 0f0f0f --yes")
        .await
        .refused(2, "the hash 0f0f0f is ambiguous");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_named() {
    run("get any --endpoint-url http://127.0.0.1:9 --table t --timeout 1s")
        .await
        .refused(3, "error");
    let mut without = command(&format!("get any {}", place("t")));
    without
        .env_remove("AWS_ACCESS_KEY_ID")
        .env_remove("AWS_SECRET_ACCESS_KEY");
    let said = Said::of(&without.output().await.unwrap());
    said.refused(3, "credentials");
    let mut without = command("get any --table t");
    without.env_remove("AWS_REGION");
    let said = Said::of(&without.output().await.unwrap());
    assert!(said.err.contains("no AWS region"), "{said:?}");
}

/// A DynamoDB with one record, whose attempt died. It refuses this call.
async fn refusing(call: &'static str, code: &'static str) -> String {
    let answer = move |headers: HeaderMap| async move {
        if headers["x-amz-target"].to_str().unwrap().ends_with(call) {
            let words = "Item size to update has exceeded the maximum allowed size";
            let refusal = json!({"__type": code, "message": words});
            return (StatusCode::BAD_REQUEST, refusal.to_string());
        }
        let item = json!({
            "id": {"S": "any"}, "status": {"S": "INPROGRESS"}, "owner": {"S": "0f"}, "attempt": {"N": "1"},
            "in_progress_expiration": {"N": "1"}, "expiration": {"N": "4000000000"}, "v": {"N": "1"},
        });
        (StatusCode::OK, json!({"Item": item}).to_string())
    };
    serve(Router::new().fallback(answer)).await
}

/// The store's own words are for a function.
#[tokio::test]
async fn an_operator_is_told_what_the_role_or_the_outcome_lacks() {
    let denied = "AccessDeniedException";
    let may_not = |action: &str| {
        format!("allow dynamodb:{action} on it, or what DynamoDB names: Item size to update")
    };
    let complete = format!("complete any --outcome 1 {WHY}");
    let audit = "audit --effect-key id --effects-command cat";
    for (line, call, code, words) in [
        ("get any", "GetItem", denied, may_not("GetItem")),
        ("explain any", "GetItem", denied, may_not("GetItem")),
        (
            audit,
            "Scan",
            denied,
            "dynamodb:Scan on the table `t`, or what DynamoDB names: Item size".to_owned(),
        ),
        (&*complete, "UpdateItem", denied, may_not("UpdateItem")),
        (
            &*complete,
            "UpdateItem",
            "ValidationException",
            "store a reference to it".to_owned(),
        ),
    ] {
        let url = refusing(call, code).await;
        run(&format!("{line} --endpoint-url {url} --table t"))
            .await
            .refused(3, &words);
    }
    // For the time of a reply, a refusal is as good.
    let url = refusing("GetItem", denied).await;
    run(&format!("{audit} --endpoint-url {url} --table t"))
        .await
        .refused(1, "nothing was compared");
}
