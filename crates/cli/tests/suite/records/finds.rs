//! The ways to find a record, and the message about one that isn't found.

use serde_json::Value;

use super::{deliver, engine, id, key};
use crate::support::{command, dynamodb_endpoint, on, run, table};

#[tokio::test]
async fn a_record_is_found_by_its_id_its_key_and_its_hash() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    deliver(&table, "B").await.unwrap();
    let id = id(&table, "A-17");
    let hash = id.rsplit('#').next().unwrap().to_owned();
    let namespace = ["--namespace", "payments", "--json"];
    for words in [
        &["get", &id][..],
        &["get", "--operation", "charge", "--token", "A-17"],
        &["get", "--operation", "charge", "--hash", &hash],
        &["get", "--hash", &hash, "--yes"],
        &["get", "--hash", &hash[..8], "--yes"],
    ] {
        let said = on(&table, &[words, &namespace].concat())
            .await
            .ended_with(0);
        assert_eq!(said.json()["id"], Value::String(id.clone()), "{words:?}");
    }
}

#[tokio::test]
async fn an_operation_and_a_namespace_restrict_the_search_for_a_hash() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let hash = &id.rsplit('#').next().unwrap()[..8];
    let find = ["get", "--yes", "--hash", hash];
    for words in [&["--operation", "refund"][..], &["--namespace", "refunds"]] {
        on(&table, &[&find[..], words].concat())
            .await
            .refused(2, "no record's hash begins with");
    }
    let words = ["--operation", "charge", "--namespace", "payments"];
    let said = on(&table, &[&find[..], &words].concat()).await;
    said.refused(0, &id);
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
    let by_hash = ["--hash", id.hash(), "--yes"];
    let operation = ["--operation", "charge", "--namespace", "payments"];
    for (command, code) in [("get", 2), ("explain", 0)] {
        let words = [&[command][..], &by_hash, &operation].concat();
        on(&table, &words).await.refused(
            code,
            "under an id of your own: give that, or `--hash` alone",
        );
    }
    on(&table, &[&["get"][..], &by_hash].concat())
        .await
        .refused(0, "order-17");
}

#[tokio::test]
async fn a_scope_is_part_of_the_key() {
    let table = table().await;
    let handler = async |_claim| Ok::<_, std::io::Error>(17);
    let scoped = key("A-17").scope("tenant-7");
    engine(&table).run(scoped, None, handler).await.unwrap();
    let words = [
        "get",
        "--namespace",
        "payments",
        "--operation",
        "charge",
        "--token",
        "A-17",
    ];
    on(&table, &words).await.refused(2, "there is no record");
    on(&table, &[&words[..], &["--scope", "tenant-7"]].concat())
        .await
        .ended_with(0);
}

#[tokio::test]
async fn what_cannot_be_found_is_said_in_words() {
    let table = table().await;
    for words in [
        &["get", "payments#charge#0f"][..],
        &["explain", "--operation", "charge", "--token", "A-17"],
        &["get", "--hash", "0f0f0f"],
    ] {
        let said = on(&table, words).await;
        assert!(!said.err.is_empty(), "{said:?}");
        assert_ne!(said.err.find("error"), None, "{said:?}");
    }
    on(&table, &["get", "payments#charge#0f"])
        .await
        .refused(2, "there is no record `payments#charge#0f`");
    on(&table, &["get", "--operation", "charge", "--token", "A-17"])
        .await
        .refused(2, "give --namespace");
    on(&table, &["get", "--hash", "0f0f0f"])
        .await
        .refused(2, "There is no terminal to ask at: add --yes");
    on(&table, &["get", "--hash", "0f0f0f", "--yes"])
        .await
        .refused(2, "no record's hash begins with 0f0f0f");
    on(&table, &["get", "--hash", "xyz"])
        .await
        .refused(2, "a hash has 6 to 64 hex digits");
    on(&table, &["get"]).await.refused(2, "required");
    run(&["get", "any"])
        .await
        .refused(2, "name the table of the records: --table");
    on("nowhere", &["get", "any"]).await.refused(3, "nowhere");
    on("nowhere", &["list", "--yes"])
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
    on(&table, &["get", "--hash", "0f0f0f", "--yes"])
        .await
        .refused(2, "the hash 0f0f0f is ambiguous");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_named() {
    let place = [
        "--endpoint-url",
        "http://127.0.0.1:9",
        "--table",
        "t",
        "--timeout",
        "1s",
    ];
    run(&[&["get", "any"][..], &place].concat())
        .await
        .refused(3, "error");
    let mut without = command(&[
        "get",
        "any",
        "--endpoint-url",
        &dynamodb_endpoint(),
        "--table",
        "t",
    ]);
    without
        .env_remove("AWS_ACCESS_KEY_ID")
        .env_remove("AWS_SECRET_ACCESS_KEY");
    let said = without.output().await.unwrap();
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(3), "{words}");
    assert!(words.contains("credentials"), "{words}");
    let mut without = command(&["get", "any", "--table", "t"]);
    without.env_remove("AWS_REGION");
    let said = without.output().await.unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("no AWS region"));
}
