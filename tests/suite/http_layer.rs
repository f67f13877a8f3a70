//! The HTTP layer, as its clients see it: real events of each of Lambda's doors, through `lambda_http`, on real servers.

mod answers;
mod api;
mod axum_router;
mod conflicts;
mod events;
mod fingerprints;
mod keys;
mod outcomes;
mod refusals;
mod replays;
mod requests;
mod routes;
mod scopes;
mod silence;
mod steps;
mod streams;

/// A page that names a test that is gone promises what nobody checks.
#[test]
fn each_test_that_the_page_names_exists() {
    let page = include_str!("../../docs/http.md");
    let modules = [
        ("answers", include_str!("http_layer/answers.rs")),
        ("conflicts", include_str!("http_layer/conflicts.rs")),
        ("events", include_str!("http_layer/events.rs")),
        ("fingerprints", include_str!("http_layer/fingerprints.rs")),
        ("keys", include_str!("http_layer/keys.rs")),
        ("outcomes", include_str!("http_layer/outcomes.rs")),
        ("refusals", include_str!("http_layer/refusals.rs")),
        ("requests", include_str!("http_layer/requests.rs")),
        ("routes", include_str!("http_layer/routes.rs")),
        ("scopes", include_str!("http_layer/scopes.rs")),
    ];
    let mut named = 0;
    for (module, source) in modules {
        for rest in page.split(&format!("`{module}::")).skip(1) {
            let test = rest.split('`').next().unwrap();
            let exists = source.contains(&format!("async fn {test}("));
            assert!(exists, "{module}::{test}");
            named += 1;
        }
    }
    assert!(named > 20, "{named}");
}
