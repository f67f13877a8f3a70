//! Decodes the event of an S3 Batch Operations job, finds its token, and makes its reply.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::engine::error::ErrorKind;
use crate::envelope::object_key;
use crate::invoke::error::InvokeError;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::record::error_text;

#[cfg(test)]
mod tests;

/// Holds one task of an [S3 Batch Operations][page] job: an object of the job's manifest. The
/// handler of [`InvokeLayer::s3_batch`](crate::invoke::InvokeLayer::s3_batch) gets it. It decodes
/// from the whole event, in both versions of the invocation schema.
///
/// ```
/// use lambda_idempotency::invoke::S3BatchTask;
///
/// let event = r#"{
///     "invocationSchemaVersion": "2.0",
///     "invocationId": "i-1",
///     "job": {"id": "j-1", "userArguments": {"size": "small"}},
///     "tasks": [{"taskId": "t-1", "s3Key": "a/red+flower.jpg", "s3VersionId": null, "s3Bucket": "pictures"}]
/// }"#;
/// let task: S3BatchTask = serde_json::from_str(event)?;
/// assert_eq!((task.bucket.as_str(), task.key.as_str()), ("pictures", "a/red flower.jpg"));
/// assert_eq!(task.user_arguments["size"], "small");
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// [page]: https://docs.aws.amazon.com/AmazonS3/latest/userguide/batch-ops-invoke-lambda.html
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct S3BatchTask {
    /// The id of the job.
    pub job_id: String,
    /// The id that S3 gave the task. It is not a part of the key: AWS documents no relation between
    /// the ids of two tries.
    pub task_id: String,
    /// The name of the bucket; of an ARN, as schema 1.0 has it, the text after the last colon.
    pub bucket: String,
    /// The object's key, decoded. Where the manifest has JSON in its place, it is that JSON.
    pub key: String,
    /// The object's version, where the manifest names one.
    pub version_id: Option<String>,
    /// The arguments of the job, in schema 2.0.
    pub user_arguments: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Event {
    // The reply repeats both. An event without them is refused before anything runs.
    #[serde(rename = "invocationSchemaVersion")]
    _schema_version: String,
    #[serde(rename = "invocationId")]
    _invocation_id: String,
    job: Job,
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Job {
    id: String,
    user_arguments: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    #[serde(rename = "taskId")]
    id: String,
    s3_key: String,
    s3_version_id: Option<String>,
    s3_bucket: Option<String>,
    s3_bucket_arn: Option<String>,
}

// Each text says why an event is none of a job.
const NO_TASK: &str = "the event is none of an S3 Batch Operations job (JSON with `invocationSchemaVersion`, `invocationId`, `job.id`, and in its one task `taskId`, `s3Key`, and `s3BucketArn` or `s3Bucket`)";
const NOT_ONE_TASK: &str =
    "the event of the S3 Batch Operations job has another number of tasks than one";
const NO_UTF8_KEY: &str = "the object's key is no UTF-8 when it is URL-decoded";

impl S3BatchTask {
    /// Reads an event.
    pub(super) fn read(event: &str) -> Result<Self, &'static str> {
        let event: Event = serde_json::from_str(event).map_err(|_| NO_TASK)?;
        Self::of(event)
    }

    fn of(event: Event) -> Result<Self, &'static str> {
        let Event { job, tasks, .. } = event;
        let [task] = <[Task; 1]>::try_from(tasks).map_err(|_| NOT_ONE_TASK)?;
        let of_arn = |arn: String| arn.rsplit(':').next().map(str::to_owned);
        let bucket = task.s3_bucket.or_else(|| of_arn(task.s3_bucket_arn?));
        let bucket = bucket.filter(|bucket| !bucket.is_empty());
        let bucket = bucket.ok_or(NO_TASK)?;
        if job.id.is_empty() || task.s3_key.is_empty() {
            return Err(NO_TASK);
        }
        Ok(Self {
            job_id: job.id,
            task_id: task.id,
            bucket,
            key: object_key(&task.s3_key).ok_or(NO_UTF8_KEY)?,
            version_id: task.s3_version_id.filter(|version| !version.is_empty()),
            user_arguments: job.user_arguments.unwrap_or_default(),
        })
    }

    /// Makes the token: the job, the bucket, the object's key and version. A hash, since an
    /// object's key may be longer than a token.
    pub(super) fn token(&self) -> Result<String, &'static str> {
        let parts = (&self.job_id, &self.bucket, &self.key, &self.version_id);
        let identity = Fingerprint::of(&parts).map_err(|_| NO_TASK)?;
        Ok(identity.as_str().to_owned())
    }

    /// Makes the JSON text that two tasks of one key are compared by: what the task asks for,
    /// without the ids of the job and of the try.
    pub(super) fn compared(&self) -> String {
        let compared = json!({
            "bucket": self.bucket,
            "key": self.key,
            "version_id": self.version_id,
            "user_arguments": self.user_arguments,
        });
        compared.to_string()
    }
}

impl<'de> Deserialize<'de> for S3BatchTask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let event = Event::deserialize(deserializer)?;
        Self::of(event).map_err(D::Error::custom)
    }
}

/// Holds the ids that a reply repeats from its event.
#[derive(Debug)]
pub(in crate::invoke) struct Reply {
    schema_version: String,
    invocation_id: String,
    task_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ids {
    invocation_schema_version: String,
    invocation_id: String,
    tasks: Vec<TaskId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskId {
    task_id: String,
}

/// The codes that AWS documents for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum ResultCode {
    Succeeded,
    TemporaryFailure,
    PermanentFailure,
}

impl Reply {
    /// Makes the reply to an event; `None` where the event has not the ids of one task.
    pub(in crate::invoke) fn to(event: &str) -> Option<Self> {
        let event: Ids = serde_json::from_str(event).ok()?;
        let [TaskId { task_id }] = <[TaskId; 1]>::try_from(event.tasks).ok()?;
        Some(Self {
            schema_version: event.invocation_schema_version,
            invocation_id: event.invocation_id,
            task_id,
        })
    }

    /// Reports a task that is done, with this answer: a text as it is, `null` as the empty text,
    /// and other JSON as JSON.
    pub(in crate::invoke) fn succeeded(&self, answer: &RawValue) -> Box<RawValue> {
        let text = match serde_json::from_str::<Option<String>>(answer.get()) {
            Ok(text) => text.unwrap_or_default(),
            Err(_) => answer.get().to_owned(),
        };
        self.result(ResultCode::Succeeded, &text)
    }

    /// Reports a task that has no answer.
    pub(in crate::invoke) fn failed<E: Display + 'static>(
        &self,
        error: &InvokeError<E>,
        is_rejected: bool,
    ) -> Box<RawValue> {
        let code = if is_rejected {
            ResultCode::PermanentFailure
        } else {
            code(error)
        };
        let text = match (error, error.error_type()) {
            (InvokeError::Handler(error), _) => error_text(error),
            (error, word) => format!("{}: {error}", word.unwrap_or_default()),
        };
        self.result(code, &text)
    }

    fn result(&self, result_code: ResultCode, result_string: &str) -> Box<RawValue> {
        let reply = json!({
            "invocationSchemaVersion": self.schema_version,
            // The code of a task without a result. A reply has a result for its one task.
            "treatMissingKeysAs": ResultCode::TemporaryFailure,
            "invocationId": self.invocation_id,
            "results": [{
                "taskId": self.task_id,
                "resultCode": result_code,
                "resultString": result_string,
            }],
        });
        // Texts can always be written as JSON.
        to_raw_value(&reply).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}

/// Judges an error that is no rejection.
fn code<E>(error: &InvokeError<E>) -> ResultCode {
    let InvokeError::Obstacle(obstacle) = error else {
        return ResultCode::TemporaryFailure;
    };
    match obstacle.kind() {
        // The work is done; its answer alone is missing.
        ErrorKind::OutcomeOmitted => ResultCode::Succeeded,
        // The job ends before an operator has looked.
        ErrorKind::Interrupted
        | ErrorKind::Exhausted
        | ErrorKind::Unreadable
        | ErrorKind::ConditionFailed => ResultCode::PermanentFailure,
        _ => ResultCode::TemporaryFailure,
    }
}
