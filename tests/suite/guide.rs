//! The tests that `docs/testing.md` shows or names.

#[allow(dead_code, reason = "a test can't serve")]
mod api;
mod axum;
#[allow(dead_code, reason = "a test can't serve")]
mod invocation;
mod kinesis;
#[allow(dead_code, reason = "a test can't serve")]
mod queue;
mod shared;
#[allow(dead_code, reason = "a test can't serve")]
mod stream;
mod transaction;

/// `UPDATE_PAGES=1` writes them into the page.
#[test]
fn the_page_on_testing_shows_the_tests_that_run() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = root.join("docs/testing.md");
    let shown = std::fs::read_to_string(&page).unwrap();
    let mut wanted = shown.clone();
    for name in ["queue", "api", "kinesis", "transaction"] {
        let path = format!("tests/suite/guide/{name}.rs");
        let file = std::fs::read_to_string(root.join(&path)).unwrap();
        let head = format!("<!-- {path} -->\n```rust\n");
        let (before, rest) = wanted.split_once(&head).expect(&path);
        let (_, after) = rest.split_once("```\n").expect(&path);
        wanted = format!("{before}{head}{file}```\n{after}");
    }
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&page, &wanted).unwrap();
    } else {
        assert_eq!(shown, wanted, "write it with UPDATE_PAGES=1");
    }
}
