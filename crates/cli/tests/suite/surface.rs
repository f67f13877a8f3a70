//! The completions, manual pages, colours and questions of the command line.

use serde_json::json;

use crate::records::{dead, deliver};
use crate::support::{Said, Scratch, Terminal, command, get, on, refused, run, table};

#[tokio::test]
async fn each_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        refused(run(&format!("completions {shell}")), 0, "settle-step").await;
    }
    refused(run("completions csh"), 2, "[possible values: bash").await;
}

#[tokio::test]
async fn each_command_has_a_manual_page() {
    let folder = Scratch::folder();
    run(&format!("man {folder}")).await.ended_with(0);
    let pages: Vec<_> = std::fs::read_dir(&*folder).unwrap().collect();
    assert!(pages.len() > 10, "{pages:?}");
    let page = std::fs::read_to_string(folder.join("idempotency-release.1")).unwrap();
    assert!(page.contains("while\\-live"), "{page}");
    refused(run("man /nonexistent/folder"), 2, "/nonexistent/folder").await;
}

#[tokio::test]
async fn colours_are_for_terminals() {
    let said = run("get any").await;
    assert!(!said.err.contains('\u{1b}'), "{said:?}");
}

#[tokio::test]
async fn at_a_terminal_it_asks_and_anything_but_yes_is_no() {
    let table = table().await;
    for (answer, words, code) in [("yes", "0 of 0 records", 0), ("y", "not agreed to", 2)] {
        let mut terminal = Terminal::start(&table, "list");
        terminal.wait_for("Type `yes`").await;
        terminal.type_line(answer).await;
        let (text, ended_with) = terminal.end().await;
        assert!(
            text.contains(words) && ended_with == code,
            "{answer}: {ended_with}: {text}"
        );
        assert!(text.contains('\u{1b}'), "no colour on a terminal: {text:?}");
    }
}

#[tokio::test]
async fn a_question_that_nobody_sees_is_not_waited_for() {
    let table = table().await;
    let unseen = Scratch::new();
    let terminal = Terminal::start(&table, &format!("list 2>{unseen}"));
    let (_, code) = terminal.end().await;
    let words = std::fs::read_to_string(&*unseen).unwrap();
    assert!(
        words.contains("There is no terminal to ask at") && code == 2,
        "{code}: {words}"
    );
}

#[tokio::test]
async fn a_record_that_moves_while_the_operator_thinks_is_left_alone() {
    let table = table().await;
    let id = dead(&table, "A-17").await;
    let words = format!("release '{id}' --reason 'ticket 17' --by bob");
    let mut terminal = Terminal::start(&table, &words);
    terminal.wait_for("Release?").await;
    // Meanwhile the message is delivered again.
    assert!(!deliver(&table, "A-17").await.unwrap().is_replayed());
    terminal.type_line("yes").await;
    let (text, code) = terminal.end().await;
    assert!(
        text.contains("the record moved after it was looked at") && code == 4,
        "{code}: {text}"
    );
    let left = get(&table, &id).await;
    assert_eq!(
        (&left["state"], &left["acts"]),
        (&json!("completed"), &json!([]))
    );
}

/// A script's variable that isn't set: in another namespace and table, nothing is found.
#[tokio::test]
async fn a_name_that_is_empty_is_refused() {
    for (variable, flag) in [
        ("IDEMPOTENCY_NAMESPACE", "namespace"),
        ("IDEMPOTENCY_TABLE", "table"),
    ] {
        let mut list = command("list --stuck --yes");
        let said = Said::of(&list.env(variable, "").output().await.unwrap());
        said.refused(2, flag);
    }
    for flag in [
        "--table",
        "--namespace",
        "--region",
        "--profile",
        "--endpoint-url",
        "--partition-key",
        "--operation",
    ] {
        run(&format!("list --yes {flag} ''")).await.refused(2, flag);
    }
    let long = "n".repeat(256);
    for namespace in ["a#b", "a\nb", &long] {
        run(&format!("list --yes --namespace '{namespace}'"))
            .await
            .refused(2, "without `#` and control characters");
    }
}

/// A script tries again where a service failed.
#[tokio::test]
async fn an_address_that_no_server_can_have_is_a_wrong_command() {
    for url in [
        "mysql://localhost/shop",
        "postgres://127.0.0.1:none/shop",
        "redis://127.0.0.1:none",
    ] {
        run(&format!("get any --store {url}"))
            .await
            .refused(2, "--store");
    }
}

/// Each has a flag that the others leave no use for.
#[tokio::test]
async fn a_flag_that_would_be_ignored_is_refused() {
    let table = table().await;
    let by_hash = &format!("get --hash {} --yes", "0f".repeat(32));
    let rerun = "rerun --keys new --reason why --yes";
    let by_id = &format!("{rerun} any");
    let by_file = &format!("{rerun} --from /dev/null");
    let by_key = &format!("{rerun} --operation charge --token A-17");
    let before = "--completed-before 1700000001";
    let by_time = &format!("{rerun} --operation charge --completed-since 1700000000 {before}");
    let audit = "audit --effect-key id --effects-command cat";
    let exported = &format!("{audit} --export /nonexistent");
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml");
    let template = &format!("plan --template '{template}'");
    let queue = "plan --function-timeout 3s";
    let postgres = "--store postgres://127.0.0.1:9/none";
    let elsewhere = &format!("get any {postgres}");
    for (words, flag) in [
        ("get any", "--operation charge"),
        ("get any", "--scope tenant-7"),
        (by_hash, "--scope tenant-7"),
        (by_id, "--scope tenant-7"),
        (by_id, before),
        (by_file, "--scope tenant-7"),
        (by_file, before),
        (by_key, before),
        (by_time, "--scope tenant-7"),
        ("list --yes", "--quiet 2h"),
        (audit, "--effects-attribute payment"),
        (exported, postgres),
        ("doctor", "--asynchronous"),
        ("doctor", "--adapter http"),
        ("doctor", postgres),
        ("plan", "--visibility 60s"),
        ("plan --requests 10", "--fifo"),
        (template, "--window 5s"),
        (queue, "--parameter A=1"),
        (queue, "--function Work"),
        (queue, "--record-bytes 900"),
        (elsewhere, "--partition-key pk"),
        (elsewhere, "--attribute data=outcome"),
    ] {
        let said = on(&table, &format!("{words} {flag}")).await;
        let name = flag.trim_start_matches("--").split(' ').next();
        said.refused(2, name.unwrap());
    }
    run("plan").await.refused(2, "--requests");
}
