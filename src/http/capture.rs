//! The handler's answer, on its way to the record and to the client.

use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use http_body::Body;
use http_body_util::BodyExt;

use super::answer_body::ResponseBody;
use super::problem::Problem;
use super::response::Captured;
use super::settings::Settings;
use crate::error::BoxError;
use crate::outcome::Verdict;

/// Takes one answer and gives it back: whole, or, where it is a stream, with what was not read of it.
pub(super) struct Capture<'a, B> {
    settings: &'a Settings,
    /// What goes past the record.
    passing: Mutex<Option<ResponseBody<B>>>,
}

enum Read<B> {
    Whole(Bytes),
    Passing(ResponseBody<B>),
}

impl<'a, B> Capture<'a, B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            passing: Mutex::new(None),
        }
    }

    /// An answer that breaks off while it is read can't be sent and must not be stored: it becomes a server error, and the claim is
    /// released.
    pub(super) async fn take(&self, response: Response<B>) -> Captured {
        let (parts, body) = response.into_parts();
        let response = match self.read(&parts.headers, body).await {
            Ok(Read::Whole(bytes)) => Response::from_parts(parts, Some(bytes)),
            Ok(Read::Passing(body)) => {
                tracing::warn!(
                    event = "streamed",
                    status = parts.status.as_u16(),
                    "idempotency"
                );
                *self.slot() = Some(body);
                Response::from_parts(parts, None)
            }
            Err(_) => {
                let problem = Problem::ResponseBroken;
                tracing::error!(event = problem.code(), "idempotency");
                let mut broken = self.settings.refusals.answer(problem).map(Some);
                broken.extensions_mut().insert(Verdict::Release);
                broken
            }
        };
        Captured::new(response, &self.settings.left_out)
    }

    pub(super) fn give(&self, response: Response<Option<Bytes>>) -> Response<ResponseBody<B>> {
        response.map(|body| match (body, self.slot().take()) {
            (None, Some(passing)) => passing,
            (body, _) => ResponseBody::whole(body.unwrap_or_default()),
        })
    }

    async fn read(&self, headers: &HeaderMap, body: B) -> Result<Read<B>, BoxError> {
        let limit = self.settings.answer_limit;
        if is_event_stream(headers) || body.size_hint().lower() > limit as u64 {
            return Ok(Read::Passing(ResponseBody::passing(body)));
        }
        let mut body = Box::pin(body);
        let mut whole = Bytes::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(Into::into)?.into_data() else {
                continue;
            };
            // A body in one piece is not copied.
            if whole.is_empty() {
                whole = data;
            } else {
                let mut longer = BytesMut::from(whole);
                longer.extend_from_slice(&data);
                whole = longer.freeze();
            }
            if whole.len() > limit {
                return Ok(Read::Passing(ResponseBody::resumed(whole, body)));
            }
        }
        Ok(Read::Whole(whole))
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<ResponseBody<B>>> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
