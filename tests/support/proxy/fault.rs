//! The faults that a request may meet, and the answers that the server never gave.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// The fault that one request meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Forwarded, and its reply thrown away with the connection.
    LoseReply,
    /// Thrown away with the connection, never forwarded.
    LoseRequest,
    /// Thrown away with the connection, and forwarded all the same, after a pause.
    Late(Duration),
    /// Thrown away with the connection, and kept: it arrives when the test [delivers](super::Proxy::deliver) it.
    Withhold,
    /// Forwarded and answered, and a copy of it forwarded after a pause.
    Again(Duration),
    /// Answered with a service error, never forwarded.
    Answer { status: u16, code: &'static str },
    /// Forwarded: the fault is for a later one.
    Pass,
    /// Never answered. The test hears of it, and whether the server does is said here.
    Park { applies: bool },
    /// Forwarded when the test [lets it go](super::Proxy::let_go).
    Stop,
    /// Forwarded after a pause.
    Delay(Duration),
    /// The same, and it arrives whether or not the client still waits.
    Hold(Duration),
    /// Forwarded at once, and answered after a pause.
    SlowReply(Duration),
    /// Answered with this, never forwarded.
    Reply(&'static str),
    /// Answered with this, and status 400; never forwarded.
    Refuse(&'static str),
    /// Answered as a transaction that was cancelled for these reasons, one for each of its actions; never forwarded.
    Cancel(&'static [&'static str]),
    /// Of a group only the first so many statements or keys are forwarded; the other statements are answered with this error, the
    /// other keys as unprocessed.
    Partly { taken: usize, code: &'static str },
}

impl Fault {
    pub const THROTTLE: Self = Self::Answer {
        status: 400,
        code: "ProvisionedThroughputExceededException",
    };
    pub const DENY: Self = Self::Answer {
        status: 400,
        code: "AccessDeniedException",
    };
    pub const CONFLICT: Self = Self::Answer {
        status: 400,
        code: "TransactionConflictException",
    };
    pub const INTERNAL: Self = Self::Answer {
        status: 500,
        code: "InternalServerError",
    };
}

pub(super) fn cancelled(reasons: &[&str]) -> Response<Full<Bytes>> {
    let reasons: Vec<_> = reasons.iter().map(|code| json!({ "Code": code })).collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "injected",
        "CancellationReasons": reasons,
    });
    let mut response = response(&body);
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

pub(super) fn service_error(status: u16, code: &str) -> Response<Full<Bytes>> {
    let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
    let mut response = response(&json!({ "__type": kind, "message": "injected" }));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

pub(super) fn response(body: &Value) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from(body.to_string())))
}

/// A group of which only the first `taken` are forwarded, and the answer to the others.
pub(super) struct Part {
    pub(super) forwarded: Value,
    rest: Rest,
}

enum Rest {
    Statements(usize, &'static str),
    Keys(Value),
}

impl Part {
    /// `None` where it is no group, or one without a rest.
    pub(super) fn of(request: &Value, taken: usize, code: &'static str) -> Option<Self> {
        let mut forwarded = request.clone();
        let rest = if let Some(statements) = forwarded["Statements"].as_array_mut() {
            let rest = statements.len().checked_sub(taken)?;
            statements.truncate(taken);
            (rest > 0).then_some(Rest::Statements(rest, code))?
        } else {
            let tables = forwarded["RequestItems"].as_object_mut()?;
            let (table, wanted) = tables.iter_mut().next()?;
            let keys = wanted["Keys"].as_array_mut()?;
            let rest = keys.split_off(taken.min(keys.len()));
            let mut unprocessed = wanted.clone();
            unprocessed["Keys"] = json!(rest);
            (!rest.is_empty()).then_some(Rest::Keys(json!({ (table): unprocessed })))?
        };
        Some(Self { forwarded, rest })
    }

    /// The reply to the whole.
    pub(super) fn complete(self, reply: &mut Value) {
        match self.rest {
            Rest::Statements(count, code) => {
                let refused = json!({ "Error": { "Code": code, "Message": "injected" } });
                if let Some(responses) = reply["Responses"].as_array_mut() {
                    responses.extend(std::iter::repeat_n(refused, count));
                }
            }
            Rest::Keys(unprocessed) => reply["UnprocessedKeys"] = unprocessed,
        }
    }
}
