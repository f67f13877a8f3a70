//! The key of a request, and the tenant that it belongs to.

use http::header::HeaderName;
use lambda_idempotency::OnMissingKey;
use lambda_idempotency::http::IdempotencyLayer;

use super::api::{Api, Call, Door, place_order};
use crate::on_each_server;
use crate::secrets::Log;
use crate::support::Server;

on_each_server!(a_request_without_a_key_is_refused);
async fn a_request_without_a_key_is_refused(server: Server) {
    let api = Api::new(&server, place_order).await;
    for door in Door::ALL {
        api.send(&door.post(None).json("{}"))
            .await
            .assert_problem(400, "key-missing");
    }
    assert_eq!(api.runs(), 0);
}

on_each_server!(a_request_without_a_key_runs_unprotected_where_the_policy_says_so);
async fn a_request_without_a_key_runs_unprotected_where_the_policy_says_so(server: Server) {
    let policy =
        |once: lambda_idempotency::Builder| once.on_missing_key(OnMissingKey::RunUnprotected);
    let api = Api::configured(&server, policy, |layer| layer, place_order).await;
    for run in ["order 1", "order 2"] {
        let answer = api.send(&Door::Http.post(None).json("{}")).await;
        assert_eq!((answer.text(), answer.is_replayed()), (run, false));
    }
}

fn keys(values: &[&str]) -> Call {
    Door::Alb.post(None).headers("Idempotency-Key", values)
}

on_each_server!(each_bad_key_is_refused_for_its_own_reason);
async fn each_bad_key_is_refused_for_its_own_reason(server: Server) {
    let (log, _capture) = Log::capture();
    let api = Api::new(&server, place_order).await;
    let oversized = "x".repeat(256);
    let bad = [
        (&["a", "b"][..], "key-repeated"),
        (&["a", "a"], "key-repeated"),
        (&["a, b"], "key-repeated"),
        (&[r#""a","b""#], "key-repeated"),
        (&[""], "key-empty"),
        (&["  "], "key-empty"),
        (&[r#""""#], "key-empty"),
        (&[oversized.as_str()], "key-too-long"),
        (&["schlüssel"], "key-not-ascii"),
        (&["a\tb"], "key-control-character"),
        (&[r#""a"#], "key-malformed"),
        (&[r#""a\n""#], "key-malformed"),
        (&[r#""a";v=1"#], "key-parameters"),
    ];
    for (values, code) in bad {
        api.send(&keys(values)).await.assert_problem(400, code);
    }
    let missing = api.send(&Door::Alb.post(None)).await;
    missing.assert_problem(400, "key-missing");
    assert_eq!(api.runs(), 0);
    let log = log.text();
    let events = log.matches("event=").count();
    assert_eq!(events, bad.len() + 1, "one each: {log}");
    assert_eq!(
        api.send(&keys(&["x".repeat(255).as_str()])).await.status,
        201
    );
}

on_each_server!(a_header_that_a_gateway_joined_is_a_repeated_one);
async fn a_header_that_a_gateway_joined_is_a_repeated_one(server: Server) {
    let api = Api::new(&server, place_order).await;
    let joined = Door::Http
        .post(None)
        .headers("Idempotency-Key", &["a", "b"]);
    api.send(&joined).await.assert_problem(400, "key-repeated");
}

on_each_server!(bare_and_quoted_name_the_same_key);
async fn bare_and_quoted_name_the_same_key(server: Server) {
    let api = Api::new(&server, place_order).await;
    for same in ["cart-17", r#""cart-17""#, r#" "cart-17" "#] {
        assert_eq!(api.send(&keys(&[same])).await.text(), "order 1", "{same}");
    }
    for same in [r#"say "hi"\now"#, r#""say \"hi\"\\now""#] {
        assert_eq!(api.send(&keys(&[same])).await.text(), "order 2", "{same}");
    }
}

on_each_server!(strict_mode_takes_the_quoted_form_only);
async fn strict_mode_takes_the_quoted_form_only(server: Server) {
    let strict = |layer: IdempotencyLayer| layer.settings(|settings| settings.strict = true);
    let api = Api::configured(&server, |once| once, strict, place_order).await;
    api.send(&keys(&["cart-17"]))
        .await
        .assert_problem(400, "key-not-quoted");
    api.send(&keys(&[""]))
        .await
        .assert_problem(400, "key-empty");
    assert_eq!(api.send(&keys(&[r#""cart-17""#])).await.text(), "order 1");
}

on_each_server!(the_header_and_the_length_of_a_key_are_settings);
async fn the_header_and_the_length_of_a_key_are_settings(server: Server) {
    let name = HeaderName::from_static("x-request-token");
    let api = Api::configured(
        &server,
        |once| once.settings(|settings| settings.max_token_chars = 4),
        |layer| layer.header(name),
        place_order,
    )
    .await;
    let call = |key| Door::Http.post("elsewhere").header("x-request-token", key);
    assert_eq!(api.send(&call("abcd")).await.text(), "order 1");
    assert!(api.send(&call("abcd")).await.is_replayed());
    api.send(&call("abcde"))
        .await
        .assert_problem(400, "key-too-long");
    api.send(&Door::Http.post("abcd"))
        .await
        .assert_problem(400, "key-missing");
}

on_each_server!(a_scope_keeps_tenants_apart);
async fn a_scope_keeps_tenants_apart(server: Server) {
    let tenant = |parts: &http::request::Parts| {
        Some(parts.headers.get("x-tenant-id")?.to_str().ok()?.to_owned())
    };
    let layer = |once| IdempotencyLayer::scoped(once, tenant);
    let api = Api::layered(&server, layer, place_order).await;
    let call = |tenant| Door::Http.post("cart-1").header("x-tenant-id", tenant);

    assert_eq!(api.send(&call("a")).await.text(), "order 1");
    assert_eq!(api.send(&call("b")).await.text(), "order 2");
    api.send(&Door::Http.post("cart-1"))
        .await
        .assert_problem(403, "scope-missing");

    for (tenant, order) in [("a", "order 1"), ("b", "order 2")] {
        let retry = api.send(&call(tenant)).await;
        assert!(retry.is_replayed());
        assert_eq!(retry.text(), order);
    }
}

on_each_server!(without_a_scope_clients_share_their_keys);
async fn without_a_scope_clients_share_their_keys(server: Server) {
    let api = Api::new(&server, place_order).await;
    let call = |client| Door::Http.post("cart-1").header("authorization", client);
    assert_eq!(api.send(&call("Bearer a")).await.text(), "order 1");
    // The documentation asks for a scope so loudly because of this.
    assert_eq!(api.send(&call("Bearer b")).await.text(), "order 1");
}
