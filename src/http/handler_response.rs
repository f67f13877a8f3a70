//! Reads the handler's response as far as it is stored, then sends it to the client.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, TRAILER};
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;

use super::problem::Problem;
use super::stored_response::StoredResponse;
use super::verdict::verdict;
use crate::engine::claim::{Stop, to_json};
use crate::http::body::{ReadError, ResponseBody};
use crate::http::fingerprint::AcceptedCodings;
use crate::http::settings::Settings;
use crate::http::stored_response::stored;
use crate::http::verdict;
use crate::idempotency::Verdict;
use crate::protocol::record::Omission;

/// Holds a handler's response, read as far as the record stores it.
pub(super) struct HandlerResponse<B: Body> {
    /// The verdict on the response: final, or not.
    verdict: Verdict,
    /// The status that the handler gave.
    status: StatusCode,
    /// As the client gets it.
    pub(super) response: Response<ResponseBody<B>>,
    /// The body and its trailers, where it was read to its end.
    whole: Option<(Bytes, HeaderMap)>,
}

impl<B: Body<Data = Bytes>> HandlerResponse<B> {
    /// Reads a response. One that breaks off meanwhile can't be sent and must not be stored: it
    /// becomes a server error, and the claim is released unless the handler's verdict is another.
    pub(super) async fn read(
        response: Response<B>,
        settings: &Settings,
        is_protected: bool,
    ) -> Self {
        let (parts, body) = response.into_parts();
        let (read, body) = if is_event_stream(&parts.headers) {
            (Err(ReadError::TooLarge), ResponseBody::passing(body))
        } else {
            ResponseBody::read(body, settings.response_limit).await
        };
        let whole = match read {
            Ok(bytes) => Some((bytes, body.trailers())),
            Err(ReadError::TooLarge) => {
                let (event, status) = ("streamed", parts.status.as_u16());
                tracing::warn!(event, status, "idempotency");
                None
            }
            Err(ReadError::Failed) => {
                let problem = Problem::ResponseBroken;
                tracing::error!(event = problem.code(), "idempotency");
                let problem = if is_protected {
                    problem
                } else {
                    Problem::Unprotected
                };
                let mut broken = settings.problem_response(problem);
                let own = parts.extensions.get::<Verdict>().copied();
                let own = own.unwrap_or(Verdict::Release);
                broken.extensions_mut().insert(own);
                return Self {
                    status: parts.status,
                    ..Self::of(broken.map(ResponseBody::whole), None, settings)
                };
            }
        };
        Self::of(Response::from_parts(parts, body), whole, settings)
    }

    /// Takes a response of which nothing is stored: its body isn't read.
    pub(super) fn passing(response: Response<B>, settings: &Settings) -> Self {
        Self::of(response.map(ResponseBody::passing), None, settings)
    }

    fn of(
        response: Response<ResponseBody<B>>,
        whole: Option<(Bytes, HeaderMap)>,
        settings: &Settings,
    ) -> Self {
        let stores_server_errors = settings.store_server_errors.is_some();
        let usual = || {
            let (body, trailers) = whole
                .as_ref()
                .map(|(body, trailers)| (&**body, trailers))
                .unzip();
            if verdict::has_failed(response.headers(), body, trailers) {
                return Verdict::Release;
            }
            verdict(response.status(), stores_server_errors)
        };
        let own = response.extensions().get::<Verdict>().copied();
        Self {
            verdict: own.unwrap_or_else(usual),
            status: response.status(),
            response,
            whole,
        }
    }

    /// Returns whether its request isn't done. A server error that a handler makes of a step which waits
    /// for an operator isn't final, unless the handler says so.
    pub(super) fn is_open(&self, stop: Option<Stop>) -> bool {
        let own = self.response.extensions().get::<Verdict>();
        let is_error = own.is_none() && self.status.is_server_error();
        let is_interrupted = matches!(stop, Some(Stop::Interrupted { .. }));
        self.verdict == Verdict::Release || (is_error && is_interrupted)
    }

    /// Returns whether the handler's writes are dropped: behind a status of 400 or above, and behind a
    /// verdict of the handler's own, unless that is `Complete`.
    pub(super) fn writes_nothing(&self) -> bool {
        let own = self.response.extensions().get::<Verdict>();
        own.map_or(self.status.as_u16() >= 400, |own| *own != Verdict::Complete)
    }

    /// Returns the retention of this response, where it differs from its route's.
    pub(super) fn retention(&self, settings: &Settings) -> Option<Duration> {
        let is_server_error = self.status.is_server_error();
        settings.store_server_errors.filter(|_| is_server_error)
    }

    /// Makes the outcome that the record stores. Of a refusal that isn't kept, it has the status: a
    /// retry isn't told that its request took effect.
    pub(super) fn outcome(
        &self,
        settings: &Settings,
        accepted: &AcceptedCodings,
    ) -> Result<String, Omission> {
        let (status, headers) = (self.status, self.response.headers());
        let whole = match &self.whole {
            _ if settings.respect_no_store && is_no_store(headers) => Err(Omission::NotKept),
            Some(whole) => Ok(whole),
            None => Err(Omission::NotSerializable),
        };
        let (body, trailers) = match whole {
            Ok(whole) => whole,
            Err(_) if status.as_u16() >= 400 => {
                return to_json(&StoredResponse::of(status, std::iter::empty(), b""));
            }
            Err(omission) => return Err(omission),
        };
        // HTTP/1.1 sends the trailers that this header announces.
        let announced = headers
            .get_all(TRAILER)
            .iter()
            .map(|names| (&TRAILER, names));
        let announced = announced.filter(|_| !trailers.is_empty());
        let headers = stored(headers, &settings.unstored_headers).chain(announced);
        let trailers = stored(trailers, &settings.unstored_headers);
        let mut stored = StoredResponse::of(status, headers, body).with_trailers(trailers);
        stored.any_coding = !accepted.accept(self.response.headers());
        to_json(&stored)
    }
}

/// Returns whether an answer says `Cache-Control: no-store` (RFC 9111, 5.2.2.5).
fn is_no_store(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CACHE_CONTROL).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let mut directives = values.flat_map(|value| value.split(','));
    directives.any(|directive| directive.trim().eq_ignore_ascii_case("no-store"))
}

/// Server-sent events have no end to wait for.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| {
        let essence = value.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("text/event-stream")
    })
}

#[cfg(test)]
mod tests {
    use http_body::Frame;
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;
    use crate::protocol::clock::EpochMillis;

    #[tokio::test]
    async fn a_header_that_is_left_out_is_in_the_first_answer_and_not_in_the_record() {
        let response = Response::builder()
            .header("set-cookie", "session=secret")
            .header("connection", "close")
            .header("etag", "17")
            .body(Full::new(Bytes::new()))
            .unwrap();
        let settings = Settings::default();
        let handled = HandlerResponse::read(response.clone(), &settings, true).await;
        assert_eq!(
            handled
                .outcome(&settings, &AcceptedCodings::default())
                .unwrap(),
            r#"{"status":200,"headers":[["etag","17"]],"body":""}"#
        );
        assert_eq!(handled.response.headers(), response.headers());
    }

    fn trailed(
        body: &'static str,
        trailer: (&'static str, &'static str),
    ) -> impl Body<Data = Bytes, Error = std::convert::Infallible> {
        let trailers = HeaderMap::from_iter([(
            trailer.0.parse::<http::HeaderName>().unwrap(),
            trailer.1.parse().unwrap(),
        )]);
        Full::new(Bytes::from_static(body.as_bytes()))
            .with_trailers(std::future::ready(Some(Ok(trailers))))
    }

    #[tokio::test]
    async fn trailers_are_in_the_first_answer_and_in_the_record() {
        let settings = Settings::default();
        let response = Response::builder()
            .header("trailer", "checksum")
            .body(trailed("abc", ("checksum", "17")))
            .unwrap();
        let handled = HandlerResponse::read(response, &settings, true).await;
        let outcome = handled.outcome(&settings, &AcceptedCodings::default());
        assert_eq!(
            outcome.unwrap(),
            r#"{"status":200,"headers":[["trailer","checksum"]],"body":"abc","trailers":[["checksum","17"]]}"#
        );
        let body = handled.response.into_body();
        assert_eq!(
            body.size_hint().exact(),
            None,
            "or a server would leave the trailers out"
        );
        assert!(!body.is_end_stream());
        let sent = body.collect().await.unwrap();
        assert_eq!(sent.trailers().unwrap()["checksum"], "17");
        assert_eq!(sent.to_bytes(), "abc");
    }

    #[tokio::test]
    async fn an_answer_whose_trailers_say_failure_is_not_final() {
        for (status, verdict) in [
            ("0", Verdict::Complete),
            ("14", Verdict::Release),
            ("x", Verdict::Release),
        ] {
            let response = Response::new(trailed("abc", ("grpc-status", status)));
            let handled = HandlerResponse::read(response, &Settings::default(), true).await;
            assert_eq!(handled.verdict, verdict, "{status}");
        }
    }

    #[tokio::test]
    async fn of_an_answer_that_breaks_off_the_handlers_verdict_and_status_count() {
        let settings = Settings {
            store_server_errors: Some(Duration::from_mins(5)),
            ..Settings::default()
        };
        let omitted: Result<String, _> = Err(Omission::NotSerializable);
        let refused = Ok(r#"{"status":422,"headers":[],"body":""}"#.to_owned());
        for (status, own, is_open, outcome) in [
            (201_u16, None, true, omitted.clone()),
            (201, Some(Verdict::Release), true, omitted.clone()),
            (201, Some(Verdict::Complete), false, omitted.clone()),
            (201, Some(Verdict::Fail), false, omitted),
            (422, Some(Verdict::Complete), false, refused),
        ] {
            let broken = [Err::<Frame<Bytes>, _>(std::io::Error::other("gone"))];
            let body = StreamBody::new(futures_util::stream::iter(broken));
            let mut response = Response::builder().status(status).body(body).unwrap();
            if let Some(own) = own {
                response.extensions_mut().insert(own);
            }
            let handled = HandlerResponse::read(response, &settings, true).await;
            assert_eq!(handled.response.status(), 500);
            let since = EpochMillis(0);
            for stop in [None, Some(Stop::Interrupted { since })] {
                assert_eq!(handled.is_open(stop), is_open, "{status} {own:?}");
            }
            let made = handled.outcome(&settings, &AcceptedCodings::default());
            assert_eq!(made, outcome, "{status} {own:?}");
            assert_eq!(handled.retention(&settings), None);
        }
    }

    #[tokio::test]
    async fn a_body_of_the_largest_size_is_stored_whatever_its_pieces() {
        let settings = Settings {
            response_limit: 4,
            ..Settings::default()
        };
        let whole = Response::new(Full::new(Bytes::from_static(b"abcd")));
        let handled = HandlerResponse::read(whole, &settings, true).await;
        assert!(
            handled
                .outcome(&settings, &AcceptedCodings::default())
                .unwrap()
                .ends_with(r#""body":"abcd"}"#)
        );
        for (pieces, is_stored) in [(&["ab", "cd"][..], true), (&["ab", "cd", "e"], false)] {
            let frames = pieces.iter().map(|piece| {
                Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(piece.as_bytes())))
            });
            let body = StreamBody::new(futures_util::stream::iter(frames));
            let handled = HandlerResponse::read(Response::new(body), &settings, true).await;
            assert_eq!(
                handled
                    .outcome(&settings, &AcceptedCodings::default())
                    .is_ok(),
                is_stored,
                "{pieces:?}"
            );
            let sent = handled.response.into_body().collect().await.unwrap();
            assert_eq!(sent.to_bytes(), pieces.concat());
        }
    }

    #[tokio::test]
    async fn a_body_that_is_streamed_is_not_stored_as_if_it_were_empty() {
        let settings = Settings {
            response_limit: 1,
            ..Settings::default()
        };
        let response = Response::new(Full::new(Bytes::from_static(b"ab")));
        let handled = HandlerResponse::read(response, &settings, true).await;
        let outcome = handled.outcome(&settings, &AcceptedCodings::default());
        assert_eq!(outcome, Err(Omission::NotSerializable));
    }
}
