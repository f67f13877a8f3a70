//! The commands that end a record: what deliveries are told after each.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::testing::Crash;
use lambda_idempotency::{Error, Key, Outcome};
use serde_json::json;

use super::races::races;
use super::{WHY, alive, dead, deliver, deliver_in_steps, engine, engine_an_hour_ago, id};
use crate::support::{Said, dynamodb, on, table};

async fn order(table: &str, words: &[&str]) -> Said {
    on(table, &[words, &WHY, &["--yes", "--json"]].concat()).await
}

async fn item(table: &str, id: &str) -> HashMap<String, AttributeValue> {
    let get = dynamodb().client().get_item().table_name(table);
    let get = get.key("id", AttributeValue::S(id.to_owned()));
    get.consistent_read(true)
        .send()
        .await
        .unwrap()
        .item
        .unwrap()
}

/// Sets when a record expires, in seconds since the epoch.
async fn expire(table: &str, id: &str, at: i64) {
    let update = dynamodb().client().update_item().table_name(table);
    update
        .key("id", AttributeValue::S(id.to_owned()))
        .update_expression("SET expiration = :at")
        .expression_attribute_values(":at", AttributeValue::N(at.to_string()))
        .send()
        .await
        .unwrap();
}

/// Lets a record expire in a minute, carries an order out, and asserts that it is kept for a week.
async fn order_and_keep(table: &str, id: &str, words: &[&str]) -> Said {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let soon = i64::try_from(now.as_secs()).unwrap() + 60;
    expire(table, id, soon).await;
    let said = order(table, words).await.ended_with(0);
    let kept = item(table, id).await["expiration"].as_n().unwrap().clone();
    let kept: i64 = kept.parse().unwrap();
    assert!(kept > soon + 6 * 24 * 3_600, "{words:?}: {soon}, {kept}");
    said
}

#[tokio::test]
async fn a_released_key_runs_again_and_keeps_who_released_it() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let said = order_and_keep(&table, &id, &["release", &id]).await;
    let report = said.json();
    assert_eq!(report["before"]["state"], "stuck");
    assert_eq!(report["after"]["state"], "released");
    assert_eq!(report["after"]["last_error"], "release by an operator");
    assert!(
        said.err.contains("release") && said.err.contains("by alice: ticket 17"),
        "{said:?}"
    );

    let outcome = deliver(&table, "A-17").await.unwrap();
    assert_eq!(
        outcome,
        Outcome::Executed("receipt of attempt 2".to_owned())
    );
    let after = on(&table, &["get", &id, "--json"])
        .await
        .ended_with(0)
        .json();
    assert_eq!(after["acts"][0]["by"], "alice");
    assert_eq!(after["acts"][0]["reason"], "ticket 17");
    order(&table, &["release", &id])
        .await
        .refused(2, "its effect has happened");
}

#[tokio::test]
async fn a_completed_key_is_replayed_and_never_runs() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let outcome = ["complete", &id, "--outcome", "\"by hand\""];
    order(&table, &outcome).await.ended_with(0);
    let outcome = deliver(&table, "A-17").await.unwrap();
    assert!(outcome.is_replayed());
    assert_eq!(outcome.into_inner(), "by hand");
    order(&table, &["complete", &id, "--outcome", "1"])
        .await
        .refused(2, "the record is completed");
    order(&table, &["release", &id])
        .await
        .refused(2, "its effect has happened");
    assert!(deliver(&table, "A-17").await.unwrap().is_replayed());
}

#[tokio::test]
async fn a_failed_key_is_refused_until_it_is_released() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let words = [
        "fail",
        &id,
        "--message",
        "the card was stolen",
        "--kind",
        "Declined",
    ];
    order(&table, &words).await.ended_with(0);
    let failed = deliver(&table, "A-17").await.unwrap_err();
    assert!(
        matches!(&failed, Error::Failed(failure) if failure.message == "the card was stolen"),
        "{failed:?}"
    );
    order(&table, &["release", &id]).await.ended_with(0);
    assert!(!deliver(&table, "A-17").await.unwrap().is_replayed());
}

#[tokio::test]
async fn an_http_record_gets_a_response() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let body = std::env::temp_dir().join(format!("{table}.json"));
    std::fs::write(&body, "{\"order\":17}").unwrap();
    let body = body.to_str().unwrap();
    let words = [
        "complete",
        &id,
        "--status",
        "201",
        "--header",
        "content-type: application/json",
        "--body-file",
        body,
    ];
    order(&table, &words).await.ended_with(0);
    let data = item(&table, &id).await["data"].as_s().unwrap().clone();
    let response = lambda_idempotency::http::response_of(&data).unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.body(), "{\"order\":17}");
    let shown = on(&table, &["get", &id, "--json"]).await.json();
    assert_eq!(
        shown["outcome"],
        json!({"kind": "response", "status": 201,
        "headers": [["content-type", "application/json"]], "body": "{\"order\":17}"})
    );
    let words = ["complete", &id, "--status", "204", "--body-file", body];
    let refused = order(&table, &words).await.ended_with(2);
    assert!(
        refused.err.contains("204 No Content has no body"),
        "{}",
        refused.err
    );
    for (words, refusal) in [
        (["--status", "99"], "a final status"),
        (["--status", "2xx"], "a final status"),
        (["--outcome", "{not json"], "the outcome is no JSON"),
        (
            ["--outcome-file", "/nonexistent/outcome"],
            "/nonexistent/outcome",
        ),
    ] {
        order(&table, &[&["complete", &id], &words[..]].concat())
            .await
            .refused(2, refusal);
    }
    let header = ["complete", &id, "--status", "200", "--header", "no colon"];
    order(&table, &header)
        .await
        .refused(2, "write a header as `name: value`");
}

/// The layer replays nothing else.
#[tokio::test]
async fn a_record_of_an_http_operation_gets_nothing_but_a_response() {
    let table = table().await;
    let (past, crash) = (engine_an_hour_ago(&table), Crash::new());
    let key = Key::new("POST /orders", "A-17");
    let id = past.record_id(&key).unwrap();
    let attempt = past.run(key, None, async |_claim| {
        crash.here::<Result<String, std::io::Error>>().await
    });
    crash.cut_off(attempt).await.unwrap();
    let complete = ["complete", id.as_str(), "--outcome"];
    order(&table, &[&complete[..], &["{\"order\":17}"]].concat())
        .await
        .refused(2, "give --status and --body-file");
    let response = r#"{"status":201,"headers":[],"body":""}"#;
    order(&table, &[&complete[..], &[response]].concat())
        .await
        .ended_with(0);
}

#[tokio::test]
async fn a_step_goes_on_from_what_the_operator_says() {
    for (words, charged, receipt) in [
        (
            &["--confirmed", "charge", "--result", "\"by hand\""][..],
            0,
            "by hand",
        ),
        (&["--failed", "charge"][..], 1, "charged again"),
    ] {
        let table = table().await;
        let (past, crash) = (engine_an_hour_ago(&table), Crash::new());
        let attempt = deliver_in_steps(&past, "A-17", async || crash.here().await);
        crash.cut_off(attempt).await.unwrap();
        let now = engine(&table);
        let interrupted = deliver_in_steps(&now, "A-17", async || Ok(String::new())).await;
        assert!(interrupted.is_err(), "{interrupted:?}");

        let id = id(&table, "A-17");
        let explained = on(&table, &["explain", &id, "--json"])
            .await
            .ended_with(1)
            .json();
        assert_eq!(explained["answer"], "interrupted");
        assert!(explained["words"].as_str().unwrap().contains("`charge`"));
        let listed = on(&table, &["list", "--interrupted", "--yes"])
            .await
            .ended_with(1);
        assert!(listed.out.contains(&id), "{listed:?}");

        order_and_keep(&table, &id, &[&["settle-step", &id], words].concat()).await;
        let charges = std::cell::Cell::new(0);
        let charge = async || {
            charges.set(charges.get() + 1);
            Ok("charged again".to_owned())
        };
        let outcome = deliver_in_steps(&now, "A-17", charge).await.unwrap();
        assert_eq!(
            (charges.get(), outcome.into_inner().as_str()),
            (charged, receipt)
        );
    }
}

#[tokio::test]
async fn a_step_that_does_not_wait_is_left_alone() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    order(&table, &["settle-step", &id, "--failed", "charge"])
        .await
        .refused(2, "has no step `charge`");
    order(&table, &["settle-step", &id, "--confirmed", "charge"])
        .await
        .refused(2, "--result");
    order(
        &table,
        &["settle-step", &id, "--failed", "charge", "--result", "1"],
    )
    .await
    .refused(2, "cannot be used with");
}

#[tokio::test]
async fn an_erased_outcome_is_gone_and_its_duplicates_do_not_run() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let said = order(&table, &["redact", &id]).await.ended_with(0);
    assert_eq!(said.json()["after"]["outcome"]["reason"], "redacted");
    let item = item(&table, &id).await;
    assert!(!item.contains_key("data"), "{item:?}");
    let told = deliver(&table, "A-17").await.unwrap_err();
    assert!(matches!(told, Error::OutcomeOmitted { .. }), "{told:?}");
    let again = order(&table, &["redact", &id]).await.ended_with(0);
    assert_eq!(again.json()["written"], false, "done before");
    let dead = dead(&table, "B").await;
    order(&table, &["redact", &dead])
        .await
        .refused(2, "has no outcome");
}

/// The engine names the object by the hash at the end of the record's id.
#[tokio::test]
async fn a_redaction_names_the_object_that_it_leaves() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let packed = [
        ("sha256", text(&"0f".repeat(32))),
        ("bytes", AttributeValue::N("500000".to_owned())),
        ("in", text("object")),
        ("owner", text("0f0f")),
    ];
    let packed = packed.map(|(name, value)| (name.to_owned(), value));
    let update = dynamodb().client().update_item().table_name(&table);
    update
        .key("id", text(&id))
        .update_expression("SET #packed = :packed REMOVE #data")
        .expression_attribute_names("#packed", "packed")
        .expression_attribute_names("#data", "data")
        .expression_attribute_values(":packed", AttributeValue::M(packed.into()))
        .send()
        .await
        .unwrap();
    let hash = id.rsplit('#').next().unwrap();
    let object = format!("PREFIX{hash}/0f0f");
    let key = ["--operation", "charge", "--namespace", "payments"];
    for which in [
        &[&*id][..],
        &["--hash", &hash[..8]],
        &[&["--hash", hash][..], &key].concat()[..],
    ] {
        for format in [&[][..], &["--json"]] {
            let dry_run = ["redact", "--dry-run", "--yes"];
            let words = [&dry_run[..], which, &WHY, format].concat();
            on(&table, &words).await.refused(0, &object);
        }
    }
    let said = order(&table, &["redact", &id]).await.ended_with(0);
    let left = said.json()["act"]["left"].clone();
    assert!(left.as_str().unwrap().ends_with(&object), "{said:?}");
}

#[tokio::test]
async fn an_attempt_that_may_still_run_is_left_alone_unless_two_questions_are_answered() {
    let table = table().await;
    let id = alive(&table, "A-17").await;
    order(&table, &["release", &id])
        .await
        .refused(2, "an attempt may still run: its lease ends");
    order(&table, &["release", &id, "--while-live"])
        .await
        .refused(2, "Are you sure?");
    assert_eq!(
        on(&table, &["get", &id, "--json"]).await.json()["state"],
        "in_progress"
    );
    order(&table, &["release", &id, "--while-live", "--yes"])
        .await
        .ended_with(0);
    assert!(!deliver(&table, "A-17").await.unwrap().is_replayed());
}

#[tokio::test]
async fn nothing_is_written_without_a_yes_or_in_a_dry_run() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let before = item(&table, &id).await;
    let words = ["release", &id, "--reason", "ticket 17"];
    on(&table, &words)
        .await
        .refused(2, "There is no terminal to ask at: add --yes");
    on(&table, &[&words[..], &["--dry-run"]].concat())
        .await
        .refused(0, "would release: nothing was written");
    on(&table, &["release", &id, "--yes"])
        .await
        .refused(2, "--reason");
    on(&table, &["release", &id, "--yes", "--reason", " "])
        .await
        .refused(2, "give 1 to 500 characters");
    assert_eq!(item(&table, &id).await, before);
}

#[tokio::test]
async fn of_two_operators_at_once_one_ends_the_record() {
    let table = table().await;
    for round in 0..races() / 20 {
        let id = dead(&table, &format!("A-{round}")).await;
        let complete = ["complete", &id, "--outcome", "\"by hand\""];
        let fail = ["fail", &id, "--message", "by hand"];
        let (one, other) = tokio::join!(order(&table, &complete), order(&table, &fail));
        let mut codes = [one.code, other.code];
        codes.sort_unstable();
        // The later one meets what the earlier one left: by its version, or when it looks.
        assert!(matches!(codes, [0, 2 | 4]), "{one:?} {other:?}");
    }
}

#[tokio::test]
async fn a_rerun_of_a_record_that_expired_while_it_waited_is_not_said_to_be_done() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let file = std::env::temp_dir().join(format!("{table}.ids"));
    std::fs::write(&file, &id).unwrap();
    let one = ["rerun", &id, "--keys", "new"];
    order(&table, &one).await.ended_with(0);
    expire(&table, &id, 1_700_000_000).await;
    order(&table, &one)
        .await
        .refused(2, "has expired: the next delivery runs the handler");
    let listed = ["rerun", "--keys", "new", "--from", file.to_str().unwrap()];
    order(&table, &listed)
        .await
        .refused(1, "the next delivery runs anyway");
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn of_a_record_that_has_expired_it_is_said_what_the_next_delivery_does() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    expire(&table, &id, 1_700_000_000).await;
    let explained = on(&table, &["explain", &id]).await;
    explained.refused(
        0,
        "the record has expired: a delivery would run the handler",
    );
    let before = item(&table, &id).await;
    for words in [
        &["complete", &id, "--outcome", "1"][..],
        &["fail", &id, "--message", "no"],
        &["release", &id],
    ] {
        order(&table, words)
            .await
            .refused(2, "has expired: the next delivery runs the handler");
    }
    let file = std::env::temp_dir().join(format!("{table}.ids"));
    std::fs::write(&file, &id).unwrap();
    let rerun = ["rerun", "--keys", "new", "--from", file.to_str().unwrap()];
    order(&table, &rerun)
        .await
        .refused(1, "the next delivery runs anyway");
    order(&table, &["rerun", &id, "--keys", "new"])
        .await
        .refused(2, "has expired: the next delivery runs the handler");
    std::fs::remove_file(file).unwrap();
    assert_eq!(item(&table, &id).await, before);
    assert!(!deliver(&table, "A-17").await.unwrap().is_replayed());
}
