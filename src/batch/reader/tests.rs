//! Tests of the module above.

use aws_lambda_events::event::sqs::SqsMessage;
use serde_json::Value;

use super::*;
use crate::batch::report::unknown;
use crate::protocol::causes::unlinked;
use crate::protocol::key::{DEFAULT_MAX_TOKEN_CHARS, Namespace};
use crate::sqs::SqsEvent;

pub(in crate::batch) fn message(id: &str, body: &str) -> SqsMessage {
    let mut message = SqsMessage::default();
    message.message_id = Some(id.to_owned());
    message.body = Some(body.to_owned());
    message
}

fn record_of(key: &Key) -> Result<RecordId, KeyError> {
    key.resolve(&Namespace::new("shop").unwrap(), DEFAULT_MAX_TOKEN_CHARS)
}

type Identify = fn(&Key) -> Result<RecordId, KeyError>;

/// Nothing is protected.
const NOTHING: Option<Identify> = None;

/// A batch of which each message was looked at, and nothing has run.
pub(in crate::batch) struct Plan {
    pub(in crate::batch) fates: Vec<Fate>,
    pub(in crate::batch) ready: Vec<Ready<SqsEvent, Value>>,
}

fn plan_with<F>(mut planner: Planner<'_, SqsEvent, Value, F>, messages: Vec<SqsMessage>) -> Plan
where
    F: Fn(&Key) -> Result<RecordId, KeyError>,
{
    let mut plan = Plan {
        fates: unknown(messages.len()),
        ready: Vec::new(),
    };
    for (position, message) in messages.into_iter().enumerate() {
        let payload = None;
        let turn = Turn {
            position,
            message,
            payload,
        };
        plan.fates[position] = match planner.plan(turn, &plan.fates) {
            Planned::ToRun(ready) => {
                plan.ready.push(ready);
                continue;
            }
            Planned::Differs(leader, _) => Fate::Reported(Reason::Mismatch { leader }),
            Planned::Decided(fate) => fate,
        };
    }
    plan
}

fn keyed(key: KeySource<Value, SqsMessage, KeyPlace>) -> Reader<SqsEvent, Value> {
    Reader {
        key,
        ..Reader::new()
    }
}

/// Keys are the body's `key` member.
pub(in crate::batch) fn plan(messages: Vec<SqsMessage>) -> Plan {
    let key = |body: &Value| body["key"].as_str().map(str::to_owned);
    let reader = keyed(KeySource::of_source().body(key));
    let operation = "charge".into();
    let planner = Planner::new(messages.len(), Some(&operation), &reader, Some(record_of));
    plan_with(planner, messages)
}

fn said(fate: &Fate) -> String {
    match fate {
        Fate::Done => "done".to_owned(),
        Fate::Follows(leader) => format!("follows {leader}"),
        Fate::Reported(reason) => unlinked(reason),
    }
}

#[test]
fn the_first_message_of_a_request_leads_and_the_others_follow() {
    let plan = plan(vec![
        message("m-1", r#"{"key": "a", "n": 1}"#),
        message("m-2", r#"{"key": "b", "n": 1}"#),
        message("m-3", r#"{"n": 1, "key": "a"}"#),
        message("m-4", r#"{"key": "a", "n": 2}"#),
    ]);
    let running: Vec<_> = plan.ready.iter().map(|ready| ready.position).collect();
    assert_eq!(running, [0, 1]);
    assert_matches!(plan.fates[2], Fate::Follows(0));
    assert_matches!(
        plan.fates[3],
        Fate::Reported(Reason::Mismatch { leader: 0 })
    );
}

#[test]
fn two_operations_under_one_raw_id_are_two_requests() {
    let from = |queue: &str, id: &str| {
        let mut message = message(id, "1");
        message.event_source_arn = Some(format!("arn:aws:sqs:eu-central-1:123456789012:{queue}"));
        message
    };
    let messages = vec![
        from("charges", "m-1"),
        from("refunds", "m-2"),
        from("charges", "m-3"),
    ];
    let reader = keyed(KeySource::of_source().raw_id(|_: &Value, _: &SqsMessage| "order-17"));
    let planner = Planner::new(3, None, &reader, Some(record_of));
    let plan = plan_with(planner, messages);
    assert_eq!(plan.ready.len(), 1);
    assert_matches!(
        plan.fates[1],
        Fate::Reported(Reason::Mismatch { leader: 0 })
    );
    assert_matches!(plan.fates[2], Fate::Follows(0));
}

#[test]
fn messages_without_a_key_are_never_taken_for_one() {
    let plan = plan(vec![message("m-1", "{}"), message("m-2", "{}")]);
    assert_eq!(plan.ready.len(), 2);
    assert!(plan.ready.iter().all(|ready| ready.identity.key.is_none()));
}

#[test]
fn messages_that_are_not_to_be_compared_all_run() {
    let reader = Reader::new();
    let planner = Planner::new(2, None, &reader, NOTHING);
    let plan = plan_with(planner, vec![message("m-1", "1"), message("m-1", "1")]);
    assert_eq!(plan.ready.len(), 2);
}

#[test]
fn a_key_that_panics_is_its_messages_own_trouble() {
    let key = |body: &Value| body.as_str().unwrap().to_owned();
    let reader = keyed(KeySource::of_source().body(key));
    let planner = Planner::new(2, None, &reader, Some(record_of));
    let plan = plan_with(planner, vec![message("m-1", "1"), message("m-2", r#""a""#)]);
    assert_matches!(plan.fates[0], Fate::Reported(Reason::Panicked));
    assert_eq!(plan.ready.len(), 1);
}

#[test]
fn where_nothing_is_protected_a_key_that_panics_is_no_key() {
    let key = |body: &Value| body.as_str().unwrap().to_owned();
    let reader = keyed(KeySource::of_source().body(key));
    let planner = Planner::new(1, None, &reader, NOTHING);
    let plan = plan_with(planner, vec![message("m-1", "1")]);
    assert_eq!(plan.ready.len(), 1);
    assert!(plan.ready[0].identity.key.is_none());
}

#[test]
fn what_cannot_run_says_why() {
    let mut bare = message("m-1", "");
    bare.body = None;
    let deep = "[".repeat(10_000);
    let plan = plan(vec![
        bare,
        message("m-2", ""),
        message("m-3", "bm90IGpzb24="),
        message("m-4", &deep),
    ]);
    assert!(plan.ready.is_empty());
    let said: Vec<_> = plan.fates.iter().map(said).collect();
    assert_eq!(
        said,
        [
            "the message has no body",
            "the body doesn't decode: Eof error at line 1, column 0",
            "the body doesn't decode: Syntax error at line 1, column 1",
            "the body doesn't decode: Syntax error at line 1, column 128",
        ]
    );
}

#[test]
fn an_s3_notification_has_one_fingerprint_in_its_envelope_and_without() {
    let record = r#"{"s3": {"bucket": {"name": "b"}, "object": {"key": "k", "sequencer": "1"}}}"#;
    let fingerprint = |envelopes, body: &str| {
        let reader = Reader::<SqsEvent, Value> {
            envelopes,
            ..Reader::new()
        };
        let read = reader.read("index".into(), &message("m-1", body), None, false);
        read.ok().unwrap().1.fingerprint.unwrap()
    };
    let queued = fingerprint(vec![Envelope::S3], &format!(r#"{{"Records": [{record}]}}"#));
    assert_eq!(queued, fingerprint(Vec::new(), record));
}

#[test]
fn an_attribute_that_is_compared_counts_by_its_name_its_presence_and_its_text() {
    let mut reader = Reader::<SqsEvent, Value>::new();
    reader.fingerprint.set(&Settings {
        fingerprint_attributes: vec!["type".to_owned(), "trace".to_owned()],
        ..Settings::new()
    });
    let message = serde_json::json!({
        "body": "1",
        "attributes": {},
        "messageAttributes": { "type": { "stringValue": "placed", "dataType": "String" } },
    });
    let message = serde_json::from_value(message).unwrap();
    let read = reader.read("index".into(), &message, None, false);
    // So that records of another version of the library are understood.
    let texts = ["trace", "0", "", "type", "1", "placed"].map(str::as_bytes);
    let texts = texts.map(Fingerprint::bytes);
    let expected = [Fingerprint::json(b"1")].into_iter().chain(texts);
    let expected = Fingerprint::combine(&expected.collect::<Vec<_>>());
    assert_eq!(read.ok().unwrap().1.fingerprint, Some(expected));
}

#[cfg(feature = "jmespath")]
#[test]
fn a_body_that_an_expression_cannot_read_is_undecodable() {
    let decode = |_: &[u8], _: &SqsMessage| Ok::<_, String>(Value::Null);
    let reader = Reader::<SqsEvent, _> {
        key: KeySource::of_source().selected(KeyPlace::Json(Selector::jmespath("id").unwrap())),
        ..Reader::with(decode)
    };
    let unreadable = message("m-1", r#"{"id": 1, "a": "\ud83d"}"#);
    let read = reader.read("charge".into(), &unreadable, None, false);
    assert!(matches!(read, Err(Reason::Undecodable(_))));
}

#[test]
fn the_operation_is_the_queues_name_unless_it_is_set() {
    for (arn, expected) in [
        (
            Some("arn:aws:sqs:eu-central-1:123456789012:payments"),
            "payments",
        ),
        (Some("payments"), "payments"),
        (Some(""), "sqs"),
        (None, "sqs"),
    ] {
        let mut message = message("m-1", "1");
        message.event_source_arn = arn.map(str::to_owned);
        let reader = Reader::new();
        let planner = Planner::new(1, None, &reader, NOTHING);
        let plan = plan_with(planner, vec![message]);
        let key = plan.ready[0].identity.key.as_ref().unwrap();
        assert_eq!(key.operation(), expected);
    }
}
