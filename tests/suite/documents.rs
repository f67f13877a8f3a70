//! The parts of README, guide and examples that somebody copies.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::pages::files;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<(PathBuf, String)> {
    let mut paths = files(&root().join("docs"), "md");
    paths.push(root().join("README.md"));
    let read = |path: PathBuf| (path.clone(), fs::read_to_string(path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The code blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fenced = fenced(page).into_iter();
    let of_language = fenced.filter(|(words, _)| words.first() == Some(&language));
    of_language.map(|(_, block)| block).collect()
}

/// The code blocks of a page, each with the words after its fence.
fn fenced(page: &str) -> Vec<(Vec<&str>, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(fence) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let block: Vec<_> = lines
            .by_ref()
            .take_while(|line| line.trim() != "```")
            .collect();
        found.push((fence.split(',').collect(), block.join("\n")));
    }
    found
}

/// A page is read on the web, where nothing hides them.
#[test]
fn no_page_has_lines_that_only_rustdoc_hides() {
    for (path, page) in pages() {
        for block in blocks(&page, "rust") {
            let is_hidden = |line: &&str| line.starts_with("# ") || *line == "#";
            let hidden = block.lines().find(is_hidden);
            assert_eq!(hidden, None, "{}", path.display());
        }
    }
}

/// Idioms that readers stop at, for which plain words stand: delivered again, permanently, inside, fix, an operator, instead of.
const NOT_USED: [&str; 10] = [
    "comes again",
    "come again",
    "for good",
    "inside of",
    "mend",
    "mends",
    "mended",
    "a person",
    "in the place of",
    "whoever",
];

#[test]
fn no_page_has_a_word_that_is_not_used() {
    for (path, page) in pages() {
        let words: Vec<_> = page
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        let text = format!(" {} ", words.join(" "));
        let found: Vec<_> = NOT_USED
            .iter()
            .filter(|phrase| text.contains(&format!(" {phrase} ")))
            .collect();
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

#[test]
fn every_main_starts_a_tracing_subscriber() {
    let shown = pages().into_iter().flat_map(|(path, page)| {
        blocks(&page, "rust")
            .into_iter()
            .map(move |b| (path.clone(), b))
    });
    let examples = files(&root().join("examples"), "rs")
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()));
    let mut mains = 0;
    for (path, code) in shown.chain(examples) {
        if let Some((_, main)) = code.split_once("fn main(") {
            mains += 1;
            let begins = main
                .lines()
                .take(5)
                .any(|line| line.contains("tracing_subscriber::fmt()"));
            assert!(begins, "{}: a main is silent", path.display());
        }
    }
    assert!(mains >= 9, "{mains}");
}

/// The commands of `docs/operations/alarms.md` search the fields of logs in JSON.
#[test]
fn every_main_of_a_function_logs_in_json() {
    let examples = files(&root().join("examples"), "rs").into_iter();
    let examples = examples.map(|path| (path.clone(), vec![fs::read_to_string(path).unwrap()]));
    let shown = pages().into_iter();
    let shown = shown.map(|(path, page)| (path, blocks(&page, "rust")));
    let mut functions = 0;
    for (path, codes) in shown.chain(examples) {
        for code in codes {
            let is_function = ["lambda_runtime::run", "lambda_http::run"]
                .iter()
                .any(|run| code.contains(run));
            if let Some((_, main)) = code.split_once("fn main(").filter(|_| is_function) {
                functions += 1;
                let is_json = main.lines().take(5).any(|line| line.contains(".json()"));
                assert!(is_json, "{}: a function logs text", path.display());
            }
        }
    }
    assert!(functions >= 15, "{functions}");
}

/// The library's log has the type of a handler's error alone. A direct invocation's caller gets its text.
#[test]
fn every_worker_and_api_of_a_source_and_a_template_logs_its_handlers_own_errors() {
    let sources = root().join("docs/sources");
    let shown = pages().into_iter();
    let shown = shown.filter(|(path, _)| path.starts_with(&sources) || path.ends_with("README.md"));
    let mains = shown.flat_map(|(path, page)| {
        let mains = blocks(&page, "rust").into_iter();
        let mains = mains.filter(|code| code.contains("fn main("));
        mains.map(move |code| (path.clone(), code))
    });
    let templates = files(&root().join("templates"), "rs").into_iter();
    let templates = templates.map(|path| (path.clone(), fs::read_to_string(path).unwrap()));
    let mut layers = 0;
    for (path, code) in mains.chain(templates) {
        if code.contains("BatchLayer::") || code.contains("IdempotencyLayer::") {
            layers += 1;
            let is_shown = code.contains(".on_error(");
            assert!(is_shown, "{}: its errors are hidden", path.display());
        }
    }
    assert!(layers >= 11, "{layers}");
}

/// A tutorial shows parts of its template, which aren't compiled on the page.
fn is_excerpt(path: &Path, words: &[&str]) -> bool {
    let is_tutorial = path.starts_with(root().join("docs/tutorials"));
    is_tutorial && words.first() == Some(&"rust") && words.contains(&"ignore")
}

/// Without indentation: an excerpt begins at the margin.
fn unindented(code: &str) -> String {
    code.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_excerpt_is_part_of_a_template() {
    let sources: Vec<_> = files(&root().join("templates"), "rs")
        .into_iter()
        .map(|path| format!("\n{}\n", unindented(&fs::read_to_string(path).unwrap())))
        .collect();
    let mut excerpts = 0;
    for (path, page) in pages() {
        for (_, block) in fenced(&page)
            .iter()
            .filter(|(words, _)| is_excerpt(&path, words))
        {
            let lines = format!("\n{}\n", unindented(block));
            let is_part = sources.iter().any(|source| source.contains(&lines));
            assert!(is_part, "{}: no template has\n{block}", path.display());
            excerpts += 1;
        }
    }
    assert!(excerpts >= 2, "{excerpts}");
}

/// The crates that a snippet names by a path, of those that this repository depends on.
fn crates(snippet: &str) -> BTreeSet<String> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let known: BTreeSet<_> = lock
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        .map(|name| name.replace('-', "_"))
        // A module of the library's own, too.
        .filter(|name| name != "http")
        .collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for line in snippet.lines() {
        // Further names of an import are those of its crate.
        let paths = if line.trim_start().starts_with("use ") {
            1
        } else {
            usize::MAX
        };
        for (end, _) in line.match_indices("::").take(paths) {
            let before = line[..end].trim_end_matches(is_name);
            let name = &line[before.len()..end];
            if !before.ends_with(':') && known.contains(name) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// The dependencies of a page's Cargo lines: name, and the rest of the line.
fn dependencies(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for block in blocks(page, "toml") {
        let lines = block.lines().filter_map(|line| line.split_once(" = "));
        let is_dependency = |rest: &str| rest.starts_with('"') || rest.contains("version = ");
        let lines = lines.filter(|(name, rest)| is_dependency(rest) && !PROFILE.contains(name));
        found.extend(lines.map(|(name, rest)| (name.to_owned(), rest.to_owned())));
    }
    found
}

/// Keys of a profile, whose values look like versions.
const PROFILE: [&str; 2] = ["lto", "panic"];

#[test]
fn every_crate_of_a_snippet_has_its_cargo_line_on_the_page() {
    let mut looked_at = 0;
    for (path, page) in pages() {
        let named: BTreeSet<_> = dependencies(&page)
            .into_iter()
            .map(|(name, _)| name.replace('-', "_"))
            .collect();
        let snippets = fenced(&page).into_iter();
        // A template has the dependencies of its excerpts.
        let snippets = snippets
            .filter(|(words, _)| words.first() == Some(&"rust") && !is_excerpt(&path, words));
        for (_, snippet) in snippets {
            let missing: Vec<_> = crates(&snippet).difference(&named).cloned().collect();
            assert!(
                missing.is_empty(),
                "{}: {missing:?} in\n{snippet}",
                path.display()
            );
            looked_at += 1;
        }
    }
    assert!(looked_at > 10, "{looked_at}");
}

#[test]
fn every_cargo_line_has_a_version_and_features_that_exist() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for (path, page) in pages() {
        for (name, rest) in dependencies(&page) {
            let at = format!("{}: {name} = {rest}", path.display());
            let version = rest.split('"').nth(1).unwrap();
            let entry = format!("name = \"{name}\"\nversion = \"{version}.");
            assert!(lock.contains(&entry), "another version is tested: {at}");
            if name == "lambda-idempotency" {
                let features = rest.split_once("features = [").map_or("", |(_, list)| list);
                let features = features.split(']').next().unwrap();
                for feature in features.split(", ").filter(|name| !name.is_empty()) {
                    let line = format!("\n{} = [", feature.trim_matches('"'));
                    assert!(manifest.contains(&line), "no such feature: {at}");
                }
            }
            let is_bare = name != "aws-sdk-dynamodb" || rest.contains("default-features = false");
            assert!(is_bare, "a second TLS stack: {at}");
        }
    }
}

/// Of the macros and the command line nobody calls Rust functions.
#[test]
fn each_published_library_is_compared_with_its_version_before() {
    let script = fs::read_to_string(root().join("scripts/test")).unwrap();
    let published = script.lines().find(|line| line.starts_with("PUBLISHED = "));
    let (_, names) = published.unwrap().split_once("for name in (").unwrap();
    let names = names.split('"').skip(1).step_by(2);
    let names = names.filter(|name| !["macros", "cli"].contains(name));
    let mut published: BTreeSet<_> = names
        .map(|name| format!("lambda-idempotency-{name}"))
        .collect();
    published.insert("lambda-idempotency".to_owned());
    let workflow = fs::read_to_string(root().join(".github/workflows/ci.yml")).unwrap();
    let mut lines = workflow.lines();
    let packages = lines.find_map(|line| line.trim().strip_prefix("package: "));
    let compared: BTreeSet<_> = packages.unwrap().split(", ").map(str::to_owned).collect();
    assert_eq!(compared, published);
}
