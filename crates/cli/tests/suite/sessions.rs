//! The terminal sessions of the documentation are what the tool prints, at nine minutes past three.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::records::cut::{Lost, proxy};
use crate::records::id;
use crate::support::{Item, command, item, number, put, record, step, table, text};

/// The clock of each command: the monotonic one goes on.
const NOW: &str = "2026-11-23 03:09:00";
/// The same, by the store's clock.
const NOW_THERE: &str = "Mon, 23 Nov 2026 03:09:00 GMT";
/// The same in epoch milliseconds.
const NOW_MILLIS: i64 = 1_795_403_340_000;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations/cli.md");

/// A charge that began twelve minutes ago.
fn charge(id: String, status: &str) -> Item {
    let began = NOW_MILLIS - 720_000;
    let own = [
        ("owner", text("0123456789abcdef0123456789abcdef")),
        ("started_at", number(began)),
        ("expiration", number(began / 1_000 + 604_800)),
    ];
    record(id, status, own)
}

/// The records that the page speaks of.
async fn records() -> String {
    let table = table().await;
    for (token, lease) in [("order-17", -659_000), ("order-19", 31_000)] {
        let mut running = charge(id(&table, token), "INPROGRESS");
        running.extend(item([(
            "in_progress_expiration",
            number(NOW_MILLIS + lease),
        )]));
        put(&table, running).await;
    }
    let mut waiting = charge(id(&table, "order-18"), "INPROGRESS");
    waiting.extend(item([
        ("in_progress_expiration", number(0)),
        ("last_error", text("interrupted step")),
        ("step:charge", step("PENDING", NOW_MILLIS - 719_000, &[])),
    ]));
    put(&table, waiting).await;
    let mut done = charge(id(&table, "order-20"), "COMPLETED");
    done.extend(item([
        ("data", text("\"receipt-20\"")),
        ("completed_at", number(NOW_MILLIS - 718_000)),
    ]));
    put(&table, done).await;
    table
}

/// Returns the output that an operator sees who types this line.
async fn typed(line: &str, table: &str, server: &str) -> String {
    let library = std::env::var("FAKETIME_LIBRARY")
        .expect("FAKETIME_LIBRARY is not set: run it by `scripts/with faketime -- …`");
    let folder = PathBuf::from(env!("CARGO_BIN_EXE_idempotency"));
    let folder = folder.parent().unwrap();
    let mut shell = tokio::process::Command::new("/bin/sh");
    let mut environment = command("");
    // On a machine that does much else, a request takes its time.
    let patient = "idempotency() { command idempotency --timeout 2min \"$@\"; }";
    shell
        .args(["-c", &format!("{patient}\n{line}")])
        .env_clear()
        .envs(
            environment
                .as_std_mut()
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("PATH", folder)
        .env("AWS_ENDPOINT_URL", server)
        .env("IDEMPOTENCY_TABLE", table)
        .env("IDEMPOTENCY_NAMESPACE", "payments")
        .env("LD_PRELOAD", library)
        .env("FAKETIME", NOW)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("TZ", "UTC")
        .stdin(std::process::Stdio::null());
    let said = shell.output().await.unwrap();
    // Messages beside the report come first, as at a terminal.
    let mut text = String::from_utf8(said.stderr).unwrap();
    text.push_str(&String::from_utf8(said.stdout).unwrap());
    plain(&text, table)
}

/// Replaces the parts that differ from run to run: the table's name, and the owner of a takeover.
fn plain(text: &str, table: &str) -> String {
    let mut plain = String::new();
    for line in text.replace(table, "idempotency").lines() {
        let line = match line.strip_prefix("  owner        ") {
            Some(_) => "  owner        5f0c…",
            None => line.trim_end(),
        };
        let _ = writeln!(plain, "{line}");
    }
    plain
}

/// The page with each session as it is now.
async fn played(page: &str, table: &str) -> String {
    let server = proxy(usize::MAX, Lost::Time(NOW_THERE)).await;
    let mut played = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(played, "{line}");
        if line != "```console" {
            continue;
        }
        for line in lines.by_ref().take_while(|line| *line != "```") {
            if let Some(typed_line) = line.strip_prefix("$ ") {
                let _ = write!(
                    played,
                    "{line}\n{}",
                    typed(typed_line, table, &server).await
                );
            }
        }
        played.push_str("```\n");
    }
    played
}

/// `UPDATE_SESSIONS=1` writes them.
#[tokio::test]
async fn the_sessions_of_the_page_are_what_the_tool_prints() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    assert!(page.contains("```console\n$ idempotency "), "no session");
    let now = played(&page, &records().await).await;
    if std::env::var_os("UPDATE_SESSIONS").is_some() {
        return std::fs::write(PAGE, &now).unwrap();
    }
    for (old, new) in page.lines().zip(now.lines()) {
        assert_eq!(
            old, new,
            "{PAGE} isn't what happens: run it with UPDATE_SESSIONS=1, and read the difference"
        );
    }
    assert_eq!(page, now);
}
