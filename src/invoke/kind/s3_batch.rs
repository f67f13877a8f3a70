//! Decodes the event of an S3 Batch Operations job, and finds its token.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::error::KindError;
use crate::envelope::object_key;
use crate::protocol::fingerprint::Fingerprint;

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

/// Holds what two tasks of one key are compared by.
#[derive(Serialize)]
struct Compared<'a> {
    bucket: &'a str,
    key: &'a str,
    version_id: Option<&'a str>,
    user_arguments: &'a BTreeMap<String, String>,
}

impl S3BatchTask {
    /// Reads an event.
    pub(super) fn read(event: &str) -> Result<Self, KindError> {
        let event: Event = serde_json::from_str(event).map_err(|_| KindError::S3Batch)?;
        Self::of(event)
    }

    fn of(event: Event) -> Result<Self, KindError> {
        let Event { job, tasks, .. } = event;
        let [task] = <[Task; 1]>::try_from(tasks).map_err(|_| KindError::S3BatchTasks)?;
        let of_arn = |arn: String| arn.rsplit(':').next().map(str::to_owned);
        let bucket = task.s3_bucket.or_else(|| of_arn(task.s3_bucket_arn?));
        let bucket = bucket.filter(|bucket| !bucket.is_empty());
        let bucket = bucket.ok_or(KindError::S3Batch)?;
        if job.id.is_empty() || task.s3_key.is_empty() {
            return Err(KindError::S3Batch);
        }
        Ok(Self {
            job_id: job.id,
            task_id: task.id,
            bucket,
            key: object_key(&task.s3_key).ok_or(KindError::S3BatchKey)?,
            version_id: task.s3_version_id.filter(|version| !version.is_empty()),
            user_arguments: job.user_arguments.unwrap_or_default(),
        })
    }

    /// Makes the token: the job, the bucket, the object's key and version. A hash, since an
    /// object's key may be longer than a token.
    pub(super) fn token(&self) -> Result<String, KindError> {
        let parts = (&self.job_id, &self.bucket, &self.key, &self.version_id);
        let identity = Fingerprint::of(&parts).map_err(|_| KindError::S3Batch)?;
        Ok(identity.as_str().to_owned())
    }

    /// Makes the JSON text that two tasks of one key are compared by: what the task asks for,
    /// without the ids of the job and of the try.
    pub(super) fn compared(&self) -> Result<String, KindError> {
        let compared = Compared {
            bucket: &self.bucket,
            key: &self.key,
            version_id: self.version_id.as_deref(),
            user_arguments: &self.user_arguments,
        };
        serde_json::to_string(&compared).map_err(|_| KindError::S3Batch)
    }
}

impl<'de> Deserialize<'de> for S3BatchTask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let event = Event::deserialize(deserializer)?;
        Self::of(event).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const V1: &str = include_str!("../../../tests/fixtures/s3-batch-v1.json");
    const V2: &str = include_str!("../../../tests/fixtures/s3-batch-v2.json");

    /// The task of the event with another value in this place.
    fn with(event: &str, pointer: &str, value: Value) -> Result<S3BatchTask, KindError> {
        let mut event: Value = serde_json::from_str(event).unwrap();
        *event.pointer_mut(pointer).unwrap() = value;
        S3BatchTask::read(&event.to_string())
    }

    #[test]
    fn both_schemas_are_read() {
        let task = S3BatchTask::read(V1).unwrap();
        assert_eq!(task.job_id, "f3cc4f60-61f6-4a2b-8a21-d07600c373ce");
        assert_eq!(task.bucket, "amzn-s3-demo-bucket");
        assert_eq!(task.key, "customerImage1.jpg");
        assert_eq!(task.version_id.as_deref(), Some("1"));
        let task = S3BatchTask::read(V2).unwrap();
        assert_eq!(task.bucket, "pictures");
        assert_eq!(task.version_id, None);
        assert_eq!(task.user_arguments["size"], "small");
    }

    #[test]
    fn a_key_is_decoded() {
        let key = |key: &str| with(V1, "/tasks/0/s3Key", json!(key)).map(|task| task.key);
        assert_eq!(key("a/red+flower.pdf").unwrap(), "a/red flower.pdf");
        assert_eq!(key("1%2B1%20%C3%BC.txt").unwrap(), "1+1 ü.txt");
        assert_eq!(
            key("%7B%22to%22%3A%20%22b%22%7D").unwrap(),
            r#"{"to": "b"}"#
        );
        assert_eq!(key("%FF"), Err(KindError::S3BatchKey));
    }

    #[test]
    fn the_token_is_of_the_object_in_its_job_and_not_of_the_try() {
        let token = |pointer, value| with(V1, pointer, value).unwrap().token().unwrap();
        let first = token("/tasks/0/taskId", json!("t-1"));
        assert_eq!(token("/tasks/0/taskId", json!("t-2")), first);
        assert_eq!(token("/invocationId", json!("i-2")), first);
        for pointer in ["/job/id", "/tasks/0/s3Key", "/tasks/0/s3VersionId"] {
            assert_ne!(token(pointer, json!("another")), first, "{pointer}");
        }
        assert_ne!(
            token("/tasks/0/s3BucketArn", json!("arn:aws:s3:::b")),
            first
        );
    }

    #[test]
    fn what_a_task_asks_for_is_compared_and_not_its_job() {
        let compared = |pointer, value| with(V2, pointer, value).unwrap().compared().unwrap();
        let first = compared("/job/id", json!("j-1"));
        assert_eq!(compared("/job/id", json!("j-2")), first);
        assert_eq!(compared("/tasks/0/taskId", json!("t-2")), first);
        assert_ne!(compared("/tasks/0/s3Key", json!("another")), first);
        assert_ne!(compared("/job/userArguments/size", json!("large")), first);
    }

    #[test]
    fn an_event_without_its_one_object_is_refused() {
        let task = json!({ "taskId": "t", "s3Key": "k", "s3Bucket": "b" });
        for (tasks, expected) in [
            (json!([]), KindError::S3BatchTasks),
            (json!([task, task]), KindError::S3BatchTasks),
            (json!([{ "taskId": "t", "s3Key": "k" }]), KindError::S3Batch),
            (
                json!([{ "taskId": "t", "s3Key": "", "s3Bucket": "b" }]),
                KindError::S3Batch,
            ),
            (
                json!([{ "taskId": "t", "s3Key": "k", "s3Bucket": "" }]),
                KindError::S3Batch,
            ),
            (
                json!([{ "s3Key": "k", "s3Bucket": "b" }]),
                KindError::S3Batch,
            ),
            (json!("secret"), KindError::S3Batch),
        ] {
            assert_eq!(with(V1, "/tasks", tasks.clone()), Err(expected), "{tasks}");
        }
        assert_eq!(with(V1, "/job/id", json!("")), Err(KindError::S3Batch));
    }
}
