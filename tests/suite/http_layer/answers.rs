//! The answer to a retry, and the cases in which it runs.

use std::io::Error as IoError;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt;
use http::Response;
use http::header::HeaderValue;
use http_body_util::{Full, StreamBody};
use lambda_http::Body;
use lambda_idempotency::Claim;
use lambda_idempotency::http::IdempotencyLayer;

use super::api::{Api, Call, Door, answer, place_order};
use super::outcomes::stored_for_a_day;
use crate::on_each_server;
use crate::secrets::Log;
use crate::support::Server;

/// With server errors released, and stored.
const LAYERS: [fn(IdempotencyLayer) -> IdempotencyLayer; 2] = [|layer| layer, stored_for_a_day];

on_each_server!(a_retry_gets_status_headers_and_body_byte_for_byte);
async fn a_retry_gets_status_headers_and_body_byte_for_byte(server: Server) {
    for door in Door::ALL {
        let png = |run, _| async move {
            let response = Response::builder()
                .status(202)
                .header("content-type", "image/png")
                .header("vary", "accept")
                .header("x-opaque", HeaderValue::from_bytes(b"gr\xfc\xdfe")?)
                .header("vary", format!("run-{run}"));
            Ok(response.body(Body::Binary(b"\x89PNG\r\n\x1a\n\x00\xff".to_vec()))?)
        };
        let api = Api::new(&server, png).await;
        let call = door.post("k-1").json(r#"{"sku":"tea"}"#);

        let first = api.send(&call).await;
        assert_eq!(first.status, 202, "{door:?}");
        assert!(!first.is_replayed());
        assert_eq!(first.header("idempotency-processed-at"), None);

        let mut retry = api.send(&call).await;
        assert!(retry.is_replayed(), "{door:?}");
        let processed = retry.headers.remove("idempotency-processed-at").unwrap();
        let processed = httpdate::parse_http_date(processed.to_str().unwrap()).unwrap();
        let age = SystemTime::now().duration_since(processed).unwrap();
        assert!(age < Duration::from_mins(1), "{age:?}");
        retry.headers.remove("idempotent-replayed");
        assert_eq!(retry, first, "{door:?}");
        let values: Vec<_> = retry.headers.get_all("vary").iter().collect();
        assert_eq!(values, ["accept", "run-1"]);
        assert_eq!(api.runs(), 1);
    }
}

on_each_server!(an_answer_without_a_body_is_replayed);
async fn an_answer_without_a_body_is_replayed(server: Server) {
    let api = Api::new(&server, |_, _| async { Ok(answer(204, ())) }).await;
    let call = Door::Http.post("k-1");
    for is_retry in [false, true] {
        let answer = api.send(&call).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (204, 0));
        assert_eq!(answer.is_replayed(), is_retry);
    }
}

on_each_server!(a_final_refusal_is_stored);
async fn a_final_refusal_is_stored(server: Server) {
    for status in [302, 402, 404, 410, 422] {
        let handler = move |run, _| async move { Ok(answer(status, format!("run {run}"))) };
        let api = Api::new(&server, handler).await;
        let call = Door::Http.post("k-1");
        assert_eq!(api.send(&call).await.text(), "run 1");

        let retry = api.send(&call).await;
        assert!(retry.is_replayed(), "{status}");
        assert_eq!((retry.status.as_u16(), retry.text()), (status, "run 1"));
        assert_eq!(api.runs(), 1);
    }
}

on_each_server!(a_server_error_or_a_passing_refusal_is_not_stored_and_the_retry_runs);
async fn a_server_error_or_a_passing_refusal_is_not_stored_and_the_retry_runs(server: Server) {
    for status in [400, 401, 409, 429, 500, 503] {
        let handler = move |run, _| async move {
            Ok(answer(
                if run == 1 { status } else { 201 },
                format!("run {run}"),
            ))
        };
        let api = Api::new(&server, handler).await;
        let call = Door::Http.post("k-1");
        let first = api.send(&call).await;
        assert_eq!((first.status.as_u16(), first.text()), (status, "run 1"));

        let retry = api.send(&call).await;
        assert!(!retry.is_replayed(), "{status}");
        assert_eq!((retry.status.as_u16(), retry.text()), (201, "run 2"));
        assert!(api.send(&call).await.is_replayed());
    }
}

on_each_server!(a_body_refused_with_a_400_may_be_corrected_under_the_same_key);
async fn a_body_refused_with_a_400_may_be_corrected_under_the_same_key(server: Server) {
    let handler = |run, _| async move { Ok(answer(if run == 1 { 400 } else { 201 }, "")) };
    let api = Api::new(&server, handler).await;
    assert_eq!(
        api.send(&Door::Http.post("k-1").json("{")).await.status,
        400
    );
    assert_eq!(
        api.send(&Door::Http.post("k-1").json("{}")).await.status,
        201
    );
}

on_each_server!(a_handlers_error_reaches_the_caller_and_the_retry_runs);
async fn a_handlers_error_reaches_the_caller_and_the_retry_runs(server: Server) {
    for layer in LAYERS {
        let handler = |run, request| async move {
            if run == 1 {
                Err("no warehouse")?;
            }
            place_order(run, request).await
        };
        let api = Api::configured(&server, |once| once, layer, handler).await;
        let call = Door::Http.post("k-1");
        let error = api.try_send(&call).await.unwrap_err();
        assert_eq!(error.to_string(), "no warehouse");
        assert_eq!(api.send(&call).await.text(), "order 2");
    }
}

on_each_server!(a_panic_goes_on_and_the_retry_runs);
async fn a_panic_goes_on_and_the_retry_runs(server: Server) {
    let (log, _capture) = Log::capture();
    let handler = |run, request| async move {
        assert!(run > 1, "the first run dies");
        place_order(run, request).await
    };
    let api = Api::new(&server, handler).await;
    let call = Door::Http.post("k-1");
    let panic = std::panic::AssertUnwindSafe(api.try_send(&call))
        .catch_unwind()
        .await;
    assert!(panic.is_err());
    // Not by the next call.
    assert!(log.text().contains(r#"event="released""#));
    assert_eq!(api.send(&call).await.text(), "order 2");
}

on_each_server!(an_answer_that_breaks_off_becomes_a_500_and_the_retry_runs);
async fn an_answer_that_breaks_off_becomes_a_500_and_the_retry_runs(server: Server) {
    for layer in LAYERS {
        let handler = |run, _| async move {
            let chunk = |text| Ok(http_body::Frame::data(Bytes::from_static(text)));
            let rest = if run == 1 {
                Err(IoError::other("disk gone"))
            } else {
                chunk(b"whole")
            };
            Ok(Response::new(StreamBody::new(futures_util::stream::iter(
                [chunk(b"the "), rest],
            ))))
        };
        let api = Api::configured(&server, |once| once, layer, handler).await;
        let call = Door::Http.post("k-1");
        api.send(&call).await.assert_problem(500, "response-broken");
        assert_eq!(api.send(&call).await.text(), "the whole");
        assert_eq!(api.send(&call).await.text(), "the whole");
        assert_eq!(api.runs(), 2);
    }
}

on_each_server!(a_large_answer_is_kept_whole_up_to_what_an_item_takes);
async fn a_large_answer_is_kept_whole_up_to_what_an_item_takes(server: Server) {
    // Base64 of bytes without a pattern: compressed, three quarters of it are left.
    for (bytes, is_kept) in [(300_000, true), (900_000, false)] {
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .take(bytes / 4 * 3)
        .collect();
        let large = data_encoding::BASE64.encode(&noise);
        let handler = {
            let large = large.clone();
            move |_, _| {
                let large = large.clone();
                async move { Ok(Response::new(Full::new(Bytes::from(large)))) }
            }
        };
        let api = Api::new(&server, handler).await;
        let call = Door::Http.post("k-1");
        assert_eq!(api.send(&call).await.text(), large);

        let retry = api.send(&call).await;
        if is_kept {
            assert!(retry.is_replayed());
            assert_eq!(retry.text(), large);
        } else {
            retry.assert_problem(409, "outcome-omitted");
            assert_eq!(retry.retry_after(), None);
        }
        assert_eq!(api.runs(), 1);
    }
}

on_each_server!(the_handler_finds_its_claim_among_the_extensions);
async fn the_handler_finds_its_claim_among_the_extensions(server: Server) {
    let handler = |_, request: lambda_http::Request| async move {
        let claim = request.extensions().get::<Claim>().ok_or("no claim")?;
        let text = format!(
            "{} {} {}",
            claim.operation(),
            claim.is_protected(),
            claim.derive_key("card").len()
        );
        Ok(answer(200, text))
    };
    let api = Api::new(&server, handler).await;
    let templates = [
        (Door::Rest, "POST /shops/{shop}/orders"),
        (Door::Http, "POST /shops/{shop}/orders"),
        (Door::Alb, "POST /shops/7/orders"),
    ];
    for (door, operation) in templates {
        let call: Call = door.post(if door == Door::Rest { "k-1" } else { "k-2" });
        assert_eq!(api.send(&call).await.text(), format!("{operation} true 64"));
    }
}
