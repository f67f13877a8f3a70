//! Answers that must not be cached, or that are compressed: their storage and their replay.

use http::Response;
use http::header::ACCEPT_ENCODING;
use lambda_http::Request;
use lambda_idempotency::http::IdempotencyLayer;

use super::api::{Api, Door, Failure};
use crate::on_each_server;
use crate::support::Server;

/// Compresses where the client accepts it, as a layer inside does.
async fn negotiating(_: usize, request: Request) -> Result<Response<String>, Failure> {
    let accepted = request.headers().get(ACCEPT_ENCODING);
    let is_accepted = accepted.is_none_or(|accepted| accepted == "gzip");
    let response = Response::builder().status(201);
    Ok(if is_accepted {
        let response = response.header("content-encoding", "gzip");
        response.body("compressed".to_owned())?
    } else {
        response.body("plain".to_owned())?
    })
}

on_each_server!(a_compressed_answer_is_not_sent_to_a_client_that_refuses_it);
async fn a_compressed_answer_is_not_sent_to_a_client_that_refuses_it(server: Server) {
    for door in Door::ALL {
        let api = Api::new(&server, negotiating).await;
        let call = |accepted| door.post("k-1").header("Accept-Encoding", accepted);
        assert_eq!(api.send(&call("gzip")).await.text(), "compressed");
        for refusing in ["identity", "br", "gzip;q=0", "*;q=0"] {
            let answer = api.send(&call(refusing)).await;
            answer.assert_problem(406, "coding-not-accepted");
            assert!(!answer.is_replayed());
        }
        for accepting in [call("gzip"), call("br, *;q=0.1"), door.post("k-1")] {
            let replay = api.send(&accepting).await;
            assert!(replay.is_replayed(), "{}", replay.text());
            assert_eq!(replay.text(), "compressed");
            assert_eq!(replay.header("content-encoding"), Some("gzip"));
        }
        assert_eq!(api.runs(), 1);
    }
}

on_each_server!(an_answer_that_no_negotiation_made_is_sent_to_each_client);
async fn an_answer_that_no_negotiation_made_is_sent_to_each_client(server: Server) {
    let always = |_, _| async {
        let response = Response::builder().header("content-encoding", "gzip");
        Ok(response.body("compressed".to_owned())?)
    };
    let api = Api::new(&server, always).await;
    let call = |accepted| Door::Http.post("k-1").header("Accept-Encoding", accepted);
    assert_eq!(api.send(&call("identity")).await.text(), "compressed");
    for accepted in ["identity", "br", "gzip"] {
        let replay = api.send(&call(accepted)).await;
        assert!(replay.is_replayed(), "{accepted}");
        assert_eq!(replay.text(), "compressed");
    }
    let plain = Door::Http.post("k-2").header("Accept-Encoding", "identity");
    let api = Api::new(&server, negotiating).await;
    assert_eq!(api.send(&plain).await.text(), "plain");
    let other = Door::Http.post("k-2").header("Accept-Encoding", "gzip");
    assert_eq!(
        api.send(&other).await.text(),
        "plain",
        "no coding is any client's"
    );
}

on_each_server!(an_answer_that_is_not_to_be_cached_is_kept_unless_the_setting_says_otherwise);
async fn an_answer_that_is_not_to_be_cached_is_kept_unless_the_setting_says_otherwise(
    server: Server,
) {
    let token = |_, _| async {
        let response = Response::builder().header("cache-control", "private, No-Store");
        Ok(response.body("a token".to_owned())?)
    };
    let call = Door::Http.post("k-1");

    let api = Api::new(&server, token).await;
    let first = api.send(&call).await;
    let replay = api.send(&call).await;
    assert!(replay.is_replayed());
    assert_eq!(replay.body, first.body);
    assert_eq!(replay.header("cache-control"), Some("private, No-Store"));

    let respecting =
        |layer: IdempotencyLayer| layer.settings(|settings| settings.respect_no_store = true);
    let api = Api::configured(&server, |once| once, respecting, token).await;
    assert_eq!(api.send(&call).await.text(), "a token");
    let retry = api.send(&call).await;
    retry.assert_problem(409, "outcome-omitted");
    assert_eq!(api.runs(), 1, "the effect is protected");

    // A retry of a refusal is not told that it took effect.
    for status in [402_u16, 404, 422] {
        let refused = move |_, _| async move {
            let response = Response::builder().status(status);
            let response = response.header("cache-control", "no-store");
            Ok(response.body("a secret".to_owned())?)
        };
        let api = Api::configured(&server, |once| once, respecting, refused).await;
        assert_eq!(api.send(&call).await.text(), "a secret");
        let retry = api.send(&call).await;
        assert_eq!((retry.status.as_u16(), retry.text()), (status, ""));
        assert!(retry.is_replayed());
        assert_eq!(retry.header("cache-control"), None);
        assert_eq!(api.runs(), 1);
    }

    let cacheable = |_, _| async {
        let response = Response::builder().header("cache-control", "no-cache, max-age=0");
        Ok(response.body("kept".to_owned())?)
    };
    let api = Api::configured(&server, |once| once, respecting, cacheable).await;
    assert_eq!(api.send(&call).await.text(), "kept");
    assert!(api.send(&call).await.is_replayed());
}
