//! The HTTP layer, as its clients see it: real events of each of Lambda's doors, through `lambda_http`, on real servers.

mod answers;
mod api;
mod authentication;
mod axum_router;
mod codings;
mod conflicts;
mod errors;
mod events;
mod fingerprints;
mod hang_ups;
mod keys;
mod outcomes;
mod refusals;
mod replay_hook;
mod replays;
mod requests;
mod routes;
mod scopes;
mod selectors;
mod silence;
mod steps;
mod streams;

#[test]
fn each_test_that_the_page_names_exists() {
    let page = include_str!("http_layer/draft.md");
    let named = crate::support::pages::named_tests(page, "tests/suite/http_layer");
    assert!(named >= 20, "{named}");
}
