//! Opens the events of the ready-made sources, and finds their keys. Pure.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::envelope::{Opened, open_event_bridge, open_sns};
use crate::invoke::kind::s3_batch::Reply;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::pointer::Pointer;

pub(super) mod s3_batch;
#[cfg(test)]
mod tests;

pub use crate::invoke::kind::s3_batch::S3BatchTask;

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
    /// Returns the fields that name a try or an execution, and are never compared: two may be for the
    /// same work.
    pub(super) fn left_out(self) -> impl Iterator<Item = Pointer> {
        let fields: &[&str] = match self {
            Self::Scheduler => &["/execution_id", "/attempt_number"],
            Self::StepFunctions => &["/idempotency/execution"],
            _ => &[],
        };
        fields.iter().filter_map(|field| field.parse().ok())
    }

    /// Opens an event.
    pub(super) fn open(self, event: &str) -> Result<Content<'_>, &'static str> {
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
                    compared: Some(task.compared()),
                })
            }
            Self::Sns => {
                let event: SnsEvent<'_> = serde_json::from_str(event).map_err(|_| NO_SNS_EVENT)?;
                let [record] = event.records.as_slice() else {
                    return Err(NOT_ONE_RECORD);
                };
                let opened = open_sns(record.sns.get());
                Ok(opened.map_err(|_| NO_SNS_EVENT)?.into())
            }
            Self::EventBridge => {
                let opened = open_event_bridge(event);
                Ok(opened.map_err(|_| NO_BUS_EVENT)?.into())
            }
        }
    }

    /// Finds the token that the source itself gives an event; `None` where it gives none.
    pub(super) fn token(self, content: &Content<'_>) -> Result<Option<String>, &'static str> {
        match self {
            Self::Direct => Ok(None),
            Self::Sns | Self::EventBridge | Self::S3Batch => Ok(content.id.clone()),
            Self::Scheduler => scheduled(&content.text).map(Some),
            Self::StepFunctions => task(&content.text).map(Some),
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

    /// Returns the value of the attribute `faas.trigger` of a span.
    pub(super) fn trigger(self) -> &'static str {
        match self {
            Self::Direct | Self::StepFunctions | Self::S3Batch => "other",
            Self::Sns | Self::EventBridge => "pubsub",
            Self::Scheduler => "timer",
        }
    }
}

/// The members of the envelope that the durable service sends and nothing else does. The token is
/// another in each invocation of an execution.
#[derive(Deserialize)]
struct DurableEnvelope {
    #[serde(rename = "DurableExecutionArn")]
    _arn: String,
    #[serde(rename = "CheckpointToken")]
    _token: String,
}

/// Returns whether an event invokes a durable function. The answer to it says how far the execution
/// is, so that it holds for this one invocation alone.
pub(in crate::invoke) fn is_durable(event: &str) -> bool {
    // Events that are none are not parsed once more.
    let has = |member| event.contains(member);
    has("DurableExecutionArn")
        && has("CheckpointToken")
        // A list would be read as one, too.
        && event.trim_start().starts_with('{')
        && serde_json::from_str::<DurableEnvelope>(event).is_ok()
}

// Each text says why an event is not one of its source, without any of its content.
const NO_SNS_EVENT: &str = "the event is no SNS notification (JSON with `Records`, and in its one record `Sns` with the texts `Type`, `MessageId`, `TopicArn` and `Message`)";
const NOT_ONE_RECORD: &str = "the SNS event has another number of records than one";
const NO_BUS_EVENT: &str = "the event is none of an EventBridge bus (JSON with `id`, `source`, `detail-type` and `detail`): where the rule's target has an input path or a transformer, use `InvokeLayer::new` with a key";
const NO_SCHEDULE: &str = "the event doesn't name its schedule and its time: put \"schedule_arn\": \"<aws.scheduler.schedule-arn>\" and \"scheduled_time\": \"<aws.scheduler.scheduled-time>\" into the schedule's input, or set a key";
const NOT_REPLACED: &str = "a placeholder of the event was not replaced: EventBridge Scheduler replaces `<aws.scheduler.schedule-arn>` and `<aws.scheduler.scheduled-time>` in a schedule's input; a rule of EventBridge doesn't";
const NO_SCHEDULE_ARN: &str =
    "the event's \"schedule_arn\" is no schedule's ARN: fill it from <aws.scheduler.schedule-arn>";
const NO_EXECUTION: &str = "the payload doesn't name the execution and its state: put \"idempotency\": {\"execution\": …, \"state\": …} into it, from `$$.Execution.Id` and `$$.State.Name` in JSONPath, or from `$states.context.Execution.Id` and `$states.context.State.Name` in JSONata; or set a key";
const NOT_EVALUATED: &str = "a value of the payload's \"idempotency\" is a path that Step Functions did not evaluate: in JSONPath the member's name ends with `.$`, in JSONata the value is in `{% … %}` and the state's query language is JSONata";
const NO_EXECUTION_ARN: &str = "`execution` of the payload's \"idempotency\" is no execution's ARN: fill it from `$$.Execution.Id` in JSONPath, from `$states.context.Execution.Id` in JSONata; an execution's name may be used again";
const NO_POSITION: &str = "`index` and `iteration` of the payload's \"idempotency\" are texts or numbers: leave out what a state doesn't have";
pub(in crate::invoke) const DURABLE: &str = "the event invokes a durable execution, and its answer holds for this invocation alone: take the layer off the durable function, and call `Idempotency::run` inside `ctx.step`, with a key of the execution or of the work; `derive_key` of the step's claim is for the effect";

#[derive(Deserialize)]
struct Input {
    schedule_arn: String,
    scheduled_time: String,
}

/// Makes the token of a schedule's input. A hash, since an ARN and a time may be longer than a
/// token.
fn scheduled(input: &str) -> Result<String, &'static str> {
    let Input {
        schedule_arn,
        scheduled_time,
    } = serde_json::from_str(input).map_err(|_| NO_SCHEDULE)?;
    let parts = [schedule_arn.as_str(), scheduled_time.as_str()];
    if parts.iter().any(|part| part.trim_start().starts_with('<')) {
        return Err(NOT_REPLACED);
    }
    if schedule_arn.is_empty() || scheduled_time.trim().is_empty() {
        return Err(NO_SCHEDULE);
    }
    if !schedule_arn.starts_with("arn:") || !schedule_arn.contains(":schedule/") {
        return Err(NO_SCHEDULE_ARN);
    }
    let identity = Fingerprint::of(&parts).map_err(|_| NO_SCHEDULE)?;
    Ok(identity.as_str().to_owned())
}

#[derive(Deserialize)]
struct Payload {
    idempotency: Place,
}

#[derive(Deserialize)]
struct Place {
    execution: String,
    state: String,
    #[serde(default)]
    index: Value,
    #[serde(default)]
    iteration: Value,
}

/// Makes the token of a task's payload. A hash, since the parts may be longer than a token.
fn task(payload: &str) -> Result<String, &'static str> {
    let Payload { idempotency: place } = serde_json::from_str(payload).map_err(|_| NO_EXECUTION)?;
    let texts = [
        Some(place.execution.clone()),
        Some(place.state.clone()),
        part(place.index)?,
        part(place.iteration)?,
    ];
    let is_path = |text: &String| text.starts_with('$') || text.starts_with("{%");
    if texts.iter().flatten().any(is_path) {
        return Err(NOT_EVALUATED);
    }
    if place.execution.is_empty() || place.state.is_empty() {
        return Err(NO_EXECUTION);
    }
    let has = |kind| place.execution.contains(kind);
    if !place.execution.starts_with("arn:") || !(has(":execution:") || has(":express:")) {
        return Err(NO_EXECUTION_ARN);
    }
    let identity = Fingerprint::of(&texts).map_err(|_| NO_EXECUTION)?;
    Ok(identity.as_str().to_owned())
}

/// Reads a position: `7` and `"7"` are the same.
fn part(value: Value) -> Result<Option<String>, &'static str> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(NO_POSITION),
    }
}
