//! Each error and each code has its section in `docs/reference/errors.md`, and each error's text ends
//! with the address of it.

use std::collections::{BTreeMap, BTreeSet};

use lambda_idempotency::dynamodb::DynamoDbError;
use lambda_idempotency::dynamodb::guard::GuardError;
use lambda_idempotency::http::{IdempotencyLayer, RoutePolicy};
use lambda_idempotency::protocol::record::Failure;
use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::store::transaction::WriteError;
use lambda_idempotency::{BuildError, Error, Idempotency, StepError, StoreError};

use super::{between, codes, read, sections, sources};

const PAGE: &str = "docs/reference/errors.md";
const GUIDE: &str =
    "https://docs.rs/lambda-idempotency/latest/lambda_idempotency/guide/errors/index.html#";

/// Errors of the helpers for tests: their reader is at the code that failed.
const OF_TESTS: [&str; 1] = ["TestError"];

/// Texts without their own link.
const UNLINKED: [&str; 18] = [
    // The user's own text.
    "Error::Handler",
    "InvokeError::Handler",
    "SagaError::Compensated",
    "StepError::Effect",
    // The text ends with the link of the store's error.
    "Error::Store",
    // Each is a part of the text of an error that has a link.
    "BatchError::Misconfigured",
    "BodyError",
    "DynamoDbError::AccessDenied",
    "DynamoDbError::Schema",
    "DynamoDbError::TableNotFound",
    "DynamoDbError::Throughput",
    "Omission::Damaged",
    "Omission::Forgotten",
    "Omission::Lost",
    "Omission::NotKept",
    "Omission::NotSerializable",
    "Omission::Redacted",
    "Omission::TooLarge",
];

fn is_derived_error(line: &str) -> bool {
    line.ends_with("thiserror::Error)]")
}

/// The errors of the crates, `Enum::Variant` or `Struct`, each with its attribute `error`.
fn errors() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (path, code) in sources(&["src", "crates/emf/src"]) {
        let derived = code.split("\n#[derive(").skip(1);
        for item in derived.filter(|item| item.lines().next().is_some_and(is_derived_error)) {
            let item = item.split("\n}\n").next().unwrap();
            let name = |rest: &str| {
                let end = |c: char| !c.is_alphanumeric();
                rest.split(end).next().unwrap().to_owned()
            };
            let is_item = |line: &str| {
                let line = line
                    .trim_start_matches("pub(crate) ")
                    .trim_start_matches("pub(in ");
                ["pub", "enum ", "struct ", "crate::"]
                    .iter()
                    .any(|word| line.starts_with(word))
            };
            let declared = item.lines().position(is_item);
            let at = declared.unwrap_or_else(|| panic!("{}: {item}", path.display()));
            let lines: Vec<_> = item.lines().collect();
            if let Some(rest) = lines[at].strip_prefix("pub struct ") {
                found.insert(name(rest), lines[..at].join("\n"));
            } else if let Some(rest) = lines[at].strip_prefix("pub enum ") {
                let mut attributes = String::new();
                for line in &lines[at + 1..] {
                    let variant = line.strip_prefix("    ");
                    let variant = variant.filter(|rest| rest.starts_with(char::is_uppercase));
                    match variant {
                        Some(variant) => {
                            let of = format!("{}::{}", name(rest), name(variant));
                            found.insert(of, std::mem::take(&mut attributes));
                        }
                        None => attributes.push_str(line),
                    }
                }
            }
        }
    }
    found.retain(|name, _| !OF_TESTS.iter().any(|own| name.starts_with(own)));
    found
}

fn page() -> BTreeMap<String, String> {
    let page = read(PAGE);
    let sections = sections(&page, "###");
    let number = sections.len();
    let by_heading: BTreeMap<_, _> = sections
        .into_iter()
        .map(|(heading, body)| (heading.to_owned(), body))
        .collect();
    assert_eq!(by_heading.len(), number, "two sections have one heading");
    by_heading
}

/// The names that a section begins with.
fn names(body: &str) -> &str {
    body.trim_start().split("\n\n").next().unwrap()
}

#[test]
fn each_error_is_on_the_page() {
    let (page, errors) = (read(PAGE), errors());
    assert!(errors.len() > 90, "{}", errors.len());
    let is_transparent = |attribute: &str| attribute.contains("transparent");
    let missing: Vec<_> = errors
        .iter()
        .filter(|(name, attribute)| {
            !is_transparent(attribute) && !page.contains(&format!("`{name}`"))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn each_text_links_to_the_section_that_begins_with_its_error() {
    let page = page();
    let mut unlinked = BTreeSet::new();
    for (name, attribute) in errors() {
        if attribute.contains("transparent") {
            continue;
        }
        let Some(&section) = between(&attribute, "see!(\"", "\")").first() else {
            unlinked.insert(name);
            continue;
        };
        let body = page.get(section);
        let body = body.unwrap_or_else(|| panic!("{name}: there is no section `{section}`"));
        let own = names(body);
        assert!(
            own.contains(&format!("`{name}`")),
            "{section} is not of {name}: {own}"
        );
    }
    assert_eq!(unlinked, UNLINKED.map(str::to_owned).into());
}

#[test]
fn each_code_is_the_name_of_a_section() {
    let page = page();
    let listed = |code: &str| {
        page.values()
            .any(|body| body.contains(&format!("`{code}`")))
    };
    let mut all = codes("src/engine/error.rs", "code(&self)");
    for code in codes("src/protocol/key/error.rs", "code(&self)") {
        let section = code.replace('_', "-");
        assert!(page.contains_key(section.as_str()), "{section}");
    }
    all.extend(codes("src/engine/rejection.rs", "fn as_str("));
    all.extend(codes("src/protocol/outcome.rs", "impl Omission {"));
    let words = read("src/invoke/error.rs") + &read("src/engine/error.rs");
    let words = between(&words, "\"Idempotency.", "\"").into_iter();
    all.extend(words.map(|word| format!("Idempotency.{word}")));
    assert!(all.len() > 50, "{all:?}");
    let intro = read(PAGE);
    let missing: Vec<_> = all
        .iter()
        .filter(|code| !listed(code) && !intro.contains(&format!("`{code}`")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_problem_has_a_section_with_its_status() {
    let (page, words) = (page(), read("src/http/problem.rs"));
    let problems: Vec<_> = between(&words, "=> (", "\", ")
        .into_iter()
        .filter_map(|problem| problem.split_once(", \""))
        .collect();
    assert!(problems.len() > 30, "{problems:?}");
    for (status, code) in problems {
        let named = format!("HTTP {status} `{code}`");
        let body = page.get(code).unwrap_or_else(|| panic!("{code}"));
        assert!(names(body).contains(&named), "{named}: {}", names(body));
    }
}

/// The section that a text links to.
fn linked(text: &str) -> &str {
    let sections = between(&format!("{text}\n"), GUIDE, "\n").len();
    assert_eq!(sections, 1, "{text}");
    text.split_once(GUIDE).unwrap().1
}

#[test]
fn what_an_error_prints_ends_with_its_link() {
    let page = page();
    let once = Idempotency::builder(MemoryStore::new()).namespace("shop");
    let layer = IdempotencyLayer::unscoped(once.build().unwrap());
    let route = layer.route("x", RoutePolicy::off()).unwrap_err();
    let throttled = || {
        let (what, message) = ("table `a`".to_owned(), "the maximum is 7".to_owned());
        StoreError::Throttled(DynamoDbError::Throughput { what, message }.into())
    };
    let rejected = StoreError::Rejected(throttled().into());
    let failure = Failure::of(&throttled());
    let handler = Error::Handler(WriteError::SameTarget { first: 0 });
    let step = StepError::<&str>::Store(throttled());
    let guard = GuardError::Unknown(throttled().into());
    type Own = Error<&'static str>;
    for (text, section) in [
        (Own::Mismatch.to_string(), "mismatch"),
        (Own::Failed(failure).to_string(), "failed"),
        (Own::Unrecorded(throttled()).to_string(), "unrecorded"),
        (Own::NotCommitted(throttled()).to_string(), "not-committed"),
        (
            Own::OutcomeUnknown(throttled()).to_string(),
            "outcome-unknown",
        ),
        (Own::Store(throttled()).to_string(), "store-throttled"),
        (Own::Store(rejected).to_string(), "store-rejected"),
        (handler.to_string(), "same-target"),
        (step.to_string(), "step-not-recorded"),
        (guard.to_string(), "guard-unknown"),
        (format!("{:?}", BuildError::NoNamespace), "no-namespace"),
        (route.to_string(), "route"),
    ] {
        assert_eq!(linked(&text), section, "{text}");
        assert!(page.contains_key(section), "{section}");
    }
}

#[test]
fn the_address_is_written_once_in_each_crate() {
    for folder in ["src", "crates/emf/src"] {
        let sources = sources(&[folder]);
        let places = sources
            .iter()
            .map(|(_, code)| code.matches("guide/errors/index.html").count());
        assert_eq!(places.sum::<usize>(), 1, "{folder}");
    }
}
