//! Extreme times, numbers and texts, and outputs that are full or closed.

use std::process::Stdio;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::records::{dead, deliver, id};
use crate::support::{Said, command, dynamodb, dynamodb_endpoint, on, run, table};

#[tokio::test]
async fn a_time_that_no_calendar_has_is_refused() {
    let years = "500000000000years";
    let complete = ["complete", "any", "--outcome", "1", "--reason", "a test"];
    let fail = ["fail", "any", "--message", "no", "--reason", "a test"];
    for (words, flag) in [
        (&["get", "any"][..], "--timeout"),
        (&["explain", "any"], "--skew-margin"),
        (&["list", "--yes"], "--quiet"),
        (&["list", "--yes"], "--older-than"),
        (&complete, "--keep"),
        (&fail, "--keep"),
        (&["doctor"], "--retention"),
        (&["plan", "--visibility", "60s"], "--function-timeout"),
        (
            &["audit", "--effect-key", "id", "--effects-command", "cat"],
            "--settled-for",
        ),
    ] {
        for time in [years, "101years", "18446744073709551615s"] {
            run(&[words, &[flag, time]].concat())
                .await
                .refused(2, "a hundred years");
        }
    }
    // A date without dashes is none, either.
    for at in ["9223372036854775807", "-9223372036854775808", "20261123"] {
        run(&["explain", "any", &format!("--at={at}")])
            .await
            .refused(2, "it is no time from 2001 to 2200");
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number(number: &str) -> AttributeValue {
    AttributeValue::N(number.to_owned())
}

fn step(state: &str, (name, words): (&str, &str)) -> AttributeValue {
    let step = [
        ("state", text(state)),
        ("revision", number("2")),
        ("tries", number("1")),
        ("at", number("1700000000000")),
        (name, text(words)),
    ];
    AttributeValue::M(step.map(|(name, value)| (name.to_owned(), value)).into())
}

/// Puts a record with this outcome, and this result of a step.
async fn put_completed(table: &str, id: &str, outcome: &str, result: &str) {
    let put = dynamodb().client().put_item().table_name(table);
    put.item("id", text(id))
        .item("status", text("COMPLETED"))
        .item("owner", text("0f"))
        .item("attempt", number("1"))
        .item("expiration", number("4000000000"))
        .item("completed_at", number("1700000000000"))
        .item("data", text(outcome))
        .item("step:charge", step("CONFIRMED", ("result", result)))
        .item("v", number("1"))
        .send()
        .await
        .unwrap();
}

#[tokio::test]
async fn what_is_between_the_tokens_of_a_value_is_shown_as_json() {
    let (table, id) = (table().await, "payments#charge#0f");
    let stored = "{\t\"a\\tb\":\r\n[1,\t2]\r}";
    put_completed(&table, id, stored, stored).await;
    let got = on(&table, &["get", id, "--json"]).await;
    let got = got.ended_with(0).json();
    let value: serde_json::Value = serde_json::from_str(stored).unwrap();
    assert_eq!(got["outcome"]["value"], value, "{got}");
    assert_eq!(got["steps"][0]["result"], value, "{got}");
}

#[tokio::test]
async fn numbers_are_shown_to_their_last_digit() {
    let table = table().await;
    // One that no double holds has its own record: where it is no JSON, the others would be shown as a text.
    for (place, numbers) in [
        "[12345678901234567890123,12.50,-0.0,0.10000000000000000555]",
        "[1e400]",
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("payments#charge#{place}");
        let outcome = format!("{{\"numbers\":{numbers}}}");
        put_completed(&table, &id, &outcome, numbers).await;
        for (format, kind) in [(&[][..], ""), (&["--json"], "\"kind\": \"json\"")] {
            let said = on(&table, &[&["get", &id], format].concat()).await;
            let said = said.ended_with(0);
            assert_eq!(said.out.matches(numbers).count(), 2, "{said:?}");
            assert!(said.out.contains(kind), "{said:?}");
        }
    }
}

/// No text of a record begins a line of the output, and no terminal obeys it.
#[tokio::test]
async fn no_text_of_a_record_passes_for_a_line() {
    let table = table().await;
    let mut ids = Vec::new();
    for (status, outcome) in [
        ("COMPLETED", "a text\nFAKED text"),
        ("COMPLETED", "{\n\"FAKED\": 1}"),
        (
            "COMPLETED",
            r#"{"status":200,"headers":[["content-type","text/plain"]],"body":"a\nFAKED body\r\nFAKED"}"#,
        ),
        ("INPROGRESS", "null"),
        ("FAKED\nFAKED status", "null"),
    ] {
        let id = format!("payments#charge#{}\nFAKED id\u{2028}FAKED", ids.len());
        let put = dynamodb().client().put_item().table_name(&table);
        let put = put
            .item("id", text(&id))
            .item("status", text(status))
            .item("owner", text("0f\nFAKED owner"))
            .item("validation", text("0f\nFAKED fingerprint"))
            .item(
                "last_error",
                text("no\r\nFAKED error\u{fdd1}FAKED\u{1b}[8m\u{9b}2J"),
            )
            .item("attempt", number("1"))
            .item("expiration", number("4000000000"))
            .item("started_at", number("1700000000000"))
            .item(
                "step:charge\nFAKED step",
                step("FAILED", ("error", "no\nFAKED error of a step")),
            )
            .item("v", number("1"));
        let put = match status {
            "INPROGRESS" => put.item("in_progress_expiration", number("1")),
            _ => put
                .item("data", text(outcome))
                .item("completed_at", number("1700000000000")),
        };
        put.send().await.unwrap();
        ids.push(id);
    }
    let why = ["--reason", "ticket 17", "--yes", "--dry-run"];
    let audit = [
        "audit",
        "--effect-key",
        "id",
        "--effects-table",
        &table,
        "--effects-attribute",
        "status",
    ];
    let mut words = vec![vec!["list", "--yes"], audit.to_vec()];
    for id in &ids {
        for command in ["get", "explain"] {
            words.push(vec![command, id]);
        }
        for command in ["release", "redact"] {
            words.push([&[command, id][..], &why].concat());
        }
        for steps in [&[][..], &["--steps", "keep"]] {
            let rerun = ["rerun", id, "--keys", "new"];
            words.push([&rerun[..], steps, &why].concat());
        }
    }
    words.push(vec!["get", "payments\nFAKED"]);
    let endpoint = dynamodb_endpoint();
    let place = ["--endpoint-url", &endpoint, "--table", &table];
    let (mut shown, mut escaped, mut styled) = (0, 0, 0);
    for words in words {
        let said = on(&table, &words).await;
        for format in [&[][..], &["--json"]] {
            // As on a terminal: elsewhere all escape sequences are left out.
            let mut coloured = command(&[&words[..], format, &place].concat());
            let coloured = coloured.env("CLICOLOR_FORCE", "1").output().await.unwrap();
            let Said { out, err, .. } = Said::of(&coloured);
            for obeyed in ["\u{1b}[8m", "\u{9b}", "\r", "\u{2028}"] {
                let all = [&out, &err];
                assert!(
                    !all.iter().any(|text| text.contains(obeyed)),
                    "{words:?}: {all:?}"
                );
            }
            styled += usize::from(out.contains('\u{1b}'));
        }
        let lines = said.out.lines().chain(said.err.lines());
        for line in lines {
            let begins = line.trim_start().starts_with("FAKED");
            assert!(!begins, "{words:?}: {line:?} of {said:?}");
            shown += 1;
            escaped += usize::from(line.contains("\\nFAKED"));
        }
    }
    assert!(
        shown > 100 && escaped > 50 && styled > 10,
        "{escaped} of {shown}, {styled}"
    );
}

#[tokio::test]
async fn an_output_that_is_full_is_no_success() {
    for words in [
        &["schema"][..],
        &["schema", "get"],
        &["completions", "bash"],
    ] {
        full(words).await.refused(3, "error: the standard output");
    }
}

/// Runs the binary with an output that takes nothing.
async fn full(words: &[&str]) -> Said {
    let mut full = command(words);
    let file = std::fs::File::options().write(true).open("/dev/full");
    full.stdout(Stdio::from(file.unwrap()));
    // `output` would take the output itself.
    let ran = full.stderr(Stdio::piped()).spawn().unwrap();
    Said::of(&ran.wait_with_output().await.unwrap())
}

#[tokio::test]
async fn a_record_that_was_written_is_said_to_be_where_its_report_can_not_be_printed() {
    let (table, endpoint) = (table().await, dynamodb_endpoint());
    let place = ["--endpoint-url", &endpoint, "--table", &table];
    let why = ["--reason", "ticket 17", "--yes"];
    let id = dead(&table, "A-17").await;
    let words = [&["release", &id][..], &why, &place].concat();
    full(&words)
        .await
        .refused(3, "the record was written, but not all of the report");
    let got = on(&table, &["get", &id, "--json"]).await.json();
    assert_eq!(got["state"], "released", "{got}");
    // Nothing is written now, so nothing is said to be.
    let said = full(&words).await.ended_with(3);
    assert!(!said.err.contains("was written"), "{said:?}");

    let file = std::env::temp_dir().join(format!("{table}.ids"));
    deliver(&table, "A-17").await.unwrap();
    std::fs::write(&file, &id).unwrap();
    let rerun = ["rerun", "--keys", "new", "--from", file.to_str().unwrap()];
    full(&[&rerun[..], &why, &place].concat())
        .await
        .refused(3, "the record was written, but not all of the report");
    let got = on(&table, &["get", &id, "--json"]).await.json();
    assert_eq!(got["state"], "released", "{got}");
    std::fs::remove_file(file).unwrap();
}

/// A script whose `list` found nothing reruns nothing: that is told, not taken for done.
#[tokio::test]
async fn a_file_without_ids_is_refused() {
    let table = table().await;
    let file = std::env::temp_dir().join(format!("{table}.ids"));
    for text in ["", "\n \n"] {
        std::fs::write(&file, text).unwrap();
        let from = ["rerun", "--keys", "new", "--from", file.to_str().unwrap()];
        on(&table, &[&from[..], &["--reason", "why", "--yes"]].concat())
            .await
            .refused(2, "has no ids");
    }
    std::fs::remove_file(file).unwrap();
}

/// Runs the binary with an output whose reader has gone.
async fn unread(words: &[&str]) -> Said {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = command(words);
    unread.stdout(Stdio::from(writer));
    let ran = unread.stderr(Stdio::piped()).spawn().unwrap();
    drop(unread);
    Said::of(&ran.wait_with_output().await.unwrap())
}

#[tokio::test]
async fn a_reader_that_went_away_stops_no_work_in_silence() {
    let (table, endpoint) = (table().await, dynamodb_endpoint());
    let place = ["--endpoint-url", &endpoint, "--table", &table];
    let why = ["--reason", "ticket 17", "--yes"];
    let stuck = dead(&table, "stuck").await;
    for (read, code) in [
        (&["get", &stuck][..], 0),
        (&["explain", &stuck, "--crashed", "interrupt"], 1),
        (&["list", "--yes"], 0),
        (&["release", &stuck, "--reason", "why", "--dry-run"], 0),
    ] {
        let said = unread(&[read, &place].concat()).await.ended_with(code);
        assert!(!said.err.contains("error"), "{said:?}");
    }
    unread(&[&["release", &stuck][..], &why, &place].concat())
        .await
        .refused(3, "the record was written, but not all of the report");
    let mut ids = Vec::new();
    for number in 0..3 {
        let token = format!("A-{number}");
        deliver(&table, &token).await.unwrap();
        ids.push(id(&table, &token));
    }
    let file = std::env::temp_dir().join(format!("{table}.ids"));
    std::fs::write(&file, ids.join("\n")).unwrap();
    let rerun = ["rerun", "--keys", "new", "--from", file.to_str().unwrap()];
    let rerun = [&rerun[..], &why, &place].concat();
    unread(&[&rerun[..], &["--dry-run"]].concat())
        .await
        .ended_with(0);
    for done in [1, 1] {
        let said = unread(&rerun).await.ended_with(3);
        let words = format!("{done} of 3 done. Give the same command again");
        assert!(said.err.contains(&words), "{said:?}");
    }
    let said = run(&rerun).await.ended_with(0);
    assert!(said.err.contains("3 of 3 given back"), "{said:?}");
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn what_would_be_stored_or_computed_as_something_else_is_refused() {
    let file = std::env::temp_dir().join(format!("cli-latin-1-{}", fastrand::u64(..)));
    std::fs::write(&file, b"\"caf\xe9\"").unwrap();
    let file = file.to_str().unwrap();
    let long = "x".repeat(1_001);
    let complete = ["complete", "any", "--reason", "why", "--outcome-file", file];
    let fail = ["fail", "any", "--reason", "why", "--message", &long];
    let release = ["release", "any", "--reason", "why", "--by", ""];
    for (words, refusal) in [
        (&complete[..], "invalid utf-8"),
        (&fail, "1001 characters"),
        (&release, "1 to 500 characters"),
        (
            &["plan", "--requests", "9", "--read-price=nan"],
            "give dollars",
        ),
        (
            &["plan", "--requests", "9", "--write-price=-1"],
            "give dollars",
        ),
    ] {
        run(words).await.refused(2, refusal);
    }
    std::fs::remove_file(file).unwrap();
    let most = u64::MAX.to_string();
    let plan = ["plan", "--json", "--requests", &most, "--duplicate-percent"];
    for (percent, duplicates) in [("100", u64::MAX), ("50", u64::MAX / 2)] {
        let planned = run(&[&plan[..], &[percent]].concat()).await.json();
        assert_eq!(planned["cost"][0]["duplicates"], duplicates);
    }
}
