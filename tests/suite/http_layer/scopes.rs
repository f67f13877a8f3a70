//! The scope of a key, as the door has verified it.

use lambda_idempotency::http::{IdempotencyLayer, scope};
use serde_json::{Value, json};

use super::api::{Api, Call, Door, place_order};
use crate::on_each_server;
use crate::support::Server;

/// Two clients with one key are two; each gets its own answer again.
async fn assert_apart(api: &Api, one: &Call, other: &Call) {
    let (first, second) = (api.send(one).await, api.send(other).await);
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_ne!(first.text(), second.text());
    for (call, answer) in [(one, first), (other, second)] {
        let retry = api.send(call).await;
        assert!(retry.is_replayed());
        assert_eq!(retry.text(), answer.text());
    }
}

fn authorized(door: Door, authorizer: Value) -> Call {
    door.post("cart-1")
        .request_context("authorizer", authorizer)
}

on_each_server!(each_subject_of_a_token_has_keys_of_its_own);
async fn each_subject_of_a_token_has_keys_of_its_own(server: Server) {
    for door in [Door::Rest, Door::Http] {
        let by_subject = |once| IdempotencyLayer::scoped(once, scope::jwt_claim("sub"));
        let api = Api::layered(&server, by_subject, place_order).await;
        let client = |subject: &str| {
            authorized(
                door,
                match door {
                    Door::Rest => json!({ "claims": { "sub": subject } }),
                    _ => json!({ "jwt": { "claims": { "sub": subject }, "scopes": null } }),
                },
            )
        };
        assert_apart(&api, &client("user-1"), &client("user-2")).await;
    }
}

on_each_server!(each_tenant_of_a_lambda_authorizer_has_keys_of_its_own);
async fn each_tenant_of_a_lambda_authorizer_has_keys_of_its_own(server: Server) {
    for door in [Door::Rest, Door::Http] {
        let by_tenant = |once| IdempotencyLayer::scoped(once, scope::authorizer_context("tenant"));
        let api = Api::layered(&server, by_tenant, place_order).await;
        let client = |tenant: &str| {
            authorized(
                door,
                match door {
                    Door::Rest => json!({ "tenant": tenant }),
                    _ => json!({ "lambda": { "tenant": tenant } }),
                },
            )
        };
        assert_apart(&api, &client("t-1"), &client("t-2")).await;
    }
}

on_each_server!(each_iam_identity_has_keys_of_its_own_in_all_its_sessions);
async fn each_iam_identity_has_keys_of_its_own_in_all_its_sessions(server: Server) {
    let by_identity = |once| IdempotencyLayer::scoped(once, scope::iam_identity());
    let api = Api::layered(&server, by_identity, place_order).await;
    let client = |role: &str, session: &str| {
        let arn = format!("arn:aws:sts::123456789012:assumed-role/{role}/{session}");
        authorized(Door::Http, json!({ "iam": { "userArn": arn } }))
    };
    assert_apart(&api, &client("shop", "task-1"), &client("admin", "task-1")).await;
    assert!(api.send(&client("shop", "task-2")).await.is_replayed());
}

on_each_server!(each_tenant_of_the_function_has_keys_of_its_own);
async fn each_tenant_of_the_function_has_keys_of_its_own(server: Server) {
    let by_tenant = |once| IdempotencyLayer::scoped(once, scope::tenant_id());
    let api = Api::layered(&server, by_tenant, place_order).await;
    let client = |tenant: &str| {
        let mut context = lambda_http::Context::default();
        context.tenant_id = Some(tenant.to_owned());
        Door::Alb.post("cart-1").context(context)
    };
    assert_apart(&api, &client("t-1"), &client("t-2")).await;
    api.send(&Door::Alb.post("cart-1"))
        .await
        .assert_problem(403, "scope-missing");
}

on_each_server!(a_request_whose_scope_is_unknown_or_blank_is_refused);
async fn a_request_whose_scope_is_unknown_or_blank_is_refused(server: Server) {
    let by_subject = |once| IdempotencyLayer::scoped(once, scope::jwt_claim("sub"));
    let blank = |once| IdempotencyLayer::scoped(once, |_| Some(" ".to_owned()));
    for api in [
        Api::layered(&server, by_subject, place_order).await,
        Api::layered(&server, blank, place_order).await,
    ] {
        for door in Door::ALL {
            api.send(&door.post("cart-1"))
                .await
                .assert_problem(403, "scope-missing");
        }
        assert_eq!(api.runs(), 0);
    }
}
