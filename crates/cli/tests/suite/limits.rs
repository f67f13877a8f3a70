//! Extreme times, numbers and texts, and outputs that are full or closed.

use std::process::Stdio;

use crate::records::{WHY, dead, deliver, id};
use crate::support::{
    Said, Scratch, command, get, item, number, on, place, put, record, refused, run, step, table,
    text,
};

#[tokio::test]
async fn a_time_that_no_calendar_has_is_refused() {
    let years = "500000000000years";
    for words in [
        "get any --timeout",
        "explain any --skew-margin",
        "list --yes --quiet",
        "list --yes --older-than",
        "complete any --outcome 1 --reason why --keep",
        "fail any --message no --reason why --keep",
        "doctor --retention",
        "plan --visibility 60s --function-timeout",
        "audit --effect-key id --effects-command cat --settled-for",
    ] {
        for time in [years, "101years", "18446744073709551615s"] {
            refused(run(&format!("{words} {time}")), 2, "a hundred years").await;
        }
    }
    // A date without dashes is none, either.
    for at in ["9223372036854775807", "-9223372036854775808", "20261123"] {
        run(&format!("explain any --at={at}"))
            .await
            .refused(2, "it is no time from 2001 to 2200");
    }
}

const THEN: i64 = 1_700_000_000_000;

/// Puts a record with this outcome, and this result of a step.
async fn put_completed(table: &str, id: &str, outcome: &str, result: &str) {
    let charge = step("CONFIRMED", THEN, &[("result", text(result))]);
    let own = [
        ("completed_at", number(THEN)),
        ("data", text(outcome)),
        ("step:charge", charge),
    ];
    put(table, record(id, "COMPLETED", own)).await;
}

#[tokio::test]
async fn what_is_between_the_tokens_of_a_value_is_shown_as_json() {
    let (table, id) = (table().await, "payments#charge#0f");
    let stored = "{\t\"a\\tb\":\r\n[1,\t2]\r}";
    put_completed(&table, id, stored, stored).await;
    let got = get(&table, id).await;
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
        for (format, kind) in [("", ""), ("--json", "\"kind\": \"json\"")] {
            let said = on(&table, &format!("get {id} {format}")).await;
            let said = said.refused(0, kind);
            assert_eq!(said.out.matches(numbers).count(), 2, "{said:?}");
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
        let failed = [("error", text("no\nFAKED error of a step"))];
        let own = [
            ("owner", text("0f\nFAKED owner")),
            ("validation", text("0f\nFAKED fingerprint")),
            (
                "last_error",
                text("no\r\nFAKED error\u{fdd1}FAKED\u{1b}[8m\u{9b}2J"),
            ),
            ("started_at", number(THEN)),
            ("step:charge\nFAKED step", step("FAILED", THEN, &failed)),
        ];
        let mut record = record(&id, status, own);
        record.extend(item(match status {
            "INPROGRESS" => vec![("in_progress_expiration", number(1))],
            _ => vec![("data", text(outcome)), ("completed_at", number(THEN))],
        }));
        put(&table, record).await;
        ids.push(id);
    }
    let effects = format!("--effects-table {table} --effects-attribute status");
    let mut lines = vec![
        "list --yes".to_owned(),
        format!("audit --effect-key id {effects}"),
        "get 'payments\nFAKED'".to_owned(),
    ];
    for id in &ids {
        for words in ["get", "explain"] {
            lines.push(format!("{words} '{id}'"));
        }
        for words in [
            "release",
            "redact",
            "rerun --keys new",
            "rerun --keys new --steps keep",
        ] {
            lines.push(format!("{words} '{id}' {WHY} --dry-run"));
        }
    }
    let (mut shown, mut escaped, mut styled) = (0, 0, 0);
    for line in lines {
        let said = on(&table, &line).await;
        for format in ["", "--json"] {
            // As on a terminal: elsewhere all escape sequences are left out.
            let mut coloured = command(&format!("{line} {format} {}", place(&table)));
            let coloured = coloured.env("CLICOLOR_FORCE", "1").output().await.unwrap();
            let Said { out, err, .. } = Said::of(&coloured);
            for obeyed in ["\u{1b}[8m", "\u{9b}", "\r", "\u{2028}"] {
                let all = [&out, &err];
                assert!(
                    !all.iter().any(|text| text.contains(obeyed)),
                    "{line:?}: {all:?}"
                );
            }
            styled += usize::from(out.contains('\u{1b}'));
        }
        for shown_line in said.out.lines().chain(said.err.lines()) {
            let begins = shown_line.trim_start().starts_with("FAKED");
            assert!(!begins, "{line:?}: {shown_line:?} of {said:?}");
            shown += 1;
            escaped += usize::from(shown_line.contains("\\nFAKED"));
        }
    }
    assert!(
        shown > 100 && escaped > 50 && styled > 10,
        "{escaped} of {shown}, {styled}"
    );
}

#[tokio::test]
async fn an_output_that_is_full_is_no_success() {
    for line in ["schema", "schema get", "completions bash"] {
        full(line).await.refused(3, "error: the standard output");
    }
}

/// Runs the binary with an output that takes nothing.
async fn full(line: &str) -> Said {
    let mut full = command(line);
    let file = std::fs::File::options().write(true).open("/dev/full");
    full.stdout(Stdio::from(file.unwrap()));
    // `output` would take the output itself.
    let ran = full.stderr(Stdio::piped()).spawn().unwrap();
    Said::of(&ran.wait_with_output().await.unwrap())
}

#[tokio::test]
async fn a_record_that_was_written_is_said_to_be_where_its_report_can_not_be_printed() {
    let table = table().await;
    let place = place(&table);
    let written = "the record was written, but not all of the report";
    let id = dead(&table, "A-17").await;
    let release = format!("release {id} {WHY} {place}");
    full(&release).await.refused(3, written);
    let got = get(&table, &id).await;
    assert_eq!(got["state"], "released", "{got}");
    // Nothing is written now, so nothing is said to be.
    let said = full(&release).await.ended_with(3);
    assert!(!said.err.contains("was written"), "{said:?}");

    deliver(&table, "A-17").await.unwrap();
    let file = Scratch::with(&id);
    full(&format!("rerun --keys new --from {file} {WHY} {place}"))
        .await
        .refused(3, written);
    let got = get(&table, &id).await;
    assert_eq!(got["state"], "released", "{got}");
}

/// A script whose `list` found nothing reruns nothing: that is told, not taken for done.
#[tokio::test]
async fn a_file_without_ids_is_refused() {
    let table = table().await;
    for text in ["", "\n \n"] {
        let file = Scratch::with(text);
        on(&table, &format!("rerun --keys new --from {file} {WHY}"))
            .await
            .refused(2, "has no ids");
    }
}

/// Runs the binary with an output whose reader has gone.
async fn unread(line: &str) -> Said {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = command(line);
    unread.stdout(Stdio::from(writer));
    let ran = unread.stderr(Stdio::piped()).spawn().unwrap();
    drop(unread);
    Said::of(&ran.wait_with_output().await.unwrap())
}

#[tokio::test]
async fn a_reader_that_went_away_stops_no_work_in_silence() {
    let table = table().await;
    let place = place(&table);
    let stuck = dead(&table, "stuck").await;
    for (read, code) in [
        (format!("get {stuck}"), 0),
        (format!("explain {stuck} --crashed interrupt"), 1),
        ("list --yes".to_owned(), 1),
        (format!("release {stuck} --reason why --dry-run"), 0),
    ] {
        let said = unread(&format!("{read} {place}")).await.ended_with(code);
        assert!(!said.err.contains("error"), "{said:?}");
    }
    unread(&format!("release {stuck} {WHY} {place}"))
        .await
        .refused(3, "the record was written, but not all of the report");
    let mut ids = Vec::new();
    for number in 0..3 {
        let token = format!("A-{number}");
        deliver(&table, &token).await.unwrap();
        ids.push(id(&table, &token));
    }
    let file = Scratch::with(ids.join("\n"));
    let rerun = format!("rerun --keys new --from {file} {WHY} {place}");
    unread(&format!("{rerun} --dry-run")).await.ended_with(0);
    for done in [1, 1] {
        let said = unread(&rerun).await.ended_with(3);
        let words = format!("{done} of 3 done. Give the same command again");
        assert!(said.err.contains(&words), "{said:?}");
    }
    run(&rerun)
        .await
        .refused(0, "2 of 3 given back, 1 done before");
}

#[tokio::test]
async fn what_would_be_stored_or_computed_as_something_else_is_refused() {
    let file = Scratch::with(b"\"caf\xe9\"");
    let complete = format!("complete any --reason why --outcome-file {file}");
    let fail = format!("fail any --reason why --message {}", "x".repeat(1_001));
    for (line, refusal) in [
        (&*complete, "invalid utf-8"),
        (&fail, "1001 characters"),
        ("release any --reason why --by ''", "1 to 500 characters"),
        ("plan --requests 9 --write-price=nan", "give dollars"),
        ("plan --requests 9 --write-price=-1", "give dollars"),
    ] {
        run(line).await.refused(2, refusal);
    }
    let plan = format!("plan --json --requests {} --duplicate-percent", u64::MAX);
    for (percent, duplicates) in [(100, u64::MAX), (50, u64::MAX / 2)] {
        let planned = run(&format!("{plan} {percent}")).await.json();
        assert_eq!(planned["cost"][0]["duplicates"], duplicates);
    }
}

#[tokio::test]
async fn times_that_no_number_holds_are_compared_as_the_longest() {
    let times = "--function-timeout 100years --window 100years --max-receive-count 4294967295";
    refused(run(&format!("plan {times}")), 1, "4294967295 receives take").await;
}
