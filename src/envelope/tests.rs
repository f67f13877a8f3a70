//! Tests of the module above.

use serde_json::{Value, json};

use super::*;

const SNS: &str = include_str!("../../tests/fixtures/sns-notification.json");
const EVENT: &str = include_str!("../../tests/fixtures/eventbridge-event.json");
const S3: &str = include_str!("../../tests/fixtures/s3-notification.json");

/// The body with another value in this place, or without what stands there.
fn with(body: &str, pointer: &str, value: Option<Value>) -> String {
    let mut body: Value = serde_json::from_str(body).unwrap();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => drop(parent.insert(name.to_owned(), value)),
        None => drop(parent.remove(name).unwrap()),
    }
    body.to_string()
}

fn open(envelope: Envelope, body: &str) -> Result<Opened, &'static str> {
    envelope.open(body, None).map(Option::unwrap)
}

fn id(envelope: Envelope, body: &str) -> Option<String> {
    open(envelope, body).unwrap().id
}

#[test]
fn each_envelope_gives_what_is_inside() {
    let sns = open(Envelope::Sns, SNS).unwrap();
    assert_eq!(sns.text, r#"{"payment_id": "p-1", "amount": 5}"#);
    assert_eq!(
        sns.id.as_deref(),
        Some("63a3f6b6-d533-4a47-aef9-fcf5cf758c76")
    );
    assert_eq!(sns.attributes["tenant"], "t-1");

    let event = open(Envelope::EventBridge, EVENT).unwrap();
    assert_eq!(event.text, r#"{ "payment_id": "p-1", "amount": 5 }"#);
    assert_eq!(
        event.id.as_deref(),
        Some("6a7e8feb-b491-4cf7-a9f1-bf3703467718")
    );

    let s3 = open(Envelope::S3, S3).unwrap();
    let record: Value = serde_json::from_str(&s3.text).unwrap();
    assert_eq!(record["s3"]["object"]["key"], "invoices/red+flower.pdf");
}

#[test]
fn an_object_in_a_bucket_is_named_by_its_version_in_time() {
    let name = id(Envelope::S3, S3).unwrap();
    let record = "/Records/0/s3";
    for (place, value) in [
        ("bucket/name", "another-bucket"),
        ("object/key", "another-key"),
        ("object/sequencer", "0055AED6DCD90281E6"),
    ] {
        let other = with(S3, &format!("{record}/{place}"), Some(json!(value)));
        assert_ne!(id(Envelope::S3, &other).unwrap(), name, "{place}");
    }
    let tagged = with(S3, &format!("{record}/object/sequencer"), None);
    assert_eq!(id(Envelope::S3, &tagged), None, "tags have no sequencer");
}

#[test]
fn an_envelope_may_hold_another() {
    let notification = with(SNS, "/Message", Some(json!(S3)));
    let both = [Envelope::Sns, Envelope::S3];
    let opened = Envelope::open_all(&both, notification.as_bytes(), None)
        .unwrap()
        .unwrap();
    assert_eq!(opened.id, id(Envelope::S3, S3));
    assert_eq!(opened.attributes["tenant"], "t-1");
    assert_eq!(opened.context.len(), 1, "the topic");
    let wrong = Envelope::open_all(&both, SNS.as_bytes(), None).unwrap_err();
    assert_eq!(wrong, NO_S3_EVENT);
}

#[test]
fn a_body_that_is_not_in_its_envelope_says_so_and_quotes_nothing() {
    let test_event = r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"secret"}"#;
    let two = r#"{"Records":[{"s3":"secret"},{"s3":"secret"}]}"#;
    let confirmation = with(SNS, "/Type", Some(json!("SubscriptionConfirmation")));
    let cases: [(Envelope, &str, &str); 18] = [
        (
            Envelope::Sns,
            r#"{"payment_id": "secret"}"#,
            NO_NOTIFICATION,
        ),
        (Envelope::Sns, "secret", NO_NOTIFICATION),
        (Envelope::Sns, &with(SNS, "/Message", None), NO_NOTIFICATION),
        (
            Envelope::Sns,
            &with(SNS, "/Message", Some(json!(7))),
            NO_NOTIFICATION,
        ),
        (Envelope::Sns, &confirmation, OTHER_SNS_TYPE),
        (
            Envelope::EventBridge,
            r#"{"detail": "secret"}"#,
            NO_BUS_EVENT,
        ),
        (
            Envelope::EventBridge,
            &with(EVENT, "/detail", None),
            NO_BUS_EVENT,
        ),
        (
            Envelope::EventBridge,
            &with(EVENT, "/source", None),
            NO_BUS_EVENT,
        ),
        (Envelope::EventBridge, "[]", NO_BUS_EVENT),
        (
            Envelope::Sns,
            r#"["Notification", "m-1", "secret", "{}", {}]"#,
            NO_NOTIFICATION,
        ),
        (
            Envelope::EventBridge,
            r#"["e-1", "secret", "type", null, {}]"#,
            NO_BUS_EVENT,
        ),
        (
            Envelope::S3,
            r#"[null, [{"s3": {"bucket": {"name": "b"}, "object": {"key": "secret"}}}]]"#,
            NO_S3_EVENT,
        ),
        (
            Envelope::S3,
            r#"{"Records": [[{"bucket": {"name": "b"}, "object": {"key": "secret"}}]]}"#,
            NO_S3_EVENT,
        ),
        (Envelope::S3, test_event, S3_TEST_EVENT),
        (
            Envelope::S3,
            r#"{"Records": [{"ses": "secret"}]}"#,
            NO_S3_EVENT,
        ),
        (Envelope::S3, "{}", NO_S3_EVENT),
        (Envelope::S3, r#"{"Records": []}"#, NOT_ONE_RECORD),
        (Envelope::S3, two, NOT_ONE_RECORD),
    ];
    for (envelope, body, expected) in cases {
        let error = open(envelope, body).unwrap_err();
        assert_eq!(error, expected, "{body}");
        assert!(!error.contains("secret"), "{error}");
    }
}

/// A payload in S3, as an extended client names it.
fn pointer(class: &str, key: &str) -> String {
    json!([class, { "s3BucketName": "payloads", "s3Key": key }]).to_string()
}

const CLASS: &str = "software.amazon.payloadoffloading.PayloadS3Pointer";

#[test]
fn a_pointer_of_either_class_is_opened_and_any_other_body_is_taken_as_it_is() {
    for class in [CLASS, "com.amazon.sqs.javamessaging.MessageS3Pointer"] {
        let opened = open(Envelope::S3Pointer, &pointer(class, "k-1")).unwrap();
        let found: S3Pointer = serde_json::from_str(&opened.text).unwrap();
        assert_eq!(Some(&found), opened.pointer.as_ref());
        assert_eq!((&*found.bucket, &*found.key), ("payloads", "k-1"));
        assert!(opened.keeps_id && opened.context.is_empty());
    }
    for body in [
        r#"{"order_id": "A-17"}"#,
        "no JSON",
        "[]",
        r#"["software.amazon.payloadoffloading.PayloadS3Pointer"]"#,
        r#"["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3Key": "k"}]"#,
        r#"["software.amazon.payloadoffloading.PayloadS3Pointer", ["payloads", "k-1"]]"#,
        &pointer("java.lang.String", "k-1"),
    ] {
        let opened = Envelope::open_all(&[Envelope::S3Pointer], body.as_bytes(), Some("x"));
        assert!(opened.unwrap().is_none(), "{body}");
    }
}

#[test]
fn a_pointer_stands_for_its_payload_inside_a_notification_too() {
    let notification = with(SNS, "/Message", Some(json!(pointer(CLASS, "k-1"))));
    let both = [Envelope::Sns, Envelope::S3Pointer];
    let open = |payload| Envelope::open_all(&both, notification.as_bytes(), payload);
    let closed = open(None).unwrap().unwrap();
    assert!(closed.pointer.is_some());
    let fetched = open(Some("7")).unwrap().unwrap();
    assert_eq!((&*fetched.text, fetched.pointer), ("7", None));
    assert!(!closed.keeps_id && !fetched.keeps_id);
    for opened in [closed.id, fetched.id] {
        assert_eq!(opened, id(Envelope::Sns, SNS), "the notification's");
    }
    assert_eq!(closed.attributes["tenant"], "t-1");
    assert_eq!(closed.context.len(), 1, "the topic");
    // The content of the object may be in its own envelope, which is opened once it was fetched.
    let inside = [Envelope::S3Pointer, Envelope::EventBridge];
    let closed = Envelope::open_all(&inside, pointer(CLASS, "k").as_bytes(), None);
    assert!(closed.unwrap().unwrap().pointer.is_some());
    let three = [Envelope::S3Pointer, Envelope::EventBridge];
    let event = Envelope::open_all(&three, pointer(CLASS, "k").as_bytes(), Some(EVENT));
    assert_eq!(event.unwrap().unwrap().id, id(Envelope::EventBridge, EVENT));
}
