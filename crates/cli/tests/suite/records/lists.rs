//! `list`: what it finds, what it says of the cost, and how it goes on after an end.

use std::process::Stdio;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::testing::TestDynamoDb;
use lambda_idempotency::{Claim, Idempotency, Key};
use tokio::io::AsyncReadExt;

use super::{alive, dead, deliver, id, key};
use crate::support::{
    PATIENCE, Terminal, command, dynamodb, dynamodb_endpoint, on, run, size, table,
};

#[tokio::test]
async fn each_state_lists_its_records_alone() {
    let table = table().await;
    deliver(&table, "done").await.unwrap();
    let (stuck, alive) = (dead(&table, "stuck").await, alive(&table, "alive").await);
    let failed = dead(&table, "failed").await;
    let taken_over = dead(&table, "taken over").await;
    deliver(&table, "taken over").await.unwrap();
    let fail = [
        "fail",
        &failed,
        "--message",
        "no",
        "--reason",
        "ticket 17",
        "--yes",
    ];
    on(&table, &fail).await.ended_with(0);
    let all = on(&table, &["list", "--yes"]).await.ended_with(1);
    assert_eq!(all.out.lines().count(), 5, "{all:?}");
    assert!(
        all.out.contains(&format!("{taken_over}  attempt 2\n")),
        "{all:?}"
    );
    assert!(
        all.err.contains("read units") && all.err.contains("5 of 5 records"),
        "{all:?}"
    );
    for (words, expected) in [
        (&["--stuck"][..], &[&stuck][..]),
        (&["--failed"], &[&failed]),
        (&["--abandoned"], &[&stuck]),
        (&["--abandoned", "--quiet", "2h"], &[]),
        (&["--stuck", "--failed"], &[&stuck, &failed]),
        (&["--older-than", "30min"], &[&stuck, &failed]),
        (&["--attempts", "2"], &[&taken_over]),
        (&["--attempts", "3"], &[]),
        (&["--stuck", "--attempts", "2"], &[]),
        (&["--operation", "refund"], &[]),
        (
            &["--operation", "charge", "--limit", "5"],
            &[&stuck, &failed, &alive, &taken_over, &id(&table, "done")],
        ),
    ] {
        let said = on(&table, &[&["list", "--yes", "--json"], words].concat()).await;
        let mut ids: Vec<String> = said
            .out
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["id"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        let mut expected: Vec<String> = expected.iter().map(|id| (*id).clone()).collect();
        ids.sort();
        expected.sort();
        assert_eq!(ids, expected, "{words:?}");
        said.ended_with(i32::from(!expected.is_empty()));
    }
    on(&table, &["list", "--yes", "--limit", "0"])
        .await
        .refused(2, "--limit");
    on(&table, &["list"])
        .await
        .refused(2, "Go on? There is no terminal to ask at: add --yes");
}

/// Services share a table, and each has an operation of this name.
#[tokio::test]
async fn an_operation_is_that_of_the_namespace_that_is_given() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let store = DynamoDbStore::new(dynamodb().client(), &table);
    let refunds = Idempotency::builder(store).namespace("refunds");
    let refunds = refunds
        .settings(|settings| settings.store_timeout = PATIENCE)
        .build()
        .unwrap();
    let handler = async |claim: Claim| Ok::<_, std::io::Error>(claim.attempt());
    let deliver_there = async || refunds.run(key("A-17"), None, handler).await.unwrap();
    deliver_there().await;
    let mine = id(&table, "A-17");
    let theirs = refunds.record_id(&key("A-17")).unwrap();
    let theirs = theirs.as_str().to_owned();
    let filter =
        |namespace: &'static str| ["--operation", "charge", "--namespace", namespace, "--yes"];
    for (namespace, listed) in [
        ("payments", &[&mine][..]),
        ("refunds", &[&theirs]),
        ("orders", &[]),
    ] {
        let words: Vec<_> = ["list"].into_iter().chain(filter(namespace)).collect();
        let said = on(&table, &words)
            .await
            .ended_with(i32::from(!listed.is_empty()));
        assert_eq!(said.out.lines().count(), listed.len(), "{said:?}");
        assert!(listed.iter().all(|id| said.out.contains(*id)), "{said:?}");
    }
    let both = on(&table, &["list", "--operation", "charge", "--yes"]).await;
    assert_eq!(both.ended_with(1).out.lines().count(), 2);
    // An id of a caller's own tells no namespace.
    let raw = Key::raw("charge", "an id of ours");
    refunds.run(raw, None, handler).await.unwrap();
    let list = ["list", "--namespace", "payments", "--yes"];
    let said = on(&table, &list).await.ended_with(1);
    assert!(
        said.out.contains(&mine) && said.out.contains("an id of ours"),
        "{said:?}"
    );
    assert!(!said.out.contains(&theirs), "{said:?}");
    let rerun = [
        "rerun",
        "--completed-since",
        "2020-01-01T00:00:00Z",
        "--completed-before",
        "2100-01-01T00:00:00Z",
        "--keys",
        "new",
        "--reason",
        "charged 0",
        "--yes",
    ];
    let all = rerun.into_iter().chain(["--operation", "charge"]);
    let said = on(&table, &all.collect::<Vec<_>>()).await.ended_with(2);
    assert!(said.err.contains("--namespace"), "{said:?}");
    let words: Vec<_> = rerun.into_iter().chain(filter("payments")).collect();
    let said = on(&table, &words).await.ended_with(0);
    assert!(
        said.out.contains(&mine) && !said.out.contains(&theirs),
        "{said:?}"
    );
    assert!(deliver_there().await.is_replayed());
    assert!(!deliver(&table, "A-17").await.unwrap().is_replayed());
}

/// Services share a table with two keys, each under its own partition value.
#[tokio::test]
async fn records_under_another_partition_value_are_not_listed() {
    let table = format!("cli-{:016x}", fastrand::u64(..));
    dynamodb()
        .create_table(&table, &["pk", "sk"])
        .await
        .unwrap();
    let places = [("mine", "1"), ("theirs", "1"), ("mine", "16")];
    for (value, spread) in places {
        let store = DynamoDbStore::new(dynamodb().client(), &table).layout(|layout| {
            layout.composite_key("pk", value, "sk");
            layout.spread = spread.parse().unwrap();
        });
        let once = Idempotency::builder(store).namespace("payments");
        let once = once.settings(|settings| settings.store_timeout = PATIENCE);
        let handler = async |_claim: Claim| Ok::<_, std::io::Error>(17);
        let token = format!("{value} {spread}");
        let ran = once.build().unwrap().run(key(&token), None, handler).await;
        ran.unwrap();
    }
    for (value, spread) in places {
        let layout = ["--partition-key", "pk", "--sort-key", "sk"];
        let place = ["--partition-value", value, "--spread", spread];
        let list = [&["list", "--yes", "--json"][..], &layout, &place].concat();
        let said = on(&table, &list).await.ended_with(1);
        let mine = id(&table, &format!("{value} {spread}"));
        assert!(said.json()["id"] == mine.as_str(), "{said:?}");
        assert!(
            said.err.contains("2 items have another key or partition"),
            "{said:?}"
        );
        let file = std::env::temp_dir().join(format!("{table}.{value}.{spread}"));
        std::fs::write(&file, &said.out).unwrap();
        let from = ["rerun", "--keys", "new", "--from", file.to_str().unwrap()];
        let why = ["--reason", "charged 0", "--yes"];
        let said = on(&table, &[&from[..], &layout, &place, &why].concat()).await;
        said.refused(0, &mine);
        std::fs::remove_file(file).unwrap();
    }
    let words =
        "3 items have another key or partition value: look at --partition-value and --spread";
    let keys = ["--partition-key", "pk", "--sort-key", "sk"];
    let nobody = [&keys[..], &["--partition-value", "nobody"]].concat();
    for layout in [&nobody[..], &[]] {
        let said = on(&table, &[&["list", "--yes"], layout].concat()).await;
        said.refused(0, words);
    }
}

/// An id that is JSON itself, or ends with a blank, names its own record and no other.
#[tokio::test]
async fn a_file_of_ids_is_read_in_one_form() {
    let table = table().await;
    let once = super::engine(&table);
    let runs = async |id: &str| {
        let handler = async |_claim: Claim| Ok::<_, std::io::Error>(17);
        let ran = once.run(Key::raw("charge", id), None, handler).await;
        !ran.unwrap().is_replayed()
    };
    let ids = ["A-17", r#"{"id":"A-17"}"#, "A-17 "];
    for id in ids {
        assert!(runs(id).await);
    }
    let file = std::env::temp_dir().join(format!("{table}.ids"));
    let from = ["rerun", "--keys", "new", "--from", file.to_str().unwrap()];
    for (lines, why, given) in [
        (
            "{\"id\":\"A-17\"}\r\nA-17 \n\n",
            "an id on each line",
            [false, true, true],
        ),
        (
            "{\"id\":\"A-17\"}\n\n{\"id\":\"A-17 \"}",
            "as a list prints them",
            [true, false, true],
        ),
    ] {
        std::fs::write(&file, lines).unwrap();
        let words = [&from[..], &["--reason", why, "--yes"]].concat();
        on(&table, &words).await.ended_with(0);
        for (id, is_given) in ids.iter().zip(given) {
            assert_eq!(runs(id).await, is_given, "{id:?}, {why}");
        }
    }
    std::fs::remove_file(&file).unwrap();
}

/// The times take what became final at the first of them or later, and before the second.
#[tokio::test]
async fn a_rerun_takes_what_became_final_within_the_times() {
    let table = table().await;
    let id = |second: u32| format!("payments#charge#{second:064x}");
    for (second, status) in [
        (9, "COMPLETED"),
        (10, "COMPLETED"),
        (15, "FAILED"),
        (19, "COMPLETED"),
        (20, "COMPLETED"),
    ] {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let number = |number: u64| AttributeValue::N(number.to_string());
        let put = dynamodb().client().put_item().table_name(&table);
        put.item("id", text(&id(second)))
            .item("status", text(status))
            .item("owner", text("0f"))
            .item("attempt", number(1))
            .item("data", text("1"))
            .item(
                "completed_at",
                number(1_700_000_000_000 + u64::from(second) * 1_000),
            )
            .item("expiration", number(4_000_000_000))
            .item("v", number(1))
            .send()
            .await
            .unwrap();
    }
    let which = ["--operation", "charge", "--namespace", "payments"];
    let times = [
        "--completed-since",
        "1700000010",
        "--completed-before",
        "1700000020",
    ];
    let rerun = [
        "rerun",
        "--keys",
        "new",
        "--reason",
        "charged 0",
        "--yes",
        "--yes",
    ];
    let words = [&rerun[..], &which, &times].concat();
    for dry_run in [&["--dry-run"][..], &[]] {
        let said = on(&table, &[&words[..], dry_run].concat()).await;
        let said = said.ended_with(0);
        let taken = |second: &u32| said.out.contains(&id(*second));
        let taken: Vec<u32> = (9..=20).filter(taken).collect();
        assert_eq!(taken, [10, 15, 19], "{said:?}");
    }
    on(&table, &words)
        .await
        .refused(0, "Done before, for this reason: 3 records");
    // For another reason, or on other terms, nothing was done.
    let rerun_with = |keys: &'static str, why: &'static str| {
        ["rerun", "--keys", keys, "--reason", why, "--yes", "--yes"]
    };
    for (keys, why) in [("new", "charged twice"), ("same", "charged 0")] {
        on(
            &table,
            &[&rerun_with(keys, why)[..], &which, &times].concat(),
        )
        .await
        .refused(2, "there is no record of `charge` in the namespace");
    }
    let between = |since: &'static str, before: &'static str| {
        let times = ["--completed-since", since, "--completed-before", before];
        [&which[..], &times].concat()
    };
    let nothing = between("1700000020", "1700000020");
    on(&table, &[&rerun[..], &nothing[..]].concat())
        .await
        .refused(2, "a later time than --completed-since");
    // The last question, without its --yes.
    let one = between("1700000020", "1700000021");
    let asked = "1 record that became final from 2023-11-14T22:13:40Z until 2023-11-14T22:13:41Z";
    on(&table, &[&rerun[..6], &one[..]].concat())
        .await
        .refused(2, asked);
    let left = on(&table, &["get", &id(20), "--json"]).await.json();
    assert_eq!(left["state"], "completed");
    let given = on(&table, &["get", &id(19), "--json"]).await.json();
    assert_eq!(given["state"], "released");
}

/// Puts released records, as many as this and each larger by `padding`, in batches side by side.
async fn fill(table: &str, count: usize, padding: usize) {
    let padding = "x".repeat(padding);
    let put = |number: usize| {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let count = |number: i64| AttributeValue::N(number.to_string());
        let item = [
            ("id", text(&format!("payments#charge#{number:064x}"))),
            ("status", text("INPROGRESS")),
            ("owner", text("00112233445566778899aabbccddeeff")),
            ("attempt", count(1)),
            ("in_progress_expiration", count(0)),
            ("expiration", count(4_000_000_000)),
            ("started_at", count(1_700_000_000_000)),
            ("v", count(1)),
            ("padding", text(&padding)),
        ];
        let put = PutRequest::builder();
        let put = item
            .into_iter()
            .fold(put, |put, (name, value)| put.item(name, value));
        WriteRequest::builder()
            .put_request(put.build().unwrap())
            .build()
    };
    let client = dynamodb().client();
    let batches = (0..count).step_by(25).map(|first| {
        let requests: Vec<_> = (first..(first + 25).min(count)).map(put).collect();
        let (client, table) = (client.clone(), table.to_owned());
        async move {
            let write = client.batch_write_item().request_items(table, requests);
            let left = write.send().await.unwrap().unprocessed_items;
            assert!(left.is_none_or(|left| left.is_empty()));
        }
    });
    let batches = futures_util::stream::iter(batches);
    futures_util::StreamExt::for_each_concurrent(batches, 8, |batch| batch).await;
}

#[tokio::test]
async fn all_records_are_listed_once_each_also_after_an_end_in_between() {
    let table = table().await;
    let count = size("RECORDS", 4_000);
    // Ten megabytes, so that each segment has several pages.
    fill(&table, count, 10_000_000 / count).await;
    let endpoint = dynamodb_endpoint();
    let file = std::env::temp_dir().join(format!("{table}.scan"));
    let file = file.to_str().unwrap();
    let words = [
        "list",
        "--abandoned",
        "--yes",
        "--resume",
        file,
        "--table",
        &table,
        "--endpoint-url",
        &endpoint,
    ];

    let mut first = command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = first.stdout.take().unwrap();
    let mut text = vec![0; 4_096];
    out.read_exact(&mut text).await.unwrap();
    // Once a page was listed and its place is kept.
    while !std::path::Path::new(file).exists() {
        let read = tokio::time::timeout(Duration::from_millis(50), out.read(&mut text)).await;
        assert_ne!(read.map_or(1, Result::unwrap), 0, "it ended");
    }
    first.kill().await.unwrap();

    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let read = kept["read"].as_u64().unwrap();
    assert!(0 < read && read < count as u64, "{read}");
    let rest = on(&table, &words[..5]).await.ended_with(1);
    let rest_listed = u64::try_from(rest.out.lines().count()).unwrap();
    assert_eq!(read + rest_listed, count as u64);
    let all = format!("of {count} records");
    assert!(rest.err.contains(&all), "{}", rest.err);
    let other = super::super::support::table().await;
    on(&other, &words[..5])
        .await
        .refused(2, "give another file");
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn a_list_is_gone_on_with_in_its_own_account_alone() {
    let (table, elsewhere) = (table().await, TestDynamoDb::start().await.unwrap());
    fill(&table, 3, 0).await;
    elsewhere.create_table(&table, &["id"]).await.unwrap();
    let file = std::env::temp_dir().join(format!("{table}.elsewhere"));
    let file = file.to_str().unwrap();
    let list = ["list", "--yes", "--limit", "1", "--resume", file];
    on(&table, &list).await.ended_with(1);
    let endpoint = elsewhere.endpoint();
    let place = ["--table", &table, "--endpoint-url", endpoint];
    run(&[&list[..], &place].concat())
        .await
        .refused(2, "another table of this name");
    std::fs::remove_file(file).unwrap();
}

/// Rounds with any limit, each in its own process, together list each record once.
#[tokio::test]
async fn rounds_with_a_limit_list_all_records_once_each() {
    let table = table().await;
    fill(&table, 43, 0).await;
    for limit in [1, 3, 10, 43, 44] {
        let file = std::env::temp_dir().join(format!("{table}.{limit}"));
        let (limit, file) = (limit.to_string(), file.to_str().unwrap().to_owned());
        let words = [
            "list",
            "--abandoned",
            "--yes",
            "--json",
            "--limit",
            &limit,
            "--resume",
            &file,
        ];
        let mut ids = Vec::new();
        loop {
            let said = on(&table, &words).await;
            let listed = said.out.lines().map(str::to_owned);
            let before = ids.len();
            ids.extend(listed);
            if said.err.contains("The list is complete") {
                break;
            }
            assert!(ids.len() > before, "{said:?}");
        }
        assert_eq!(ids.len(), 43, "{limit}");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 43, "{limit}");
        on(
            &table,
            &[&words[..4], &["--resume", &file, "--failed"]].concat(),
        )
        .await
        .refused(2, "for other records");
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_it_quietly() {
    let table = table().await;
    // More than a pipe holds.
    fill(&table, 2_000, 0).await;
    let endpoint = dynamodb_endpoint();
    let words = [
        "list",
        "--yes",
        "--table",
        &table,
        "--endpoint-url",
        &endpoint,
    ];
    let mut child = command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut text = [0; 1_024];
    out.read_exact(&mut text).await.unwrap();
    drop(out);
    let said = child.wait_with_output().await.unwrap();
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(0), "{words}");
    assert!(
        !words.contains("error") && !words.contains("panic"),
        "{words}"
    );
}

#[tokio::test]
async fn at_a_terminal_a_scan_shows_how_far_it_is() {
    let table = table().await;
    fill(&table, 500, 0).await;
    let terminal = Terminal::start(&table, "list --yes --operation refund");
    let (text, code) = terminal.end().await;
    assert!(
        text.contains("of about 500 records") && code == 0,
        "{code}: {text:?}"
    );
}
