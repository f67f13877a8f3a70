//! `list`: what it finds, what it says of the cost, and how it goes on after an end.

use std::process::Stdio;
use std::time::Duration;

use lambda_idempotency::testing::TestDynamoDb;
use lambda_idempotency::{Claim, Key};
use tokio::io::AsyncReadExt;

use super::{EVER, WHY, alive, dead, deliver, id, store};
use crate::support::{
    self, Scratch, Terminal, command, dynamodb_endpoint, ended_with, get, key, number, on, place,
    put, put_all, record, refused, run, size, table, table_with, text,
};

#[tokio::test]
async fn each_state_lists_its_records_alone() {
    let table = table().await;
    deliver(&table, "done").await.unwrap();
    let (stuck, alive) = (dead(&table, "stuck").await, alive(&table, "alive").await);
    let failed = dead(&table, "failed").await;
    let taken_over = dead(&table, "taken over").await;
    deliver(&table, "taken over").await.unwrap();
    ended_with(on(&table, &format!("fail {failed} --message no {WHY}")), 0).await;
    let all = on(&table, "list --yes").await.ended_with(1);
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
        ("--stuck", &[&stuck][..]),
        ("--failed", &[&failed]),
        ("--abandoned", &[&stuck]),
        ("--abandoned --quiet 2h", &[]),
        ("--stuck --failed", &[&stuck, &failed]),
        ("--older-than 30min", &[&stuck, &failed]),
        ("--attempts 2", &[&taken_over]),
        ("--attempts 3", &[]),
        ("--stuck --attempts 2", &[]),
        ("--operation refund", &[]),
        (
            "--operation charge --limit 5",
            &[&stuck, &failed, &alive, &taken_over, &id(&table, "done")],
        ),
    ] {
        let said = on(&table, &format!("list --yes --json {words}")).await;
        let mut expected: Vec<String> = expected.iter().map(|id| (*id).clone()).collect();
        expected.sort();
        assert_eq!(said.listed(), expected, "{words}");
        said.ended_with(i32::from(!expected.is_empty()));
    }
    refused(on(&table, "list --yes --limit 0"), 2, "--limit").await;
    on(&table, "list")
        .await
        .refused(2, "Go on? There is no terminal to ask at: add --yes");
}

/// Services share a table, and each has an operation of this name.
#[tokio::test]
async fn an_operation_is_that_of_the_namespace_that_is_given() {
    let table = table().await;
    deliver(&table, "A-17").await.unwrap();
    let refunds = support::engine(store(&table)).namespace("refunds");
    let refunds = refunds.build().unwrap();
    let handler = async |claim: Claim| Ok::<_, std::io::Error>(claim.attempt());
    let deliver_there = async || refunds.run(key("A-17"), None, handler).await.unwrap();
    deliver_there().await;
    let mine = id(&table, "A-17");
    let theirs = refunds.record_id(&key("A-17")).unwrap();
    let theirs = theirs.as_str().to_owned();
    for (namespace, listed) in [
        ("payments", &[&mine][..]),
        ("refunds", &[&theirs]),
        ("orders", &[]),
    ] {
        let list = format!("list --yes --operation charge --namespace {namespace}");
        let said = on(&table, &list).await;
        let said = said.ended_with(i32::from(!listed.is_empty()));
        assert_eq!(said.out.lines().count(), listed.len(), "{said:?}");
        assert!(listed.iter().all(|id| said.out.contains(*id)), "{said:?}");
    }
    let both = on(&table, "list --operation charge --yes").await;
    assert_eq!(both.ended_with(1).out.lines().count(), 2);
    // An id of a caller's own tells no namespace.
    let raw = Key::raw("charge", "an id of ours");
    refunds.run(raw, None, handler).await.unwrap();
    let list = "list --namespace payments --yes";
    let said = on(&table, list).await.ended_with(1);
    assert!(
        said.out.contains(&mine) && said.out.contains("an id of ours"),
        "{said:?}"
    );
    assert!(!said.out.contains(&theirs), "{said:?}");
    let rerun = format!("rerun --keys new --operation charge {EVER} {WHY}");
    on(&table, &rerun).await.refused(2, "--namespace");
    let rerun = format!("{rerun} --namespace payments --yes");
    let said = on(&table, &rerun).await.ended_with(0);
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
    let table = table_with(&["pk", "sk"]).await;
    let places = [("mine", "1"), ("theirs", "1"), ("mine", "16")];
    for (value, spread) in places {
        let store = store(&table).layout(|layout| {
            layout.composite_key("pk", value, "sk");
            layout.spread = spread.parse().unwrap();
        });
        let once = support::engine(store).build().unwrap();
        let token = format!("{value} {spread}");
        support::deliver(&once, &token).await.unwrap();
    }
    let keys = "--partition-key pk --sort-key sk";
    for (value, spread) in places {
        let layout = format!("{keys} --partition-value {value} --spread {spread}");
        let said = on(&table, &format!("list --yes --json {layout}")).await;
        let said = said.ended_with(1);
        let mine = id(&table, &format!("{value} {spread}"));
        assert!(said.json()["id"] == mine.as_str(), "{said:?}");
        assert!(
            said.err.contains("2 items have another key or partition"),
            "{said:?}"
        );
        let file = Scratch::with(&said.out);
        let rerun = format!("rerun --keys new --from {file} {layout} {WHY}");
        on(&table, &rerun).await.refused(0, &mine);
    }
    let words =
        "3 items have another key or partition value: look at --partition-value and --spread";
    let nobody = format!("{keys} --partition-value nobody");
    for layout in [&*nobody, ""] {
        let said = on(&table, &format!("list --yes {layout}")).await;
        said.refused(0, words);
    }
}

/// An id that is JSON of its own, or ends with a blank, names its own record and no other.
#[tokio::test]
async fn a_file_of_ids_is_read_in_one_form() {
    let table = table().await;
    let once = super::engine(&table);
    let runs = async |id: &str| {
        let handler = async |_claim: Claim| Ok::<_, std::io::Error>(17);
        let ran = once.run(Key::raw("charge", id), None, handler).await;
        !ran.unwrap().is_replayed()
    };
    let ids = ["A-17", r#"{"order":"A-17"}"#, "A-17 "];
    for id in ids {
        assert!(runs(id).await);
    }
    for (lines, why, given) in [
        (
            "{\"order\":\"A-17\"}\r\nA-17 \n\n",
            "an id on each line",
            [false, true, true],
        ),
        (
            "{\"id\":\"A-17\"}\n\n{\"id\":\"A-17 \"}",
            "as a list prints them",
            [true, false, true],
        ),
    ] {
        let file = Scratch::with(lines);
        let rerun = format!("rerun --keys new --from {file} --reason '{why}' --yes");
        on(&table, &rerun).await.ended_with(0);
        for (id, is_given) in ids.iter().zip(given) {
            assert_eq!(runs(id).await, is_given, "{id:?}, {why}");
        }
    }
    let entry = r#"{"id":"A-17"}"#;
    for lines in [format!("{entry}\n\nA-17 "), format!("A-17\n\n{entry}")] {
        let file = Scratch::with(lines);
        on(&table, &format!("rerun --keys new --from {file} {WHY}"))
            .await
            .refused(2, "line 3: give ids alone");
    }
}

/// The times take what was completed at the first of them or later, and before the second. A card that was
/// declined would be charged under new keys.
#[tokio::test]
async fn a_rerun_takes_what_was_completed_within_the_times() {
    let table = table().await;
    let id = |second: u32| format!("payments#charge#{second:064x}");
    for (second, status) in [
        (9, "COMPLETED"),
        (10, "COMPLETED"),
        (15, "FAILED"),
        (19, "COMPLETED"),
        (20, "COMPLETED"),
    ] {
        let completed_at = 1_700_000_000_000 + u64::from(second) * 1_000;
        let outcome = [("data", text("1")), ("completed_at", number(completed_at))];
        put(&table, record(id(second), status, outcome)).await;
    }
    let rerun = async |keys: &str, why: &str, since: &str, before: &str, last: &str| {
        let which = "--operation charge --namespace payments";
        let times = format!("--completed-since {since} --completed-before {before}");
        let rerun = format!("rerun --keys {keys} --reason '{why}' --yes {last}");
        on(&table, &format!("{rerun} {which} {times}")).await
    };
    let (first, end) = ("1700000010", "1700000020");
    for last in ["--yes --dry-run", "--yes"] {
        let said = rerun("new", "charged 0", first, end, last).await;
        let said = said.ended_with(0);
        let taken = |second: &u32| said.out.contains(&id(*second));
        let taken: Vec<u32> = (9..=20).filter(taken).collect();
        assert_eq!(taken, [10, 19], "{said:?}");
    }
    rerun("new", "charged 0", first, end, "--yes")
        .await
        .refused(0, "Done before, for this reason: 2 records");
    // For another reason, or on other terms, nothing was done.
    for (keys, why) in [("new", "charged twice"), ("same", "charged 0")] {
        rerun(keys, why, first, end, "--yes")
            .await
            .refused(2, "there is no record of `charge` in the namespace");
    }
    rerun("new", "charged 0", end, end, "--yes")
        .await
        .refused(2, "a later time than --completed-since");
    // The last question, without its --yes.
    let asked = &format!(
        "1 record in the table {table} of {} that were completed from 2023-11-14T22:13:40Z until 2023-11-14T22:13:41Z",
        dynamodb_endpoint()
    );
    refused(rerun("new", "charged 0", end, "1700000021", ""), 2, asked).await;
    assert_eq!(get(&table, &id(20)).await["state"], "completed");
    assert_eq!(get(&table, &id(19)).await["state"], "released");
    assert_eq!(get(&table, &id(15)).await["state"], "failed");
}

/// Puts released records, as many as this and each larger by `padding`.
async fn fill(table: &str, count: usize, padding: usize) {
    let padding = "x".repeat(padding);
    let released = |count: usize| {
        let id = format!("payments#charge#{count:064x}");
        let own = [
            ("in_progress_expiration", number(0)),
            ("started_at", number(1_700_000_000_000_u64)),
            ("padding", text(&padding)),
        ];
        record(id, "INPROGRESS", own)
    };
    put_all(table, (0..count).map(released)).await;
}

#[tokio::test]
async fn all_records_are_listed_once_each_also_after_an_end_in_between() {
    let table = table().await;
    let count = size("RECORDS", 4_000);
    // Ten megabytes, so that each segment has several pages.
    fill(&table, count, 10_000_000 / count).await;
    let file = Scratch::new();
    let list = format!("list --abandoned --yes --resume {file}");

    let mut first = command(&format!("{list} {}", place(&table)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = first.stdout.take().unwrap();
    let mut text = vec![0; 4_096];
    out.read_exact(&mut text).await.unwrap();
    // Once a page was listed and its place is kept.
    while !file.exists() {
        let read = tokio::time::timeout(Duration::from_millis(50), out.read(&mut text)).await;
        assert_ne!(read.map_or(1, Result::unwrap), 0, "it ended");
    }
    first.kill().await.unwrap();

    let kept = std::fs::read(&*file).unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
    let read = kept["read"].as_u64().unwrap();
    assert!(0 < read && read < count as u64, "{read}");
    let rest = on(&table, &list).await.ended_with(1);
    let rest_listed = u64::try_from(rest.out.lines().count()).unwrap();
    assert_eq!(read + rest_listed, count as u64);
    let all = format!("of {count} records");
    assert!(rest.err.contains(&all), "{}", rest.err);
    let other = support::table().await;
    on(&other, &list).await.refused(2, "give another file");
}

#[tokio::test]
async fn a_list_is_gone_on_with_in_its_own_account_alone() {
    let (table, elsewhere) = (table().await, TestDynamoDb::start().await.unwrap());
    fill(&table, 3, 0).await;
    elsewhere.create_table(&table, &["id"]).await.unwrap();
    let file = Scratch::new();
    let list = format!("list --yes --limit 1 --resume {file}");
    on(&table, &list).await.ended_with(1);
    let endpoint = elsewhere.endpoint();
    run(&format!("{list} --table {table} --endpoint-url {endpoint}"))
        .await
        .refused(2, "another table of this name");
}

/// Rounds with any limit, each in its own process, together list each record once.
#[tokio::test]
async fn rounds_with_a_limit_list_all_records_once_each() {
    let table = table().await;
    fill(&table, 43, 0).await;
    for limit in [1, 3, 10, 43, 44] {
        let file = Scratch::new();
        let list = format!("list --yes --json --resume {file}");
        let round = format!("{list} --abandoned --limit {limit}");
        let mut ids = Vec::new();
        loop {
            let said = on(&table, &round).await;
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
        on(&table, &format!("{list} --failed"))
            .await
            .refused(2, "for other records");
    }
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_it_quietly() {
    let table = table().await;
    // More than a pipe holds.
    fill(&table, 2_000, 0).await;
    let mut child = command(&format!("list --yes {}", place(&table)))
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
    assert_eq!(said.status.code(), Some(1), "{words}");
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

/// An id has no more than 255 bytes of its operation's name, less where a character would be cut.
#[tokio::test]
async fn a_rerun_of_an_operation_whose_ids_another_may_have_is_refused() {
    let table = table().await;
    for (bytes, words) in [
        (251, "there is no record of"),
        (252, "give the ids by --from"),
        (300, "give the ids by --from"),
    ] {
        let operation = "o".repeat(bytes);
        let which = format!("--operation {operation} --namespace payments {EVER}");
        let rerun = format!("rerun --keys new {which} {WHY} --yes");
        on(&table, &rerun).await.refused(2, words);
    }
}
