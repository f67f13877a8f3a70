//! The parts of a request that are compared, by setting.

use http::header::HeaderName;
use lambda_idempotency::http::IdempotencyLayer;

use super::api::{Api, Door, place_order};
use crate::on_each_server;
use crate::support::Server;

on_each_server!(a_chosen_header_belongs_to_the_request);
async fn a_chosen_header_belongs_to_the_request(server: Server) {
    let chosen = |layer: IdempotencyLayer| {
        let currency = HeaderName::from_static("x-currency");
        layer.settings(|settings| settings.fingerprint_headers = vec![currency])
    };
    for door in Door::ALL {
        let api = Api::configured(&server, |once| once, chosen, place_order).await;
        let call = |currency| {
            door.post("k-1")
                .header("X-Currency", currency)
                .header("X-Other", currency)
        };
        assert_eq!(api.send(&call("EUR")).await.status, 201);
        assert!(
            api.send(&call("EUR").header("X-Other", "USD"))
                .await
                .is_replayed()
        );
        api.send(&call("USD")).await.assert_problem(422, "mismatch");
        api.send(&door.post("k-1"))
            .await
            .assert_problem(422, "mismatch");
        assert_eq!(api.runs(), 1);
    }
}

on_each_server!(fields_that_are_left_out_may_differ_between_retries);
async fn fields_that_are_left_out_may_differ_between_retries(server: Server) {
    let without = |layer: IdempotencyLayer| {
        let fields = ["/sent_at", "/client/trace"];
        let fields = fields.map(|field| field.parse().unwrap());
        layer.settings(|settings| settings.fingerprint_without = fields.into())
    };
    let api = Api::configured(&server, |once| once, without, place_order).await;
    let call = |body| Door::Http.post("k-1").json(body);
    assert_eq!(
        api.send(&call(r#"{"sku":"tea","sent_at":1,"client":{"trace":"a"}}"#))
            .await
            .status,
        201
    );
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

/// A form as clients send it: the boundary is another one in each request.
fn form(boundary: &str, quantity: &str) -> Vec<u8> {
    let mut body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"quantity\"\r\n\r\n{quantity}\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"label\"; filename=\"tea.png\"\r\n\
         Content-Type: image/png\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(b"\x89PNG\r\n\x1a\n\x00\xff--\r\n");
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

on_each_server!(a_form_with_another_boundary_is_the_same_request);
async fn a_form_with_another_boundary_is_the_same_request(server: Server) {
    for door in Door::ALL {
        let api = Api::new(&server, place_order).await;
        let call = |boundary: &str, quantity| {
            let content_type = format!("multipart/form-data; boundary={boundary}");
            let call = door.post("k-1").header("Content-Type", &content_type);
            call.binary(&form(boundary, quantity))
        };
        assert_eq!(api.send(&call("----One1", "2")).await.status, 201);
        let retry = api.send(&call("----Another2", "2")).await;
        assert!(retry.is_replayed(), "{door:?}: {}", retry.text());
        let other = api.send(&call("----Third3", "3")).await;
        other.assert_problem(422, "mismatch");
        assert_eq!(api.runs(), 1);
    }
}

on_each_server!(a_malformed_form_is_compared_by_its_bytes);
async fn a_malformed_form_is_compared_by_its_bytes(server: Server) {
    let api = Api::new(&server, place_order).await;
    let call = |boundary: &str| {
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let call = Door::Http.post("k-1").header("Content-Type", &content_type);
        call.text(&format!("--{boundary}\r\nno end"))
    };
    assert_eq!(api.send(&call("one")).await.status, 201);
    assert!(api.send(&call("one")).await.is_replayed());
    let other = api.send(&call("two")).await;
    other.assert_problem(422, "mismatch");
}

on_each_server!(a_form_in_other_escapes_is_the_same_request);
async fn a_form_in_other_escapes_is_the_same_request(server: Server) {
    for door in Door::ALL {
        let api = Api::new(&server, place_order).await;
        let call = |body| {
            let content_type = "application/x-www-form-urlencoded";
            let call = door.post("k-1").header("Content-Type", content_type);
            call.text(body)
        };
        assert_eq!(api.send(&call("sku=t%C3%A9+a&n=1")).await.status, 201);
        let retry = api.send(&call("sku=t%c3%a9%20a&%6E=1")).await;
        assert!(retry.is_replayed(), "{door:?}: {}", retry.text());
        let other = api.send(&call("sku=t%C3%A9%2Ba&n=1")).await;
        other.assert_problem(422, "mismatch");
        assert_eq!(api.runs(), 1);
    }
}

/// `{"sku":"tea","quantity":2}`, packed in 1970, and the same with other white space and order, packed in 2025.
const PACKED: [&[u8]; 2] = [
    b"H4sIAAAAAAACA6tWKs4uVbJSKklNVNJRKixNzCvJLKlUsjKqBQBbWz2FGgAAAA==",
    b"H4sIAMACH2kC/1OoVlAqLE3MK8ksqVSyUjDSUVAqzi4FspRKUhOVFGoVAAmU2+khAAAA",
];

on_each_server!(what_a_coding_holds_is_compared_and_not_how_it_is_packed);
async fn what_a_coding_holds_is_compared_and_not_how_it_is_packed(server: Server) {
    let json = br#"{"sku":"tea","quantity":2}"#;
    let deflate = |level| miniz_oxide::deflate::compress_to_vec_zlib(json, level);
    let [first, again] = PACKED.map(|packed| data_encoding::BASE64.decode(packed).unwrap());
    for door in Door::ALL {
        let api = Api::new(&server, place_order).await;
        let call = |coding, body: &[u8]| {
            let call = door.post("k-1").header("Content-Type", "application/json");
            call.header("Content-Encoding", coding).binary(body)
        };
        assert_eq!(api.send(&call("gzip", &first)).await.status, 201);
        for (coding, body) in [
            ("X-GZip", &again),
            ("deflate", &deflate(0)),
            ("deflate", &deflate(9)),
            ("identity", &json.to_vec()),
        ] {
            let retry = api.send(&call(coding, body)).await;
            assert!(retry.is_replayed(), "{door:?} {coding}: {}", retry.text());
        }
        let cut = first.split_last().unwrap().1;
        for (coding, body) in [
            ("gzip", cut),
            ("br", &first[..]),
            ("gzip, gzip", &first[..]),
        ] {
            let other = api.send(&call(coding, body)).await;
            other.assert_problem(422, "mismatch");
        }
        assert_eq!(api.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_opens_to_more_than_the_layers_limit_is_compared_by_its_bytes() {
    let server = Server::dynoxide().await;
    const BODY_LIMIT: usize = 6 * 1_024 * 1_024;
    for limit in [4_096, BODY_LIMIT, 2 * BODY_LIMIT] {
        let limited =
            |layer: IdempotencyLayer| layer.settings(|settings| settings.body_limit = limit);
        let api = Api::configured(&server, |once| once, limited, place_order).await;
        let call = |key, bytes: usize, level| {
            let zeros = vec![b'0'; bytes];
            let body = miniz_oxide::deflate::compress_to_vec_zlib(&zeros, level);
            let call = Door::Http.post(key).header("Content-Encoding", "deflate");
            call.binary(&body)
        };
        let opened = limit.min(BODY_LIMIT);
        assert_eq!(api.send(&call("k-1", opened, 1)).await.status, 201);
        assert!(api.send(&call("k-1", opened, 9)).await.is_replayed());
        let more = opened + 1;
        assert_eq!(api.send(&call("k-2", more, 1)).await.status, 201);
        assert!(api.send(&call("k-2", more, 1)).await.is_replayed());
        let other = api.send(&call("k-2", more, 9)).await;
        other.assert_problem(422, "mismatch");
    }
}
