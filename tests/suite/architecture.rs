//! Imports in `src/` point one way: each room knows those below it, and no other.
//!
//! Tests inside `src/` may import what they like. `scripts/figures circles` shows the imports of each file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::pages::files;

/// Each room, and what it may import: rooms, or single names of one. From the ground up.
const ROOMS: &[(&str, &str)] = &[
    // Pages of the documentation.
    ("guide", ""),
    // The error of all that is set up.
    ("setup", ""),
    ("protocol", "setup"),
    ("store", "protocol"),
    ("engine", "protocol store"),
    ("idempotency", "setup protocol store engine"),
    // A store; its outbox hands writes to a claim.
    ("dynamodb", "setup protocol store engine::claim::Claim"),
    ("window", "setup protocol store"),
    ("envelope", "protocol"),
    // An adapter calls the engine. It names the store as a bound, and reports its errors; it never calls it.
    (
        "batch",
        "setup protocol engine idempotency envelope window \
        store::Store store::StoreError store::BoxError",
    ),
    ("streams", "protocol batch"),
    ("kinesis", STREAM),
    ("dynamodb_streams", STREAM),
    ("kafka", STREAM),
    ("cloudwatch_logs", STREAM),
    ("mq", STREAM),
    ("s3_events", "protocol batch streams envelope"),
    // Wraps another source.
    ("pipes", "protocol batch streams sqs"),
    (
        "invoke",
        "setup protocol engine idempotency envelope store::Store store::StoreError store::BoxError",
    ),
    (
        "sqs",
        "protocol engine idempotency batch store::Store store::StoreError store::BoxError",
    ),
    (
        "http",
        "setup protocol engine idempotency store::Store store::StoreError store::BoxError",
    ),
    ("powertools", "protocol"),
    // Helpers to test what stands on all of the others.
    (
        "testing",
        "setup protocol store engine idempotency dynamodb invoke sqs \
        kinesis kafka dynamodb_streams",
    ),
];

/// A source of batches: its record, its order, its reply.
const STREAM: &str = "protocol batch streams";

/// `test = false` keeps a harness from being compiled for nothing, and would skip tests in silence.
#[test]
fn what_has_no_harness_has_no_unit_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["crates", "functions", "verify"].map(|folder| fs::read_dir(root.join(folder)));
    let packages = folders.into_iter().flat_map(|folder| folder.unwrap());
    let mut without = 0;
    for package in packages.map(|package| package.unwrap().path()) {
        let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap_or_default();
        if !manifest.contains("\ntest = false") || package.ends_with("fuzz") {
            continue;
        }
        without += 1;
        let mut files = files(&package.join("src"), "rs");
        if package.join("src/lib.rs").exists() && !manifest.contains("[lib]\ntest = false") {
            files = vec![package.join("src/main.rs")];
        }
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains("#[cfg(test)]"), "{}", file.display());
        }
    }
    assert!(without > 0);
}

#[test]
fn imports_point_towards_the_protocol() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = files(&source, "rs");
    let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
    let texts = files
        .iter()
        .map(|path| (path.strip_prefix(&source).unwrap(), read(path)));
    let texts: Vec<_> = texts.collect();
    let for_tests: Vec<_> = texts
        .iter()
        .flat_map(|(path, text)| test_modules(path, text))
        .collect();
    let mut looked_at = 0;
    let mut wrong = BTreeSet::new();
    for (path, text) in &texts {
        let module = path.with_extension("");
        // The crate's root hands names of every room on.
        if module == Path::new("lib") || for_tests.iter().any(|test| module.starts_with(test)) {
            continue;
        }
        looked_at += 1;
        wrong.extend(wrong_imports(path, text));
    }
    assert!(
        looked_at > 100,
        "{looked_at} files: is this still the source?"
    );
    assert!(wrong.is_empty(), "{}", Vec::from_iter(wrong).join("\n"));
}

#[test]
fn an_import_that_points_the_wrong_way_is_named() {
    let wrong = |path, text| wrong_imports(Path::new(path), text);

    let allowed = [
        (
            "engine/end.rs",
            "use crate::store::{Answer, Store};\nuse crate::protocol::key::Key;",
        ),
        (
            "engine/end.rs",
            "// use crate::http::Route;\n/// [`crate::http::Route`]\nfn run() {}",
        ),
        (
            "engine/end.rs",
            "fn run() {}\n#[cfg(test)]\nmod tests {\n    use crate::http::Route;\n}",
        ),
        (
            "http.rs",
            "impl<S: crate::store::Store> Layer<S> {}\nmod inner { use super::Route; }",
        ),
        ("dynamodb/statement.rs", "use super::super::change::Change;"),
    ];
    for (path, text) in allowed {
        assert_eq!(wrong(path, text), Vec::<String>::new(), "{text}");
    }

    let not_allowed = [
        (
            "engine/end.rs",
            "use crate::http::{self, events::{Incoming, Kind}};",
            3,
        ),
        (
            "store.rs",
            "fn store() -> crate::engine::Run { super::sqs::run() }",
            2,
        ),
        (
            "sqs/run.rs",
            "use crate::store::transaction::Write;\nuse crate::http;",
            2,
        ),
        (
            "protocol/key.rs",
            "use crate::{http::Route, Fingerprint};",
            2,
        ),
        ("sns/record.rs", "use std::fmt;", 1),
    ];
    for (path, text, number) in not_allowed {
        let found = wrong(path, text);
        assert_eq!(found.len(), number, "{text}: {found:?}");
    }
    assert_eq!(
        wrong("engine/end.rs", "use crate::http::Route;"),
        [
            "src/engine/end.rs imports crate::http::Route: engine must not know it, only protocol, store"
        ],
    );
}

/// The modules that a file declares for tests alone.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let declared = lines.windows(2).filter_map(|pair| match pair {
        [attribute, module]
            if attribute.starts_with("#[cfg(test)]") || attribute.starts_with("#[cfg(all(test") =>
        {
            module.rsplit("mod ").next()?.strip_suffix(';')
        }
        _ => None,
    });
    declared
        .map(|name| path.with_extension("").join(name))
        .collect()
}

/// Returns the imports of one file that the table doesn't allow, one line each.
fn wrong_imports(path: &Path, text: &str) -> Vec<String> {
    let module: Vec<_> = path
        .with_extension("")
        .iter()
        .map(|part| part.to_str().unwrap().to_owned())
        .collect();
    let room = module[0].as_str();
    let Some((_, known)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        return vec![format!(
            "src/{}: {room} has no line in ROOMS",
            path.display()
        )];
    };
    let may = |import: &str| {
        let below = |name: &str| {
            import
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        below(room) || known.split_whitespace().any(below)
    };
    let (path, only) = (path.display(), known.replace(' ', ", "));
    let wrong = imports(&module, text)
        .into_iter()
        .filter(|import| !may(import));
    wrong
        .map(|import| {
            format!("src/{path} imports crate::{import}: {room} must not know it, only {only}")
        })
        .collect()
}

/// Every path of a file that begins at the crate's root, or that `super` leads to another room.
/// Comments and tests are left out.
fn imports(module: &[String], text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    // In-file tests are the last thing in a file: clippy's `items_after_test_module`.
    let mut code = String::new();
    for line in lines {
        if line.starts_with("mod tests {") {
            break;
        }
        code.push_str(line);
        code.push('\n');
    }
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if starts_a_path(&code, at) {
            expand(&code[at + "crate::".len()..], "", &mut found);
        }
    }
    for (at, _) in code.match_indices("super::") {
        if starts_a_path(&code, at) {
            let mut rest = &code[at..];
            let mut parent = module;
            while let Some(further) = rest.strip_prefix("super::") {
                rest = further;
                parent = parent.split_last().map_or(parent, |(_, parent)| parent);
            }
            if parent.is_empty() {
                let mut names = Vec::new();
                expand(rest, "", &mut names);
                // An inline module's `super` is its own file.
                names.retain(|name| {
                    let room = name.split("::").next();
                    ROOMS.iter().any(|(own, _)| room == Some(own))
                });
                found.extend(names);
            }
        }
    }
    found
}

fn starts_a_path(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|before: char| before.is_alphanumeric() || "_:$".contains(before))
}

/// Adds every path of a `use` tree, or the one of an expression or a type; gives what comes after
/// it.
fn expand<'a>(text: &'a str, prefix: &str, found: &mut Vec<String>) -> &'a str {
    let mut text = text.trim_start();
    let Some(inside) = text.strip_prefix('{') else {
        let end = text
            .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let path = match (prefix, name) {
            (_, "self" | "") => prefix.to_owned(),
            ("", name) => name.to_owned(),
            (prefix, name) => format!("{prefix}::{name}"),
        };
        return if let Some(rest) = rest.strip_prefix("::") {
            expand(rest, &path, found)
        } else {
            found.push(path);
            rest
        };
    };
    text = inside;
    loop {
        // Between two names stand a comma, white space, and what a name is called here.
        let end = text.find([',', '}', '{']).unwrap_or(text.len());
        if text[..end].trim().is_empty() && text[end..].starts_with('}') {
            return &text[end + 1..];
        }
        text = expand(text, prefix, found);
        let end = text.find([',', '}']).unwrap_or(text.len());
        text = text[end..].trim_start_matches(',');
        if text.is_empty() {
            return text;
        }
    }
}
