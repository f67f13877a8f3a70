//! Opens the events of the ready-made sources, and finds their keys. Pure.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::envelope::{Envelope, Opened};
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::pointer::Pointer;

mod scheduler;
mod step_functions;

/// Names the source of a layer's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Direct,
    Sns,
    EventBridge,
    Scheduler,
    StepFunctions,
}

/// Says why an event is not one of its source, without any of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KindError {
    #[error(
        "the event is no SNS notification (JSON with `Records`, and in its one record `Sns` with the texts `Type`, `MessageId`, `TopicArn` and `Message`)"
    )]
    Sns,
    #[error("the SNS event has another number of records than one")]
    SnsRecords,
    #[error(
        "the event is none of an EventBridge bus (JSON with `id`, `source`, `detail-type` and `detail`): where the rule's target has an input path or a transformer, use `InvokeLayer::new` with a key"
    )]
    EventBridge,
    #[error(
        "the event doesn't name its schedule and its time: put \"schedule_arn\": \"<aws.scheduler.schedule-arn>\" and \"scheduled_time\": \"<aws.scheduler.scheduled-time>\" into the schedule's input, or set a key"
    )]
    Scheduler,
    #[error(
        "a placeholder of the event was not replaced: EventBridge Scheduler replaces `<aws.scheduler.schedule-arn>` and `<aws.scheduler.scheduled-time>` in a schedule's input; a rule of EventBridge doesn't"
    )]
    SchedulerPlaceholder,
    #[error(
        "the payload doesn't name the execution and its state: put \"idempotency\": {{\"execution\": …, \"state\": …}} into it, from `$$.Execution.Id` and `$$.State.Name` in JSONPath, or from `$states.context.Execution.Id` and `$states.context.State.Name` in JSONata; or set a key"
    )]
    StepFunctions,
    #[error(
        "a value of the payload's \"idempotency\" is a path that Step Functions did not evaluate: in JSONPath the member's name ends with `.$`, in JSONata the value is in `{{% … %}}` and the state's query language is JSONata"
    )]
    StepFunctionsPath,
    #[error(
        "`index` and `iteration` of the payload's \"idempotency\" are texts or numbers: leave out what a state doesn't have"
    )]
    StepFunctionsPart,
}

/// Holds the content of an event: the JSON text that is decoded, and what its source says of it.
#[derive(Debug)]
pub(super) struct Content<'a> {
    pub(super) text: Cow<'a, str>,
    /// The id that the source gave the event.
    id: Option<String>,
    /// The part of the envelope that says what the text asks for.
    context: Vec<Fingerprint>,
}

impl Content<'_> {
    /// Takes the fingerprint of the text without these fields, and of what its envelope says that
    /// the text asks for.
    pub(super) fn fingerprint(&self, left_out: &[Pointer]) -> Fingerprint {
        let text = Fingerprint::json_without(self.text.as_bytes(), left_out);
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
            }),
            Self::Sns => {
                let event: SnsEvent<'_> =
                    serde_json::from_str(event).map_err(|_| KindError::Sns)?;
                let [record] = event.records.as_slice() else {
                    return Err(KindError::SnsRecords);
                };
                let opened = Envelope::Sns.open(record.sns.get());
                Ok(opened.map_err(|_| KindError::Sns)?.into())
            }
            Self::EventBridge => {
                let opened = Envelope::EventBridge.open(event);
                Ok(opened.map_err(|_| KindError::EventBridge)?.into())
            }
        }
    }

    /// Finds the token that the source itself gives an event; `None` where it gives none.
    pub(super) fn token(self, content: &Content<'_>) -> Result<Option<String>, KindError> {
        match self {
            Self::Direct => Ok(None),
            Self::Sns | Self::EventBridge => Ok(content.id.clone()),
            Self::Scheduler => scheduler::token(&content.text).map(Some),
            Self::StepFunctions => step_functions::token(&content.text).map(Some),
        }
    }

    /// Gives the value of the attribute `faas.trigger` of a span.
    pub(super) fn trigger(self) -> &'static str {
        match self {
            Self::Direct | Self::StepFunctions => "other",
            Self::Sns | Self::EventBridge => "pubsub",
            Self::Scheduler => "timer",
        }
    }
}

#[cfg(test)]
mod tests;
