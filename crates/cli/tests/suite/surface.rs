//! The completions, manual pages, colours and questions of the command line.

use serde_json::json;

use crate::records::{dead, deliver};
use crate::support::{Terminal, on, run, table};

#[tokio::test]
async fn each_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let said = run(&["completions", shell]).await.ended_with(0);
        assert!(said.out.contains("settle-step"), "{shell}");
    }
    run(&["completions", "csh"])
        .await
        .refused(2, "[possible values: bash");
}

#[tokio::test]
async fn each_command_has_a_manual_page() {
    let folder = std::env::temp_dir().join(format!("idempotency-man-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    run(&["man", folder.to_str().unwrap()]).await.ended_with(0);
    let pages: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert!(pages.len() > 10, "{pages:?}");
    let page = std::fs::read_to_string(folder.join("idempotency-release.1")).unwrap();
    assert!(page.contains("while\\-live"), "{page}");
    std::fs::remove_dir_all(&folder).unwrap();
    run(&["man", "/nonexistent/folder"])
        .await
        .refused(2, "/nonexistent/folder");
}

#[tokio::test]
async fn colours_are_for_terminals() {
    let said = run(&["get", "any"]).await;
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
    let left = on(&table, &["get", &id, "--json"]).await.json();
    assert_eq!(
        (&left["state"], &left["acts"]),
        (&json!("completed"), &json!([]))
    );
}
