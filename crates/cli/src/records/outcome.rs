//! A stored outcome, as an operator reads it.

use std::fmt;

use lambda_idempotency::http::response_of;
use lambda_idempotency::protocol::record::StoredOutcome;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::output::NL;

/// Returns whether an outcome is a response, as the HTTP layer stores it.
pub(crate) fn is_response(outcome: &StoredOutcome) -> bool {
    matches!(outcome, StoredOutcome::Inline(text) if response_of(text).is_some())
}

/// JSON as it is stored, to the last digit of its numbers.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// `None` for what is no JSON.
    pub(crate) fn of(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Between its values, a line end says nothing.
        f.write_str(&self.0.get().replace(['\n', '\r'], " "))
    }
}

/// The outcome that a record stores.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OutcomeView {
    /// A JSON value: what the handler returned, or its failure.
    Json {
        /// The value.
        #[schemars(with = "Value")]
        value: Json,
    },
    /// An HTTP response.
    Response {
        /// The status.
        status: u16,
        /// The headers, in their order.
        headers: Vec<(String, String)>,
        /// The body, as far as it is text.
        body: String,
    },
    /// A text that is no JSON: another library's.
    Text {
        /// The text.
        text: String,
    },
    /// A large outcome, kept compressed.
    Packed {
        /// The bytes of its text.
        bytes: u64,
        /// The SHA-256 of its text, in hex.
        sha256: String,
    },
    /// It can't be given back.
    Omitted {
        /// The reason.
        reason: String,
    },
}

impl OutcomeView {
    pub(crate) fn of(outcome: &StoredOutcome) -> Self {
        match outcome {
            StoredOutcome::Inline(text) => Self::of_text(text),
            StoredOutcome::Packed(packed) => Self::Packed {
                bytes: packed.bytes,
                sha256: packed.sha256.clone(),
            },
            StoredOutcome::Omitted(reason) => Self::Omitted {
                reason: reason.as_str().to_owned(),
            },
            _ => Self::Omitted {
                reason: "of a kind that this release doesn't know".to_owned(),
            },
        }
    }

    fn of_text(text: &str) -> Self {
        if let Some(response) = response_of(text) {
            let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
                let value = String::from_utf8_lossy(value.as_bytes());
                (name.to_string(), value.into_owned())
            };
            return Self::Response {
                status: response.status().as_u16(),
                headers: response.headers().iter().map(header).collect(),
                body: String::from_utf8_lossy(response.body()).into_owned(),
            };
        }
        match Json::of(text) {
            Some(value) => Self::Json { value },
            None => Self::Text {
                text: text.to_owned(),
            },
        }
    }
}

impl fmt::Display for OutcomeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { value } => value.fmt(f),
            Self::Response {
                status,
                headers,
                body,
            } => {
                write!(f, "HTTP {status}")?;
                // No line of it passes for one of the record's.
                for (name, value) in headers {
                    write!(f, "{NL}  | {name}: {value}")?;
                }
                if !body.is_empty() {
                    write!(f, "{NL}  |")?;
                }
                for line in body.lines() {
                    write!(f, "{NL}  | {line}")?;
                }
                Ok(())
            }
            Self::Text { text } => f.write_str(text),
            Self::Packed { bytes, .. } => write!(f, "{bytes} bytes, kept compressed"),
            Self::Omitted { reason } => write!(f, "not kept: {reason}"),
        }
    }
}
