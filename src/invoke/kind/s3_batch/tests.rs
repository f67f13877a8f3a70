//! Tests of the module above.

use std::fmt;

use serde_json::{Value, json};

use super::*;
use crate::engine::error::{Error, Obstacle};
use crate::protocol::record::Omission;
use crate::store::transaction::Refusal;

const V1: &str = include_str!("../../../../tests/fixtures/s3-batch-v1.json");
const V2: &str = include_str!("../../../../tests/fixtures/s3-batch-v2.json");

/// The task of the event with another value in this place.
fn with(event: &str, pointer: &str, value: Value) -> Result<S3BatchTask, &'static str> {
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
    assert_eq!(key("%FF"), Err(NO_UTF8_KEY));
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
    let compared = |pointer, value| with(V2, pointer, value).unwrap().compared();
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
        (json!([]), NOT_ONE_TASK),
        (json!([task, task]), NOT_ONE_TASK),
        (json!([{ "taskId": "t", "s3Key": "k" }]), NO_TASK),
        (
            json!([{ "taskId": "t", "s3Key": "", "s3Bucket": "b" }]),
            NO_TASK,
        ),
        (
            json!([{ "taskId": "t", "s3Key": "k", "s3Bucket": "" }]),
            NO_TASK,
        ),
        (json!([{ "s3Key": "k", "s3Bucket": "b" }]), NO_TASK),
        (json!("secret"), NO_TASK),
    ] {
        assert_eq!(with(V1, "/tasks", tasks.clone()), Err(expected), "{tasks}");
    }
    assert_eq!(with(V1, "/job/id", json!("")), Err(NO_TASK));
}

const EVENT: &str = include_str!("../../../../tests/fixtures/s3-batch-v1.json");

fn reply() -> Reply {
    Reply::to(EVENT).unwrap()
}

fn parsed(json: &RawValue) -> Value {
    serde_json::from_str(json.get()).unwrap()
}

fn failed(obstacle: Obstacle, is_rejected: bool) -> (String, String) {
    let error = InvokeError::<&str>::Obstacle(obstacle);
    let reply = parsed(&reply().failed(&error, is_rejected));
    let result = &reply["results"][0];
    let text = |name: &str| result[name].as_str().unwrap().to_owned();
    (text("resultCode"), text("resultString"))
}

#[test]
fn the_reply_has_the_form_that_aws_documents() {
    let expected = include_str!("../../../../tests/fixtures/s3-batch-reply.json");
    let answer = RawValue::from_string(r#"["Mary Major","John Stiles"]"#.into()).unwrap();
    let expected: Value = serde_json::from_str(expected).unwrap();
    assert_eq!(parsed(&reply().succeeded(&answer)), expected);
}

#[test]
fn a_text_is_its_own_result_and_null_none() {
    for (answer, expected) in [
        (r#""caf\u00e9""#, "café"),
        ("null", ""),
        ("7.0", "7.0"),
        (r#"{"a": [1]}"#, r#"{"a": [1]}"#),
    ] {
        let answer = RawValue::from_string(answer.into()).unwrap();
        let reply = parsed(&reply().succeeded(&answer));
        assert_eq!(reply["results"][0]["resultString"], expected);
    }
}

#[test]
fn what_no_try_of_the_job_mends_is_permanent() {
    let omitted = Error::OutcomeOmitted {
        reason: Omission::TooLarge,
        completed_at: None,
        handler_ran: false,
    };
    for (obstacle, is_rejected, code, word) in [
        (
            Error::LeaseLost,
            false,
            "TemporaryFailure",
            "Idempotency.LeaseLost: ",
        ),
        (
            Error::TooLate,
            false,
            "TemporaryFailure",
            "Idempotency.TooLate: ",
        ),
        (
            Error::Mismatch,
            true,
            "PermanentFailure",
            "Idempotency.Mismatch: ",
        ),
        (
            Error::Interrupted {
                since: std::time::SystemTime::UNIX_EPOCH,
            },
            false,
            "PermanentFailure",
            "Idempotency.Interrupted: ",
        ),
        (
            Error::Exhausted { attempts: 3 },
            false,
            "PermanentFailure",
            "Idempotency.Exhausted: ",
        ),
        (
            Error::Unreadable("it".into()),
            false,
            "PermanentFailure",
            "Idempotency.Unreadable: ",
        ),
        (
            Error::Refused(Refusal::new(0, None)),
            false,
            "PermanentFailure",
            "Idempotency.ConditionFailed: ",
        ),
        (omitted, false, "Succeeded", "Idempotency.OutcomeOmitted: "),
    ] {
        let (found, text) = failed(obstacle, is_rejected);
        assert_eq!(found, code, "{text}");
        assert!(text.starts_with(word), "{text}");
    }
}

#[test]
fn the_text_of_a_handlers_error_is_its_own_even_where_it_panics() {
    struct Panics;
    impl fmt::Display for Panics {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("in `Display`")
        }
    }
    let text = |reply: Box<RawValue>| parsed(&reply)["results"][0]["resultString"].clone();
    let busy = InvokeError::Handler("busy");
    assert_eq!(text(reply().failed(&busy, false)), "busy");
    let panics = text(reply().failed(&InvokeError::Handler(Panics), false));
    assert!(panics.as_str().unwrap().ends_with("Panics"), "{panics}");
}

#[test]
fn an_event_of_another_source_gets_no_reply() {
    for event in ["{}", "null", "[]", r#"{"Records": []}"#] {
        assert!(Reply::to(event).is_none(), "{event}");
    }
    let two = EVENT.replace("\"tasks\": [", "\"tasks\": [{\"taskId\": \"t-0\"},");
    assert!(Reply::to(&two).is_none());
}
