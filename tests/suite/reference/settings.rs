//! Each setting has a row in `docs/reference/settings.md`, with the default that the code has.

use std::collections::{BTreeMap, BTreeSet};

use lambda_idempotency::{Idempotency, store::MemoryStore};

use super::{between, read, sections, sources};

const PAGE: &str = "docs/reference/settings.md";

/// Types whose methods make a value, and set nothing up.
const VALUES: &[&str] = &[
    "Event",
    "Guard",
    "Journal",
    "Key",
    "Outcome",
    "Saga",
    "StepEntry",
    "StoreError",
    "TestClaim",
    "TestInvocation",
    "TestMessage",
    "TestRecord",
    "TestRequest",
    "Write",
];

/// The files of structs of fields, the type whose settings they are, and the module that gives them.
const FIELDS: &[(&str, &str, &str)] = &[
    ("src/engine/settings.rs", "Builder", "lambda_idempotency"),
    ("src/batch/settings.rs", "BatchLayer", "batch"),
    ("src/http/settings.rs", "IdempotencyLayer", "http"),
    ("src/invoke/settings.rs", "InvokeLayer", "invoke"),
    ("src/dynamodb/layout.rs", "TableLayout", "dynamodb"),
    ("src/sqs/visibility.rs", "Visibility", "sqs"),
];

/// A public method that gives or changes the type, or gives the service of a layer, or a public field of
/// `Settings`, `TableLayout` or `Visibility`: with its documentation, and the end of the address of that.
struct Setting {
    of: String,
    name: String,
    doc: String,
    address: String,
}

fn settings(folder: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    for (path, code) in sources(&[folder]) {
        let mut of = String::new();
        let (mut item, mut fields_of) = ("", None);
        let mut doc = String::new();
        let mut lines = code.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("impl") {
                let head = line.split(" for ").last().unwrap_or_default();
                of = type_of(head);
                doc.clear();
            } else if let Some(name) = struct_of_fields(line) {
                item = name;
                let owner = FIELDS.iter().find(|(file, ..)| path.ends_with(file));
                fields_of = Some(owner.unwrap_or_else(|| panic!("{}", path.display())));
                doc.clear();
            } else if line == "}" {
                fields_of = None;
            } else if let Some(((_, of, module), name)) = fields_of.zip(field(line)) {
                found.push(Setting {
                    of: (*of).to_owned(),
                    name: name.to_owned(),
                    doc: std::mem::take(&mut doc),
                    address: format!("/{module}/struct.{item}.html#structfield.{name}"),
                });
            } else if let Some(text) = line.strip_prefix("    ///") {
                doc.push_str(text);
            } else if let Some(rest) = method(line) {
                let mut signature = rest.to_owned();
                while !signature.ends_with('{') && !signature.ends_with(';') {
                    signature.push_str(lines.next().unwrap().trim());
                }
                let name = rest.split(['<', '(']).next().unwrap().to_owned();
                // The fields are settings, and not the method that gives them.
                if is_setting(&signature) && name != "settings" {
                    let address = format!("/struct.{of}.html#method.{name}");
                    let doc = std::mem::take(&mut doc);
                    found.push(Setting {
                        of: of.clone(),
                        name,
                        doc,
                        address,
                    });
                }
                doc.clear();
            } else if !line.trim_start().starts_with("#[") {
                doc.clear();
            }
        }
    }
    found
}

fn method(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("    pub ")?;
    rest.trim_start_matches("const ").strip_prefix("fn ")
}

/// The name of a struct whose public fields are settings.
fn struct_of_fields(line: &str) -> Option<&str> {
    let name = line.strip_prefix("pub struct ")?.strip_suffix(" {")?;
    let all = ["Settings", "TableLayout", "Visibility"];
    all.contains(&name).then_some(name)
}

fn field(line: &str) -> Option<&str> {
    let (name, _) = line.strip_prefix("    pub ")?.split_once(": ")?;
    Some(name)
}

/// `impl Builder {` is of `Builder`.
fn type_of(head: &str) -> String {
    let head = head.trim_start_matches("impl");
    let mut depth = 0;
    let start = head.find(|c: char| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0 && c.is_uppercase()
    });
    let rest = &head[start.unwrap_or(head.len())..];
    let end = rest.find(|c: char| !c.is_alphanumeric());
    rest[..end.unwrap_or(rest.len())].to_owned()
}

fn is_setting(signature: &str) -> bool {
    let signature = signature.split("where").next().unwrap();
    let (arguments, result) = signature.rsplit_once("->").unwrap_or((signature, ""));
    let receivers = ["(self", "(mut self", "(&self"];
    let takes_itself = receivers.iter().any(|own| arguments.contains(own));
    let gives = result.trim_start();
    let gives_itself = gives.starts_with("Self") || gives.starts_with("Result<Self");
    let changes_itself = arguments.contains("(&mut self") && gives.is_empty();
    changes_itself || takes_itself && (gives_itself || gives.contains("ServiceFn<"))
}

/// The rows of a section: setting, and default.
fn rows(body: &str) -> BTreeMap<String, String> {
    let rows = body.lines().filter_map(|line| line.strip_prefix("| [`"));
    rows.map(|row| {
        let name = row.split('`').next().unwrap();
        let default = row.split(" | ").nth(1).unwrap();
        (name.to_owned(), default.to_owned())
    })
    .collect()
}

fn page() -> BTreeMap<String, BTreeMap<String, String>> {
    let page = read(PAGE);
    let sections = sections(&page, "##").into_iter();
    sections
        .map(|(heading, body)| (heading.to_owned(), rows(&body)))
        .collect()
}

#[test]
fn each_setting_has_a_row_and_each_row_a_setting() {
    let text = read(PAGE);
    let page = page();
    let mut by_type: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let all = settings("src").into_iter();
    for setting in all.filter(|setting| !VALUES.contains(&setting.of.as_str())) {
        let row = format!("| [`{}`](https://docs.rs/", setting.name);
        let mut rows = text.lines().filter(|line| line.starts_with(&row));
        let end = format!("{}) |", setting.address);
        assert!(rows.any(|row| row.contains(&end)), "no row links to {end}");
        by_type.entry(setting.of).or_default().insert(setting.name);
    }
    for setting in settings("crates/emf/src") {
        let exporter = by_type.entry("Exporter of metrics".to_owned()).or_default();
        exporter.insert(setting.name);
    }
    let number: usize = by_type.values().map(BTreeSet::len).sum();
    assert!(number > 100, "{number}");
    let without: Vec<_> = by_type
        .keys()
        .filter(|of| !page.contains_key(*of))
        .collect();
    assert!(without.is_empty(), "no section for {without:?}");
    for (of, names) in by_type {
        let rows = page
            .get(&of)
            .unwrap_or_else(|| panic!("{of} has no section"));
        let rows: BTreeSet<_> = rows.keys().cloned().collect();
        assert_eq!(rows, names, "{of}");
    }
}

/// The figures of a text: `1,024` and `15`.
fn figures(text: &str) -> Vec<String> {
    let is_part = |c: char| !(c.is_ascii_digit() || c == ',');
    let words = text.split(is_part).map(|word| word.trim_matches(','));
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_default_has_the_figures_of_the_documentation() {
    let page = page();
    let mut compared = 0;
    for setting in settings("src") {
        let Some(default) = page
            .get(&setting.of)
            .and_then(|rows| rows.get(&setting.name))
        else {
            continue;
        };
        let Some((_, documented)) = setting.doc.split_once("Default: ") else {
            continue;
        };
        // Further sentences are not the default's. A closing dot may end the text, too.
        let documented = documented.split(". ").next().unwrap();
        // Words in code are names.
        let documented: String = documented.split('`').step_by(2).collect();
        let documented = figures(&documented);
        compared += documented.len();
        let shown = figures(default);
        let missing: Vec<_> = documented
            .iter()
            .filter(|figure| !shown.contains(figure))
            .collect();
        assert!(
            missing.is_empty(),
            "{}::{}: {missing:?} in {default}",
            setting.of,
            setting.name
        );
    }
    assert!(compared > 12, "{compared}");
}

#[test]
fn each_default_is_that_of_a_new_builder() {
    let builder = format!("{:?}", Idempotency::builder(MemoryStore::new()));
    let value = |field: &str| {
        let found = between(&builder, &format!(" {field}: "), ",");
        (*found
            .first()
            .unwrap_or_else(|| panic!("{field}: {builder}")))
        .to_owned()
    };
    let page = page();
    let shown = |setting: &str| page["Builder"][setting].clone();
    for (setting, in_words, built) in [
        ("failure_retention", "1 hour", "3600s"),
        ("lease", "15 minutes", "900s"),
        ("max_duration", "15 minutes", "900s"),
        ("skew_margin", "1 second", "1s"),
        ("store_timeout", "10 seconds", "10s"),
        ("max_retry_after", "30 seconds", "30s"),
        ("inline_limit", "8 KiB", "8192"),
        ("max_token_chars", "255", "255"),
        ("detached_limit", "1,024", "1024"),
        ("group_requests", "off", "false"),
        ("renewed_lease", "none", "None"),
        ("max_attempts", "no limit", "None"),
        ("on_crash", "`OnCrash::RunAgain`", "RunAgain"),
        ("in_flight", "`InFlight::FailFast`", "FailFast"),
        (
            "on_store_unavailable",
            "`OnStoreUnavailable::FailClosed`",
            "FailClosed",
        ),
        ("on_missing_key", "`OnMissingKey::Refuse`", "Refuse"),
        ("unrecorded", "`Unrecorded::Return`", "Return"),
    ] {
        assert!(
            shown(setting).starts_with(in_words),
            "{setting}: {}",
            shown(setting)
        );
        let value = value(setting);
        assert_eq!(value.trim_end_matches([' ', '}']), built, "{setting}");
    }
}

#[test]
fn each_environment_variable_has_a_row() {
    let page = read(PAGE);
    let (_, table) = page.split_once("## Environment variables").unwrap();
    let mut looked_at = 0;
    for (path, code) in sources(&["src", "crates/emf/src"]) {
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in lines.filter(|line| line.contains("VARIABLE") || line.contains("env::var")) {
            let is_variable = |word: &&str| {
                !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            };
            for word in line.split('"').skip(1).step_by(2).filter(is_variable) {
                looked_at += 1;
                let row = format!("| `{word}` |");
                assert!(table.contains(&row), "{}: {word}", path.display());
            }
        }
    }
    assert!(looked_at > 4, "{looked_at}");
}

#[test]
fn what_old_records_depend_on_is_said_to_be_set_before_it_goes_live() {
    let names_records = |setting: &Setting| match setting.of.as_str() {
        "TableLayout" => true,
        "IdempotencyLayer" => ["operation", "route"].contains(&setting.name.as_str()),
        _ => setting.name == "envelope",
    };
    let all = settings("src").into_iter();
    let fixed: Vec<_> = all
        .filter(|setting| setting.name.starts_with("fingerprint") || names_records(setting))
        .collect();
    assert!(fixed.len() > 16, "{}", fixed.len());
    for setting in fixed {
        let (of, name) = (&setting.of, &setting.name);
        assert!(setting.doc.contains(" goes live"), "{of}::{name}");
    }
}
