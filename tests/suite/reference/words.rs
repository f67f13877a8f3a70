//! The pages of metrics, log events, the record and permissions name what the code has.

use std::collections::{BTreeMap, BTreeSet};

use super::{between, codes, read, sections, sources};

/// The words in the first cell of each row of the tables that begin with this heading cell.
fn first_cells(page: &str, heading: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in page.lines() {
        if line.starts_with(&format!("| {heading} |")) {
            is_inside = true;
        } else if !line.starts_with('|') {
            is_inside = false;
        } else if is_inside && !line.starts_with("|-") {
            let cell = line.split(" | ").next().unwrap();
            let words = cell.split('`').skip(1).step_by(2);
            found.extend(words.map(str::to_owned));
        }
    }
    found
}

#[test]
fn the_page_of_metrics_lists_what_the_library_and_the_functions_count() {
    let page = read("docs/reference/metrics.md");
    let code = read("src/engine/metrics.rs");
    let (_, counts) = code.split_once("\ncounts! {").unwrap();
    let counts = counts.split_once("\n}").unwrap().0;
    let names = counts.lines().filter_map(|line| line.split('"').nth(1));
    let mut counters: BTreeSet<_> = names.map(|name| format!("idempotency_{name}")).collect();
    assert!(counters.len() > 10, "{counters:?}");
    let relay = read("functions/outbox-relay/src/counts.rs");
    let audit = read("functions/drift-audit/src/main.rs");
    let of_relay = between(&relay, "counter!(\"", "\"").into_iter();
    let of_audit = between(&audit, " count(\"", "\"").into_iter();
    counters.extend(of_relay.chain(of_audit).map(str::to_owned));
    assert_eq!(first_cells(&page, "counter"), counters);
    let constants = code.lines().filter(|line| line.starts_with("const "));
    let histograms = constants.filter_map(|line| line.split('"').nth(1));
    let histograms: BTreeSet<_> = histograms
        .filter(|name| name.starts_with("idempotency_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(first_cells(&page, "histogram"), histograms);
    // The code and the page explain each metric in the same words.
    for line in code
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `idempotency_"))
    {
        assert!(page.contains(&format!("| `idempotency_{line}")), "{line}");
    }
}

/// The events that the code logs: the texts that are given to `event`, or to a function that logs
/// one.
fn events() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, code) in sources(&["src"]) {
        for line in code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            let given = [
                "event = \"",
                "events::step(\"",
                "events::step_failed(\"",
                "events::saga(\"",
            ];
            let several = line.contains("(event, ").then_some("= (\"");
            for begins in given.into_iter().chain(several) {
                let words = between(line, begins, "\"").into_iter();
                found.extend(words.filter(|word| is_code(word)).map(str::to_owned));
            }
        }
        if path.ends_with("engine/events.rs") {
            let (_, begun) = code.split_once("..=1 => ").unwrap();
            let begun = begun.split_once("tracing::").unwrap().0;
            found.extend(begun.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found.extend(codes("src/engine/error.rs", "code(&self)"));
    found.extend(codes("src/protocol/key/error.rs", "code(&self)"));
    // A fingerprint returns it, before an engine has its request.
    found.remove("invalid_payload");
    // Named by their code and by a constant.
    found.extend(["response-broken", "completed", "refused"].map(str::to_owned));
    found
}

fn is_code(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

#[test]
fn the_page_of_log_events_lists_each_event() {
    let page = read("docs/reference/log-events.md");
    let (listed, logged) = (first_cells(&page, "event"), events());
    assert!(logged.len() > 50, "{logged:?}");
    assert_eq!(listed, logged);
}

#[test]
fn the_page_of_log_events_lists_each_reason_of_a_batch() {
    let page = read("docs/reference/log-events.md");
    let codes = codes("src/batch/report.rs", "pub(super) fn words(").into_iter();
    let of_errors = read("src/engine/error.rs");
    let reasons: BTreeSet<_> = codes
        .filter(|code| code == "timed_out" || !of_errors.contains(&format!("\"{code}\"")))
        .collect();
    assert!(reasons.len() > 8, "{reasons:?}");
    assert_eq!(first_cells(&page, "reason"), reasons);
}

#[test]
fn the_page_of_the_record_lists_each_attribute() {
    let page = read("docs/reference/record.md");
    let layout = "src/dynamodb/layout.rs";
    let names = codes(layout, "pub(super) fn name(").into_iter();
    let defaults = codes(layout, "impl Default for TableLayout");
    let mut attributes: BTreeSet<_> = names.chain(defaults).collect();
    attributes.insert("step:".to_owned());
    assert_eq!(first_cells(&page, "attribute"), attributes);
    let item = read("src/dynamodb/item.rs");
    let constants = item.lines().filter(|line| line.contains("const "));
    let texts = constants.filter_map(|line| line.split('"').nth(1));
    let is_name = |c: char| c.is_ascii_lowercase() || "_0123456789".contains(c);
    let names = texts.filter(|text| text.chars().all(is_name));
    let mut members: BTreeSet<_> = names.map(str::to_owned).collect();
    // These are the places of an outcome, not names of members.
    for place in ["record", "item", "object"] {
        assert!(
            members.remove(place) && page.contains(&format!("`{place}`")),
            "{place}"
        );
    }
    assert_eq!(first_cells(&page, "member"), members);
}

#[test]
fn the_page_of_permissions_lists_what_the_policy_allows() {
    let page = read("docs/reference/iam.md");
    let policy = read("infra/policy.yaml");
    let mut allowed: BTreeMap<String, &str> = BTreeMap::new();
    for line in policy.lines().map(str::trim) {
        if let Some(action) = line.strip_prefix("- dynamodb:") {
            allowed.insert(format!("dynamodb:{action}"), "each function");
        } else if let Some(rest) = line.strip_prefix("- !If [") {
            let mut parts = rest.split(", ");
            let needed_by = match parts.next().unwrap() {
                "Reads" => "batches, waiting, large outcomes, the claimless form",
                "IsBatch" => "batches",
                other => panic!("a condition that the page doesn't know: {other}"),
            };
            allowed.insert(parts.next().unwrap().to_owned(), needed_by);
        }
    }
    assert!(allowed.len() > 4, "{allowed:?}");
    let sections = sections(&page, "##");
    let (_, table) = sections
        .iter()
        .find(|(heading, _)| heading.starts_with("On the table"))
        .unwrap();
    let rows = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `dynamodb:"));
    let listed: BTreeMap<_, _> = rows
        .map(|row| {
            let (action, rest) = row.split_once("` | ").unwrap();
            (
                format!("dynamodb:{action}"),
                rest.split(" | ").next().unwrap(),
            )
        })
        .collect();
    assert_eq!(listed, allowed);
    for parameter in between(
        &policy
            .split_once("Parameters:")
            .unwrap()
            .1
            .split_once("Conditions:")
            .unwrap()
            .0
            .replace("\n    ", " "),
        "\n  ",
        ":",
    ) {
        assert!(page.contains(&format!("| `{parameter}` |")), "{parameter}");
    }
}

#[test]
fn the_page_of_permissions_lists_each_action_that_the_code_names() {
    let page = read("docs/reference/iam.md");
    let mut looked_at = 0;
    for (path, code) in sources(&["src/dynamodb", "src/sqs"]) {
        for service in ["dynamodb", "s3", "sqs"] {
            for rest in code.split(&format!("{service}:")).skip(1) {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
                let action = &rest[..end.unwrap_or(rest.len())];
                if !action.starts_with(char::is_uppercase) {
                    continue;
                }
                looked_at += 1;
                let named = format!("`{service}:{action}`");
                assert!(page.contains(&named), "{}: {named}", path.display());
            }
        }
    }
    assert!(looked_at > 10, "{looked_at}");
    // The kinds of a business write, of which an action each must be allowed.
    let action = read("src/dynamodb/transaction.rs");
    let kinds = [
        ("write.put", "PutItem"),
        ("write.update", "UpdateItem"),
        ("write.delete", "DeleteItem"),
        ("write.condition_check", "ConditionCheckItem"),
    ];
    for (kind, name) in kinds {
        assert!(action.contains(kind), "{kind}");
        assert!(page.contains(&format!("`dynamodb:{name}`")), "{name}");
    }
}
