//! `explain` says what a delivery is told, and a delivery is told so.

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_idempotency::{Error, Outcome};
use serde_json::Value;

use super::{alive, dead, deliver, id};
use crate::support::{dynamodb, on, table};

async fn explain(table: &str, words: &[&str]) -> Value {
    let said = on(table, &[&["explain", "--json"], words].concat()).await;
    let explained = said.json();
    let code = i32::from(explained["needs_person"].as_bool().unwrap());
    said.ended_with(code);
    explained
}

#[tokio::test]
async fn a_delivery_is_told_what_was_explained() {
    let table = table().await;
    let done = id(&table, "done");
    assert_eq!(explain(&table, &[&done]).await["answer"], "runs");
    assert!(matches!(
        deliver(&table, "done").await,
        Ok(Outcome::Executed(_))
    ));
    assert_eq!(explain(&table, &[&done]).await["answer"], "replayed");
    assert!(deliver(&table, "done").await.unwrap().is_replayed());

    let alive = alive(&table, "alive").await;
    let explained = explain(&table, &[&alive]).await;
    assert_eq!(explained["answer"], "in_flight");
    assert!(
        explained["words"]
            .as_str()
            .unwrap()
            .contains("*in flight* until 20")
    );
    assert!(matches!(
        deliver(&table, "alive").await,
        Err(Error::InFlight { .. })
    ));

    let dead = dead(&table, "dead").await;
    let interrupt = ["--crashed", "interrupt"];
    assert_eq!(
        explain(&table, &[&[dead.as_str()], &interrupt[..]].concat()).await["answer"],
        "interrupted"
    );
    assert_eq!(
        explain(&table, &[&dead, "--max-attempts", "1"]).await["answer"],
        "exhausted"
    );
    let explained = explain(&table, &[&dead]).await;
    assert_eq!(explained["answer"], "runs_again");
    assert!(
        explained["words"]
            .as_str()
            .unwrap()
            .contains("as attempt 2")
    );
    assert_eq!(
        deliver(&table, "dead").await.unwrap(),
        Outcome::Executed("receipt of attempt 2".to_owned())
    );
}

#[tokio::test]
async fn another_time_may_be_asked_for() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let explained = explain(
        &table,
        &[&id(&table, "A-17"), "--at", "2090-01-01T00:00:00Z"],
    )
    .await;
    assert_eq!(explained["answer"], "runs");
    assert_eq!(explained["record"]["state"], "expired");
    assert_eq!(explained["at"], "2090-01-01T00:00:00Z");
}

#[tokio::test]
async fn the_commands_that_are_named_do_what_is_said() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let explained = explain(&table, &[&id, "--crashed", "interrupt"]).await;
    let commands = explained["safe"].as_array().unwrap();
    assert_eq!(commands.len(), 3, "{explained}");
    let release = commands[0]["command"].as_str().unwrap();
    let words = release.replace("WHY", "'ticket 17'").replace('\'', "");
    let words: Vec<&str> = words.split(' ').skip(1).collect();
    // The reason is two words without its quotes.
    let (reason, words) = (words[3..].join(" "), &words[..3]);
    on(&table, &[words, &[reason.as_str(), "--yes"]].concat())
        .await
        .ended_with(0);
}

/// Each name is one word, whatever it has in it.
#[tokio::test]
async fn a_shell_takes_the_commands_that_are_named_as_they_are_meant() {
    let table = table().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let number = |number: &str| AttributeValue::N(number.to_owned());
    let names = [
        "charge",
        "it's",
        "a  b",
        "-x",
        "$(date)`date`\\",
        "a\nb\u{1b}[31m\u{9b}'",
    ];
    for name in names {
        let id = format!("payments#charge {name}#0f");
        let step = [
            ("state", text("PENDING")),
            ("revision", number("1")),
            ("tries", number("1")),
            ("at", number("1700000000000")),
        ];
        let step = step.map(|(name, value)| (name.to_owned(), value));
        let put = dynamodb().client().put_item().table_name(&table);
        put.item("id", text(&id))
            .item("status", text("INPROGRESS"))
            .item("owner", text("0f"))
            .item("attempt", number("1"))
            .item("in_progress_expiration", number("0"))
            .item("last_error", text("interrupted step"))
            .item("expiration", number("4000000000"))
            .item("started_at", number("1700000000000"))
            .item(format!("step:{name}"), AttributeValue::M(step.into()))
            .item("v", number("1"))
            .send()
            .await
            .unwrap();
        let explained = explain(&table, &[&id, "--crashed", "interrupt"]).await;
        let commands = explained["safe"].as_array().unwrap();
        assert_eq!(commands.len(), 2, "{explained}");
        for (command, flag) in commands.iter().zip(["--confirmed", "--failed"]) {
            let command = command["command"].as_str().unwrap();
            let line = format!("idempotency() {{ printf '%s\\0' \"$@\"; }}\n{command}");
            let mut shell = tokio::process::Command::new("bash");
            let taken = shell.args(["-c", &line]).output().await.unwrap();
            let taken = String::from_utf8(taken.stdout).unwrap();
            let words: Vec<&str> = taken.split('\0').collect();
            assert_eq!(words[..4], ["settle-step", &id, flag, name], "{command}");
            assert!(!command.contains(char::is_control), "{command:?}");
        }
    }
}

/// The table's clock is the true one.
#[tokio::test]
async fn a_clock_that_is_ahead_makes_no_attempt_look_dead() {
    let table = super::super::support::table().await;
    let id = super::alive(&table, "A-17").await;
    let library =
        std::env::var("FAKETIME_LIBRARY").expect("run it by `scripts/with faketime -- …`");
    let endpoint = crate::support::dynamodb_endpoint();
    for words in [
        &["release", &id, "--reason", "why", "--yes"][..],
        &["explain", &id],
    ] {
        let place = ["--endpoint-url", &endpoint, "--table", &table];
        let mut ahead = crate::support::command(&[words, &place].concat());
        ahead
            .env("LD_PRELOAD", &library)
            .env("FAKETIME", "+20m")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        let said = crate::support::Said::of(&ahead.output().await.unwrap());
        let (code, expected) = match words[0] {
            "release" => (2, "an attempt may still run"),
            _ => (0, "*in flight*"),
        };
        assert!(said.err.contains("ahead of the store's"), "{said:?}");
        said.refused(code, expected);
    }
}

#[tokio::test]
async fn the_rules_are_said_and_those_that_are_assumed() {
    let table = super::super::support::table().await;
    let id = super::dead(&table, "A-17").await;
    let assumed = on(&table, &["explain", &id]).await.ended_with(0);
    assert!(
        assumed.out.contains("--crashed run-again (assumed)"),
        "{assumed:?}"
    );
    assert!(
        assumed.out.contains("wait for a person: give --crashed"),
        "{assumed:?}"
    );
    let given = on(&table, &["explain", &id, "--crashed", "interrupt"]).await;
    let given = given.ended_with(1);
    assert!(
        given.out.contains("--crashed interrupt, no --max-attempts"),
        "{given:?}"
    );
}
