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
