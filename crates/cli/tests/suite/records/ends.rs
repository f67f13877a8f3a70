//! The commands that end a record: what deliveries are told after each.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::testing::Crash;
use lambda_idempotency::{Error, Key, Outcome};
use serde_json::json;

use super::races::races;
use super::{WHY, alive, dead, deliver, deliver_in_steps, engine, engine_an_hour_ago, id};
use crate::support::{
    self, Item, Said, Scratch, command, dynamodb, dynamodb_endpoint, ended_with, get, number, on,
    place, put, receipt, record, refused, step, table, text,
};

async fn order(table: &str, line: &str) -> Said {
    on(table, &format!("{line} {WHY} --json")).await
}

async fn item(table: &str, id: &str) -> Item {
    let get = dynamodb().client().get_item().table_name(table);
    let get = get.key("id", text(id)).consistent_read(true);
    get.send().await.unwrap().item.unwrap()
}

/// Sets when a record expires, in seconds since the epoch.
async fn expire(table: &str, id: &str, at: i64) {
    let update = dynamodb().client().update_item().table_name(table);
    update
        .key("id", text(id))
        .update_expression("SET expiration = :at")
        .expression_attribute_values(":at", number(at))
        .send()
        .await
        .unwrap();
}

/// Lets a record expire in a minute, carries an order out, and asserts that it is kept for a week.
async fn order_and_keep(table: &str, id: &str, line: &str) -> Said {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let soon = i64::try_from(now.as_secs()).unwrap() + 60;
    expire(table, id, soon).await;
    let said = order(table, line).await.ended_with(0);
    let kept = item(table, id).await["expiration"].as_n().unwrap().clone();
    let kept: i64 = kept.parse().unwrap();
    assert!(kept > soon + 6 * 24 * 3_600, "{line}: {soon}, {kept}");
    said
}

#[tokio::test]
async fn a_released_key_runs_again_and_keeps_who_released_it() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let release = format!("release {id}");
    let said = order_and_keep(&table, &id, &release).await;
    let report = said.json();
    assert_eq!(report["before"]["state"], "stuck");
    assert_eq!(report["after"]["state"], "released");
    assert_eq!(report["after"]["last_error"], "release by an operator");
    assert!(
        said.err.contains("release") && said.err.contains("by alice: ticket 17"),
        "{said:?}"
    );

    let outcome = deliver(&table, "A-17").await.unwrap();
    assert_eq!(outcome, Outcome::Executed(receipt(2)));
    let after = get(&table, &id).await;
    assert_eq!(after["acts"][0]["by"], "alice");
    assert_eq!(after["acts"][0]["reason"], "ticket 17");
    refused(order(&table, &release), 2, "its effect has happened").await;
}

#[tokio::test]
async fn a_completed_key_is_replayed_and_never_runs() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    order(&table, &format!("complete {id} --outcome '\"by hand\"'"))
        .await
        .ended_with(0);
    let outcome = deliver(&table, "A-17").await.unwrap();
    assert!(outcome.is_replayed());
    assert_eq!(outcome.into_inner(), "by hand");
    for (line, refusal) in [
        (
            format!("complete {id} --outcome 1"),
            "the record is completed",
        ),
        (format!("release {id}"), "its effect has happened"),
    ] {
        order(&table, &line).await.refused(2, refusal);
    }
    assert!(deliver(&table, "A-17").await.unwrap().is_replayed());
}

#[tokio::test]
async fn a_negative_number_is_an_outcome_and_a_result() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let complete = format!("complete {id} --outcome -12.5 --dry-run");
    order(&table, &complete).await.ended_with(0);
    let settle = format!("settle-step {id} --confirmed charge --result -12.5");
    order(&table, &settle)
        .await
        .refused(2, "the record has no step `charge`");
}

#[tokio::test]
async fn a_failed_key_is_refused_until_it_is_released() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let fail = format!("fail {id} --message 'the card was stolen' --kind Declined");
    order(&table, &fail).await.ended_with(0);
    let failed = deliver(&table, "A-17").await.unwrap_err();
    assert_matches!(&failed, Error::Failed(failure) if failure.message == "the card was stolen");
    order(&table, &format!("release {id}")).await.ended_with(0);
    assert!(!deliver(&table, "A-17").await.unwrap().is_replayed());
}

#[tokio::test]
async fn an_http_record_gets_a_response() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let body = Scratch::with("{\"order\":17}");
    let header = "--header 'content-type: application/json'";
    let complete = format!("complete {id} --body-file {body} --status");
    ended_with(order(&table, &format!("{complete} 201 {header}")), 0).await;
    let data = item(&table, &id).await["data"].as_s().unwrap().clone();
    let response = lambda_idempotency::http::response_of(&data).unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.body(), "{\"order\":17}");
    assert_eq!(
        get(&table, &id).await["outcome"],
        json!({"kind": "response", "status": 201,
        "headers": [["content-type", "application/json"]], "body": "{\"order\":17}"})
    );
    order(&table, &format!("{complete} 204"))
        .await
        .refused(2, "204 No Content has no body");
    for (words, refusal) in [
        ("--status 99", "a final status"),
        ("--status 2xx", "a final status"),
        ("--outcome '{not json'", "the outcome is no JSON"),
        (
            "--outcome-file /nonexistent/outcome",
            "/nonexistent/outcome",
        ),
        (
            "--status 200 --header 'no colon'",
            "write a header as `name: value`",
        ),
    ] {
        refused(order(&table, &format!("complete {id} {words}")), 2, refusal).await;
    }
}

/// The layer replays nothing else. A handler that no layer calls may have an operation of such a name, too.
#[tokio::test]
async fn a_record_of_an_http_operation_gets_nothing_but_a_response_unless_two_questions_are_answered()
 {
    let table = table().await;
    let (past, response) = (
        engine_an_hour_ago(&table),
        r#"{"status":201,"headers":[],"body":""}"#,
    );
    let key = |token: &str| Key::new("POST /orders", token);
    for (token, outcome, answer) in [("A", response, ""), ("B", "17", "--yes")] {
        let (id, crash) = (past.record_id(&key(token)).unwrap(), Crash::new());
        let attempt = past.run(key(token), None, async |_claim| {
            crash.here::<Result<u32, std::io::Error>>().await
        });
        crash.cut_off(attempt).await.unwrap();
        let complete = format!("complete '{}' --outcome", id.as_str());
        order(&table, &format!("{complete} 17"))
            .await
            .refused(2, "give --status and --body-file");
        order(&table, &format!("{complete} '{outcome}' {answer}"))
            .await
            .ended_with(0);
    }
    let handler = async |_claim| Ok::<_, std::io::Error>(0);
    let outcome = engine(&table).run(key("B"), None, handler).await.unwrap();
    assert!(outcome.is_replayed());
    assert_eq!(outcome.into_inner(), 17);
}

#[tokio::test]
async fn a_step_goes_on_from_what_the_operator_says() {
    for (words, charged, receipt) in [
        ("--confirmed charge --result '\"by hand\"'", 0, "by hand"),
        ("--failed charge", 1, "charged again"),
    ] {
        let table = table().await;
        let (past, crash) = (engine_an_hour_ago(&table), Crash::new());
        let attempt = deliver_in_steps(&past, "A-17", async || crash.here().await);
        crash.cut_off(attempt).await.unwrap();
        let now = engine(&table);
        let interrupted = deliver_in_steps(&now, "A-17", async || Ok(String::new())).await;
        assert!(interrupted.is_err(), "{interrupted:?}");

        let id = id(&table, "A-17");
        let explained = on(&table, &format!("explain {id} --json")).await;
        let explained = explained.ended_with(1).json();
        assert_eq!(explained["answer"], "interrupted");
        assert!(explained["words"].as_str().unwrap().contains("`charge`"));
        on(&table, "list --interrupted --yes").await.refused(1, &id);

        let settle = format!("settle-step {id} {words}");
        order_and_keep(&table, &id, &settle).await;
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
    for (words, refusal) in [
        ("--failed charge", "has no step `charge`"),
        ("--confirmed charge", "--result"),
        ("--failed charge --result 1", "cannot be used with"),
    ] {
        order(&table, &format!("settle-step {id} {words}"))
            .await
            .refused(2, refusal);
    }
    let died = [
        ("in_progress_expiration", number(1)),
        ("step:charge", step("PENDING", 1_700_000_000_000, &[])),
    ];
    put(&table, record("any", "INPROGRESS", died)).await;
    let confirm = "settle-step any --confirmed charge --result";
    ended_with(order(&table, &format!("{confirm} 1")), 0).await;
    // Another result under the same reason corrects nothing.
    refused(order(&table, &format!("{confirm} 2")), 2, "isn't pending").await;
}

/// Its effect may have happened, whatever became of the attempt before.
#[tokio::test]
async fn an_act_is_not_repeated_for_the_same_reason_on_an_attempt_that_died_since() {
    let table = table().await;
    let dies = async |token: &str| {
        if token == "released" {
            drop(dead(&table, token).await);
        } else {
            let (past, crash) = (engine_an_hour_ago(&table), Crash::new());
            let attempt = deliver_in_steps(&past, token, async || crash.here().await);
            crash.cut_off(attempt).await.unwrap();
        }
    };
    for (token, act) in [
        ("released", "release"),
        ("settled", "settle-step --failed charge"),
    ] {
        dies(token).await;
        let id = id(&table, token);
        let line = format!("{act} {id}");
        order(&table, &line).await.ended_with(0);
        for reason in ["another", "third"] {
            dies(token).await;
            let left = item(&table, &id).await;
            refused(order(&table, &line), 2, "give another reason").await;
            assert_eq!(item(&table, &id).await, left);
            let other = format!("{line} --reason {reason} --yes");
            on(&table, &other).await.ended_with(0);
        }
    }
}

#[tokio::test]
async fn an_erased_outcome_is_gone_and_its_duplicates_do_not_run() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let redact = format!("redact {id}");
    let said = order(&table, &redact).await.ended_with(0);
    assert_eq!(said.json()["after"]["outcome"]["reason"], "redacted");
    let item = item(&table, &id).await;
    assert!(!item.contains_key("data"), "{item:?}");
    let told = deliver(&table, "A-17").await.unwrap_err();
    assert_matches!(told, Error::OutcomeOmitted { .. });
    let again = order(&table, &redact).await.ended_with(0);
    assert_eq!(again.json()["written"], false, "done before");
    let dead = dead(&table, "B").await;
    order(&table, &format!("redact {dead}"))
        .await
        .refused(2, "has no outcome");
}

/// A terminal's history and a log keep what is printed.
#[tokio::test]
async fn a_redaction_prints_nothing_of_what_it_erases() {
    let table = table().await;
    let charge = async || Ok("a secret".to_owned());
    let delivered = deliver_in_steps(&engine(&table), "A-17", charge).await;
    assert_eq!(delivered.unwrap().into_inner(), "a secret");
    let id = id(&table, "A-17");
    let shown = get(&table, &id).await;
    for part in [&shown["outcome"], &shown["steps"]] {
        assert!(part.to_string().contains("a secret"), "{shown}");
    }
    for words in ["--dry-run", "--dry-run --json", "--json", "--json"] {
        let said = on(&table, &format!("redact {id} {WHY} {words}")).await;
        assert!(!said.out.contains("a secret"), "{said:?}");
        said.ended_with(0);
    }
}

/// The engine names the object by the hash at the end of the record's id.
#[tokio::test]
async fn a_redaction_names_the_object_that_it_leaves() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let packed = support::item([
        ("sha256", text("0f".repeat(32))),
        ("bytes", number(500_000)),
        ("in", text("object")),
        ("owner", text("0f0f")),
    ]);
    let update = dynamodb().client().update_item().table_name(&table);
    update
        .key("id", text(&id))
        .update_expression("SET #packed = :packed REMOVE #data")
        .expression_attribute_names("#packed", "packed")
        .expression_attribute_names("#data", "data")
        .expression_attribute_values(":packed", AttributeValue::M(packed))
        .send()
        .await
        .unwrap();
    let hash = id.rsplit('#').next().unwrap();
    let object = format!("PREFIX{hash}/0f0f");
    for which in [
        id.clone(),
        format!("--hash {}", &hash[..8]),
        format!("--hash {hash} --operation charge --namespace payments"),
    ] {
        for format in ["", "--json"] {
            let line = format!("redact --dry-run {which} {WHY} {format}");
            on(&table, &line).await.refused(0, &object);
        }
    }
    let said = order(&table, &format!("redact {id}")).await.ended_with(0);
    let left = said.json()["act"]["left"].clone();
    assert!(left.as_str().unwrap().ends_with(&object), "{said:?}");
    let shown = on(&table, &format!("get {id}")).await;
    shown.refused(0, &format!("to delete    {}", left.as_str().unwrap()));
}

/// It keeps a large outcome before it completes its record.
#[tokio::test]
async fn a_redaction_erases_or_names_what_attempts_that_ended_before_may_have_kept() {
    let table = table().await;
    for (token, act) in [
        ("A", Some("complete --outcome 1")),
        ("B", Some("fail --message no")),
        ("C", Some("release")),
        // A delivery takes it over, and the record has the attempt's name no more.
        ("D", None),
    ] {
        let id = dead(&table, token).await;
        let owner = item(&table, &id).await["owner"].as_s().unwrap().clone();
        let large = format!("{id}#outcome#{owner}");
        let content = AttributeValue::B(Blob::new("a secret"));
        let kept = support::item([("id", text(&large)), ("content", content)]);
        put(&table, kept).await;
        if let Some(act) = act {
            order(&table, &format!("{act} {id}")).await.ended_with(0);
        }
        let _ = deliver(&table, token).await;
        let said = order(&table, &format!("redact {id}")).await.ended_with(0);
        let left = said.json()["act"]["left"].to_string();
        let is_named = left.contains(&format!("{id}#outcome#"));
        assert_eq!(is_named, act.is_none(), "{act:?}: {left}");
        let content = item(&table, &large).await["content"].clone();
        let is_erased = content.as_b().unwrap().as_ref().is_empty();
        assert_eq!(is_erased, act.is_some(), "{act:?}");
    }
}

#[tokio::test]
async fn an_attempt_that_may_still_run_is_left_alone_unless_two_questions_are_answered() {
    let table = table().await;
    let id = alive(&table, "A-17").await;
    for (words, refusal) in [
        ("", "an attempt may still run: its lease ends"),
        ("--while-live", "Are you sure?"),
    ] {
        refused(order(&table, &format!("release {id} {words}")), 2, refusal).await;
    }
    assert_eq!(get(&table, &id).await["state"], "in_progress");
    order(&table, &format!("release {id} --while-live --yes"))
        .await
        .ended_with(0);
    assert!(!deliver(&table, "A-17").await.unwrap().is_replayed());
}

/// What it has done and not undone would stay.
#[tokio::test]
async fn a_saga_that_is_half_undone_is_ended_where_two_questions_are_answered_alone() {
    let table = table().await;
    let state = r#"{"failure":{"kind":"Declined","message":"no"},"confirmed":["charge"]}"#;
    for act in ["complete --outcome 1", "fail --message no"] {
        let saga = step("CONFIRMED", 1_700_000_000_000, &[("result", text(state))]);
        let died = [("in_progress_expiration", number(1)), ("step:@saga", saga)];
        put(&table, record("any", "INPROGRESS", died)).await;
        let line = format!("{act} any");
        order(&table, &line)
            .await
            .refused(2, "No delivery would go on with its saga");
        order(&table, &format!("{line} --yes")).await.ended_with(0);
    }
}

/// A delivery would charge again, and what it is to undo would stay.
#[tokio::test]
async fn a_rerun_begins_no_saga_anew_that_is_half_undone() {
    let table = table().await;
    let state = r#"{"failure":{"kind":"Declined","message":"no"},"confirmed":["charge"]}"#;
    let confirmed = |result: &str| {
        let result = [("result", text(result))];
        step("CONFIRMED", 1_700_000_000_000, &result)
    };
    let own = [
        ("data", text(r#"{"kind":"operator","message":"no"}"#)),
        ("completed_at", number(1_700_000_000_000_u64)),
        ("step:@saga", confirmed(state)),
        ("step:charge", confirmed("1")),
    ];
    let ended = record("any", "FAILED", own);
    put(&table, ended.clone()).await;
    let file = Scratch::with("any");
    let again = "rerun --keys new --steps repeat";
    let (anew, listed) = (format!("{again} any"), format!("{again} --from {file}"));
    refused(order(&table, &anew), 2, "what is not undone stays").await;
    order(&table, &listed).await.refused(1, "by its id");
    ended_with(order(&table, "rerun --keys same --steps keep any"), 0).await;
    for (line, code) in [(&anew, 2), (&listed, 1)] {
        refused(order(&table, line), code, "its saga is being undone").await;
    }
    put(&table, ended).await;
    order(&table, &format!("{anew} --yes")).await.ended_with(0);
}

#[tokio::test]
async fn nothing_is_written_without_a_yes_or_in_a_dry_run() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let before = item(&table, &id).await;
    let asked = &format!(
        "in the table {table} of {} is stuck. Release? There is no terminal to ask at: add --yes",
        dynamodb_endpoint()
    );
    for (words, code, said) in [
        ("--reason why", 2, asked.as_str()),
        (
            "--reason why --dry-run",
            0,
            "would release: nothing was written",
        ),
        ("--yes", 2, "--reason"),
        ("--yes --reason ' '", 2, "give 1 to 500 characters"),
    ] {
        refused(on(&table, &format!("release {id} {words}")), code, said).await;
    }
    let keys = "aws_access_key_id = test\naws_secret_access_key = test\n";
    let broken = "[profile broken]\ncredential_process = false\n";
    let profiles = Scratch::with(format!("[profile other]\n{keys}{broken}"));
    let place = place(&table);
    let absent = format!("no profile `absent` in {profiles} or ~/.aws/credentials");
    // As by the AWS CLI, a profile that is named goes before the environment's keys.
    for (profile, code, said) in [
        ("other", 2, "(profile other) is stuck"),
        ("broken", 3, "credentials"),
        ("absent", 2, &absent),
    ] {
        let line = format!("release {id} --reason why --profile {profile} {place}");
        let mut release = command(&line);
        release.env("AWS_CONFIG_FILE", &*profiles);
        let output = release.output().await.unwrap();
        Said::of(&output).refused(code, said);
    }
    assert_eq!(item(&table, &id).await, before);
}

#[tokio::test]
async fn of_two_operators_at_once_one_ends_the_record() {
    let table = table().await;
    for round in 0..races() / 20 {
        let id = dead(&table, &format!("A-{round}")).await;
        let complete = format!("complete {id} --outcome '\"by hand\"'");
        let fail = format!("fail {id} --message 'by hand'");
        let (one, other) = tokio::join!(order(&table, &complete), order(&table, &fail));
        let mut codes = [one.code, other.code];
        codes.sort_unstable();
        // The later one meets what the earlier one left: by its version, or when it looks.
        assert_matches!(codes, [0, 2 | 4], "{one:?} {other:?}");
    }
}

#[tokio::test]
async fn of_a_record_that_has_expired_it_is_said_what_the_next_delivery_does() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    expire(&table, &id, 1_700_000_000).await;
    let explained = on(&table, &format!("explain {id}")).await;
    explained.refused(
        0,
        "the record has expired: a delivery would run the handler",
    );
    let before = item(&table, &id).await;
    let file = Scratch::with(&id);
    let nothing = "has expired: the next delivery runs the handler";
    for (line, code, refusal) in [
        (format!("complete {id} --outcome 1"), 2, nothing),
        (format!("fail {id} --message no"), 2, nothing),
        (format!("release {id}"), 2, nothing),
        (format!("rerun {id} --keys new"), 2, nothing),
        (
            format!("rerun --keys new --from {file}"),
            1,
            "the next delivery runs anyway",
        ),
    ] {
        order(&table, &line).await.refused(code, refusal);
    }
    assert_eq!(item(&table, &id).await, before);
    assert!(!deliver(&table, "A-17").await.unwrap().is_replayed());
}

#[tokio::test]
async fn of_an_act_on_a_record_that_has_expired_since_it_is_not_said_that_it_was_done() {
    let table = table().await;
    let nothing = "has expired: the next delivery runs the handler";
    for act in [
        "release",
        "complete --outcome 1",
        "fail --message no",
        "settle-step --failed charge",
    ] {
        let died = [
            ("in_progress_expiration", number(1)),
            ("step:charge", step("PENDING", 1_700_000_000_000, &[])),
        ];
        put(&table, record("any", "INPROGRESS", died)).await;
        let line = format!("{act} any");
        order(&table, &line).await.ended_with(0);
        order(&table, &line).await.refused(0, "\"written\": false");
        expire(&table, "any", 1_700_000_000).await;
        order(&table, &line).await.refused(2, nothing);
    }
    deliver(&table, "A-17").await.unwrap();
    let id = id(&table, "A-17");
    let rerun = format!("rerun {id} --keys new");
    order(&table, &rerun).await.ended_with(0);
    expire(&table, &id, 1_700_000_000).await;
    order(&table, &rerun).await.refused(2, nothing);
    let file = Scratch::with(&id);
    let listed = format!("rerun --keys new --from {file}");
    refused(order(&table, &listed), 1, "the next delivery runs anyway").await;
    // What was erased stays so.
    deliver(&table, "A-17").await.unwrap();
    let redact = format!("redact {id}");
    order(&table, &redact).await.ended_with(0);
    expire(&table, &id, 1_700_000_000).await;
    refused(order(&table, &redact), 0, "\"written\": false").await;
    // One that can't be understood expires, too.
    let expired = [("expiration", number(1_700_000_000))];
    put(&table, record("odd", "ODD", expired)).await;
    order(&table, "release odd").await.refused(2, nothing);
}
