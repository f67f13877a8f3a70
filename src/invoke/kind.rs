//! Opens the events of the ready-made sources, and finds their keys. Pure.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reply::Reply;
use crate::envelope::{Opened, open_event_bridge, open_sns};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::pointer::Pointer;

mod durable;
mod error;
mod s3_batch;
mod scheduler;
mod step_functions;

pub(super) use durable::is_envelope as is_durable;
pub(super) use error::KindError;

pub use s3_batch::S3BatchTask;

/// Names the source of a layer's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Direct,
    Sns,
    EventBridge,
    Scheduler,
    StepFunctions,
    S3Batch,
}

/// Holds the content of an event: the JSON text that is decoded, and what its source says of it.
#[derive(Debug)]
pub(super) struct Content<'a> {
    pub(super) text: Cow<'a, str>,
    /// The id that the source gave the event.
    id: Option<String>,
    /// The part of the envelope that says what the text asks for.
    context: Vec<Fingerprint>,
    /// The JSON text that is compared, where it isn't the one that is decoded.
    compared: Option<String>,
}

impl Content<'_> {
    /// Takes the fingerprint of the text without these fields, and of what its envelope says that
    /// the text asks for.
    pub(super) fn fingerprint(&self, left_out: &[Pointer]) -> Fingerprint {
        let compared = self.compared.as_deref().unwrap_or(&self.text);
        let text = Fingerprint::json_without(compared.as_bytes(), left_out);
        if self.context.is_empty() {
            return text;
        }
        Fingerprint::combine(self.context.iter().chain([&text]))
    }
}

impl From<Opened> for Content<'_> {
    fn from(opened: Opened) -> Self {
        Self {
            text: Cow::Owned(opened.text),
            id: opened.id,
            context: opened.context,
            compared: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SnsEvent<'a> {
    #[serde(borrow)]
    records: Vec<SnsRecord<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SnsRecord<'a> {
    #[serde(borrow)]
    sns: &'a RawValue,
}

impl Kind {
    /// Opens an event.
    pub(super) fn open(self, event: &str) -> Result<Content<'_>, KindError> {
        match self {
            Self::Direct | Self::Scheduler | Self::StepFunctions => Ok(Content {
                text: Cow::Borrowed(event),
                id: None,
                context: Vec::new(),
                compared: None,
            }),
            Self::S3Batch => {
                let task = S3BatchTask::read(event)?;
                Ok(Content {
                    text: Cow::Borrowed(event),
                    id: Some(task.token()?),
                    context: Vec::new(),
                    compared: Some(task.compared()?),
                })
            }
            Self::Sns => {
                let event: SnsEvent<'_> =
                    serde_json::from_str(event).map_err(|_| KindError::Sns)?;
                let [record] = event.records.as_slice() else {
                    return Err(KindError::SnsRecords);
                };
                let opened = open_sns(record.sns.get());
                Ok(opened.map_err(|_| KindError::Sns)?.into())
            }
            Self::EventBridge => {
                let opened = open_event_bridge(event);
                Ok(opened.map_err(|_| KindError::EventBridge)?.into())
            }
        }
    }

    /// Finds the token that the source itself gives an event; `None` where it gives none.
    pub(super) fn token(self, content: &Content<'_>) -> Result<Option<String>, KindError> {
        match self {
            Self::Direct => Ok(None),
            Self::Sns | Self::EventBridge | Self::S3Batch => Ok(content.id.clone()),
            Self::Scheduler => scheduler::token(&content.text).map(Some),
            Self::StepFunctions => step_functions::token(&content.text).map(Some),
        }
    }

    /// Makes the reply that the source reads, where it isn't the handler's answer; `None` for an
    /// event without the ids that the reply repeats.
    pub(super) fn reply(self, event: &str) -> Option<Reply> {
        match self {
            Self::S3Batch => Reply::to(event),
            _ => None,
        }
    }

    /// Gives the value of the attribute `faas.trigger` of a span.
    pub(super) fn trigger(self) -> &'static str {
        match self {
            Self::Direct | Self::StepFunctions | Self::S3Batch => "other",
            Self::Sns | Self::EventBridge => "pubsub",
            Self::Scheduler => "timer",
        }
    }
}

#[cfg(test)]
mod tests;
