//! The tests of `docs/testing.md`: the page shows these files as they are.

#[allow(dead_code, reason = "a test can't serve")]
mod api;
mod axum;
#[allow(dead_code, reason = "a test can't serve")]
mod invocation;
#[allow(dead_code, reason = "a test can't serve")]
mod queue;
mod shared;
#[allow(dead_code, reason = "a test can't serve")]
mod stream;
mod transaction;

#[test]
fn the_page_on_testing_shows_the_tests_that_run() {
    let page = include_str!("../../docs/testing.md");
    for (name, file) in [
        ("queue", include_str!("guide/queue.rs")),
        ("api", include_str!("guide/api.rs")),
        ("axum", include_str!("guide/axum.rs")),
        ("invocation", include_str!("guide/invocation.rs")),
        ("stream", include_str!("guide/stream.rs")),
        ("transaction", include_str!("guide/transaction.rs")),
        ("shared", include_str!("guide/shared.rs")),
    ] {
        assert!(
            page.contains(&format!("```rust\n{file}```")),
            "docs/testing.md doesn't show tests/suite/guide/{name}.rs as it is: run scripts/testing-page"
        );
    }
}
