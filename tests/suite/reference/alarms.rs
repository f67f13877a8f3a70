//! Each alarm of `infra/` says what to do, and links to its section of `docs/operations/alarms.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::{between, read, root, sections};

/// Where rustdoc shows `docs/operations/alarms.md`.
const RUNBOOK: &str =
    "https://docs.rs/lambda-idempotency/latest/lambda_idempotency/guide/alarms/index.html#";

/// The templates, each with its text.
fn templates() -> impl Iterator<Item = (PathBuf, String)> {
    let entries = fs::read_dir(root().join("infra")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let templates = paths.filter(|path| path.extension().is_some_and(|own| own == "yaml"));
    templates.map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
}

/// The alarms of the templates, each with its definition.
fn alarms() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (_, template) in templates() {
        let parts = template.split("\n    Type: AWS::CloudWatch::Alarm\n");
        for part in parts.collect::<Vec<_>>().windows(2) {
            let name = part[0].lines().last().unwrap().trim().trim_end_matches(':');
            let definition = part[1].split("\n\n").next().unwrap();
            found.push((name.to_owned(), definition.to_owned()));
        }
    }
    found
}

/// An alarm's description, as CloudWatch has it.
fn description(name: &str, alarm: &str) -> String {
    let (_, text) = alarm.split_once("AlarmDescription: >-\n").expect(name);
    let lines = text.lines().take_while(|line| line.starts_with("        "));
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_alarm_has_a_section_and_each_section_an_alarm() {
    let page = read("docs/operations/alarms.md");
    let sections: BTreeSet<_> = sections(&page, "###")
        .into_iter()
        .map(|(name, _)| name.to_owned())
        .collect();
    let alarms: BTreeSet<_> = alarms().into_iter().map(|(name, _)| name).collect();
    assert!(alarms.len() > 10, "{alarms:?}");
    assert_eq!(sections, alarms);
}

/// A user who copies `infra/` has no other folder of this repository.
#[test]
fn each_alarm_says_what_to_do_without_a_path_that_only_this_repository_has() {
    for (name, definition) in alarms() {
        let text = description(&name, &definition);
        assert!(
            text.matches(". ").count() >= 2,
            "{name} has no step: {text}"
        );
        assert!(text.len() <= 1_024, "CloudWatch takes no more: {name}");
    }
    let folders = [
        "docs/",
        "functions/",
        "crates/",
        "infra/",
        "tests/",
        "scripts/",
        ".md",
    ];
    for (path, template) in templates() {
        let named = folders.iter().find(|folder| template.contains(**folder));
        assert_eq!(named, None, "{}", path.display());
    }
}

/// Who is paged has the description, and perhaps nothing else.
#[test]
fn each_alarm_ends_with_the_link_to_its_section() {
    let page = "\n    alarms,\n    \"operations/alarms.md\",\n";
    assert!(read("src/guide.rs").contains(page));
    for (name, definition) in alarms() {
        let link = format!(". Runbook: {RUNBOOK}{}", name.to_lowercase());
        let text = description(&name, &definition);
        assert!(text.ends_with(&link), "{name}: {text}");
    }
}

#[test]
fn each_section_has_three_commands_what_to_do_and_when_it_is_over() {
    let page = read("docs/operations/alarms.md");
    assert!(page.contains("\nevents() {"));
    assert!(page.contains("\nmetric() {"));
    for (name, body) in sections(&page, "###") {
        let programs = [
            "aws ",
            "events ",
            "metric ",
            "PERIOD=900 metric ",
            "LOGS=$ACCESS_LOG events ",
            "of ",
            "receive ",
            "idempotency ",
        ];
        let is_command = |line: &&str| programs.iter().any(|program| line.starts_with(program));
        let commands = body.lines().filter(is_command).count();
        assert_eq!(commands, 3, "{name}");
        for part in ["- **Do**: ", "- **Over**: "] {
            assert!(body.contains(part), "{name}: {part}");
        }
    }
}

#[test]
fn each_event_that_is_counted_as_a_store_error_is_searched_and_named() {
    let code = read("src/engine/events.rs");
    let counted = code.split("count(Count::StoreErrors);").skip(1);
    let event = |rest| between(rest, "event = \"", "\"").first().copied();
    let mut events: Vec<_> = counted.filter_map(event).collect();
    assert_eq!(events.len(), 4, "{events:?}");
    // An obstacle's code, and what runs under `FailOpen`.
    events.extend(["store_failed", "unprotected"]);
    let page = read("docs/operations/alarms.md");
    let (_, section) = sections(&page, "###")
        .into_iter()
        .find(|(name, _)| *name == "StoreErrors")
        .unwrap();
    let (_, alarm) = alarms()
        .into_iter()
        .find(|(name, _)| name == "StoreErrors")
        .unwrap();
    for event in events {
        assert!(section.contains(&format!("?\"{event}\"")), "{event}");
        assert!(alarm.contains(event), "{event}");
    }
}
