//! `explain` says what a delivery is told, and a delivery is told so.

use lambda_idempotency::{Error, Outcome};
use serde_json::Value;

use super::{alive, dead, deliver, id};
use crate::support::{on, table};

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
