//! What makes two requests the same, by setting.

use http::header::HeaderName;
use lambda_idempotency::http::{ConfigError, IdempotencyLayer};
use lambda_idempotency::store::MemoryStore;

use super::api::{Api, Door, place_order};
use crate::on_each_server;

on_each_server! {
    async fn a_chosen_header_belongs_to_the_request(server: Server) {
        let chosen = |layer: IdempotencyLayer<_>| {
            layer.fingerprint_headers([HeaderName::from_static("x-currency")])
        };
        for door in Door::ALL {
            let api = Api::configured(&server, |once| once, chosen, place_order).await;
            let call = |currency| door.post("k-1").header("X-Currency", currency).header("X-Other", currency);
            assert_eq!(api.send(&call("EUR")).await.status, 201);
            assert!(api.send(&call("EUR").header("X-Other", "USD")).await.is_replayed());
            api.send(&call("USD")).await.assert_problem(422, "mismatch");
            api.send(&door.post("k-1")).await.assert_problem(422, "mismatch");
            assert_eq!(api.runs(), 1);
        }
    }
}

on_each_server! {
    async fn fields_that_are_left_out_may_differ_between_retries(server: Server) {
        let without = |layer: IdempotencyLayer<_>| {
            layer.fingerprint_without(["/sent_at", "/client/trace"]).unwrap()
        };
        let api = Api::configured(&server, |once| once, without, place_order).await;
        let call = |body| Door::Http.post("k-1").json(body);
        assert_eq!(api.send(&call(r#"{"sku":"tea","sent_at":1,"client":{"trace":"a"}}"#)).await.status, 201);
        for retry in [
            r#"{"sku":"tea","sent_at":2,"client":{"trace":"b"}}"#,
            r#"{"client":{},"sku":"tea"}"#,
        ] {
            assert!(api.send(&call(retry)).await.is_replayed(), "{retry}");
        }
        for other in [
            r#"{"sku":"jam","sent_at":1,"client":{"trace":"a"}}"#,
            r#"{"sku":"tea","sent_at":1,"client":{"trace":"a","id":7}}"#,
        ] {
            api.send(&call(other)).await.assert_problem(422, "mismatch");
        }
    }
}

#[test]
fn a_pointer_that_cannot_be_meant_stops_the_start_up() {
    for pointer in ["", "sent_at", "#/sent_at", "/a~2"] {
        let once = lambda_idempotency::Idempotency::builder(MemoryStore::new()).namespace("shop");
        let refused = IdempotencyLayer::new(once.build().unwrap()).fingerprint_without([pointer]);
        assert!(
            matches!(refused, Err(ConfigError::Pointer { .. })),
            "{pointer}"
        );
    }
}
