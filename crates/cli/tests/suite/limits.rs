//! What is too long, too large or full.

use std::process::Stdio;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::support::{Said, command, dynamodb, on, run, table};

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
    for at in ["9223372036854775807", "-9223372036854775808"] {
        run(&["explain", "any", &format!("--at={at}")])
            .await
            .refused(2, "no calendar has this time");
    }
}

#[tokio::test]
async fn numbers_are_shown_to_their_last_digit() {
    let table = table().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let number = |number: &str| AttributeValue::N(number.to_owned());
    let numbers = "[12345678901234567890123,12.50,1e400,-0.0,0.10000000000000000555]";
    let step = [
        ("state", text("CONFIRMED")),
        ("revision", number("2")),
        ("tries", number("1")),
        ("at", number("1700000000000")),
        ("result", text(numbers)),
    ];
    let step = step.map(|(name, value)| (name.to_owned(), value));
    let put = dynamodb().client().put_item().table_name(&table);
    put.item("id", text("payments#charge#0f"))
        .item("status", text("COMPLETED"))
        .item("owner", text("0f"))
        .item("attempt", number("1"))
        .item("expiration", number("4000000000"))
        .item("completed_at", number("1700000000000"))
        .item("data", text(&format!("{{\"numbers\":{numbers}}}")))
        .item("step:charge", AttributeValue::M(step.into()))
        .item("v", number("1"))
        .send()
        .await
        .unwrap();
    for format in [&[][..], &["--json"]] {
        let said = on(&table, &[&["get", "payments#charge#0f"], format].concat()).await;
        let said = said.ended_with(0);
        assert_eq!(said.out.matches(numbers).count(), 2, "{said:?}");
    }
}

/// Whatever text a record has, none of it begins a line.
#[tokio::test]
async fn no_text_of_a_record_passes_for_a_line() {
    let table = table().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let number = |number: &str| AttributeValue::N(number.to_owned());
    let step = [
        ("state", text("FAILED")),
        ("revision", number("2")),
        ("tries", number("1")),
        ("at", number("1700000000000")),
        ("error", text("no\nFAKED error of a step")),
    ];
    let step = step.map(|(name, value)| (name.to_owned(), value));
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
            .item("last_error", text("no\r\nFAKED error\u{fdd1}FAKED"))
            .item("attempt", number("1"))
            .item("expiration", number("4000000000"))
            .item("started_at", number("1700000000000"))
            .item(
                "step:charge\nFAKED step",
                AttributeValue::M(step.clone().into()),
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
        for command in ["release", "redact", "rerun"] {
            words.push([&[command, id][..], &why].concat());
        }
        words.push([&["rerun", id, "--steps", "keep"][..], &why].concat());
    }
    words.push(vec!["get", "payments\nFAKED"]);
    let (mut shown, mut escaped) = (0, 0);
    for words in words {
        let said = on(&table, &words).await;
        let lines = said.out.lines().chain(said.err.lines());
        for line in lines.flat_map(|line| line.split(['\r', '\u{2028}'])) {
            let begins = line.trim_start().starts_with("FAKED");
            assert!(!begins, "{words:?}: {line:?} of {said:?}");
            shown += 1;
            escaped += usize::from(line.contains("\\nFAKED"));
        }
    }
    assert!(shown > 100 && escaped > 50, "{escaped} of {shown}");
}

#[tokio::test]
async fn an_output_that_is_full_is_no_success() {
    for words in [
        &["schema"][..],
        &["schema", "get"],
        &["completions", "bash"],
    ] {
        let mut full = command(words);
        let file = std::fs::File::options().write(true).open("/dev/full");
        full.stdout(Stdio::from(file.unwrap()));
        // `output` would take the output itself.
        let ran = full.stderr(Stdio::piped()).spawn().unwrap();
        let said = Said::of(&ran.wait_with_output().await.unwrap());
        said.refused(3, "the standard output");
    }
}
