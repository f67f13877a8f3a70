//! What is stored, by setting and by the handler's wish.

use std::io::Error as IoError;

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::StreamBody;
use lambda_idempotency::Verdict;
use lambda_idempotency::http::IdempotencyLayer;

use super::api::{Api, Door, answer};
use crate::on_each_server;

on_each_server! {
    async fn server_errors_are_stored_too_where_the_setting_says_so(server: Server) {
        for (status, is_stored) in [(500, true), (503, true), (429, false), (400, false)] {
            let handler = move |run, _| async move { Ok(answer(status, format!("run {run}"))) };
            let api = Api::configured(&server, |once| once, IdempotencyLayer::keep_server_errors, handler).await;
            let call = Door::Http.post("k-1");
            assert_eq!(api.send(&call).await.text(), "run 1");

            let retry = api.send(&call).await;
            assert_eq!(retry.status, status);
            assert_eq!(retry.is_replayed(), is_stored, "{status}");
        }
    }
}

on_each_server! {
    async fn an_answer_that_breaks_off_is_not_stored_by_that_setting(server: Server) {
        let handler = |run, _| async move {
            let piece = |text| Ok(Frame::data(Bytes::from_static(text)));
            let end = if run == 1 { Err(IoError::other("disk gone")) } else { piece(b"whole") };
            Ok(Response::new(StreamBody::new(futures_util::stream::iter([piece(b"the "), end]))))
        };
        let api = Api::configured(&server, |once| once, IdempotencyLayer::keep_server_errors, handler).await;
        let call = Door::Http.post("k-1");
        api.send(&call).await.assert_problem(500, "response-broken");
        let retry = api.send(&call).await;
        assert!(!retry.is_replayed());
        assert_eq!(retry.text(), "the whole");
    }
}

on_each_server! {
    async fn a_handlers_own_error_is_not_stored_by_that_setting(server: Server) {
        let handler = |run, _| async move {
            if run == 1 { Err("no warehouse")? }
            Ok(answer(201, ""))
        };
        let api = Api::configured(&server, |once| once, IdempotencyLayer::keep_server_errors, handler).await;
        api.try_send(&Door::Http.post("k-1")).await.unwrap_err();
        assert_eq!(api.send(&Door::Http.post("k-1")).await.status, 201);
    }
}

on_each_server! {
    async fn a_handler_decides_for_one_answer(server: Server) {
        for (status, wish, is_stored) in [
            (500, Verdict::Complete, true),
            (409, Verdict::Complete, true),
            (400, Verdict::Fail, true),
            (201, Verdict::Release, false),
            (404, Verdict::Release, false),
        ] {
            let handler = move |run, _| async move {
                let mut response = answer(status, format!("run {run}"));
                response.extensions_mut().insert(wish);
                Ok(response)
            };
            let api = Api::new(&server, handler).await;
            let call = Door::Http.post("k-1");
            assert_eq!(api.send(&call).await.text(), "run 1");
            let retry = api.send(&call).await;
            assert_eq!((retry.status.as_u16(), retry.is_replayed()), (status, is_stored), "{wish:?}");
        }
    }
}
