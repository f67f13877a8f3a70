//! Tests of the module above.

use serde_json::{Value, json};

use super::*;

const SNS: &str = include_str!("../../../tests/fixtures/invoke-sns.json");
const EVENT: &str = include_str!("../../../tests/fixtures/eventbridge-event.json");

fn token(kind: Kind, event: &Value) -> Result<Option<String>, &'static str> {
    let event = event.to_string();
    kind.token(&kind.open(&event)?)
}

/// The event with another value in this place.
fn with(event: &str, pointer: &str, value: Value) -> Value {
    let mut event: Value = serde_json::from_str(event).unwrap();
    *event.pointer_mut(pointer).unwrap() = value;
    event
}

#[test]
fn an_sns_event_gives_its_message_and_its_id() {
    let content = Kind::Sns.open(SNS).unwrap();
    assert_eq!(content.text, r#"{"payment_id": "p-1", "amount": 5}"#);
    let id = Kind::Sns.token(&content).unwrap();
    assert_eq!(id.as_deref(), Some("95df01b4-ee98-5cb9-9903-4c221d41eb5e"));
}

#[test]
fn a_bus_event_gives_its_detail_and_its_id() {
    let content = Kind::EventBridge.open(EVENT).unwrap();
    assert_eq!(content.text, r#"{ "payment_id": "p-1", "amount": 5 }"#);
    let id = Kind::EventBridge.token(&content).unwrap();
    assert_eq!(id.as_deref(), Some("6a7e8feb-b491-4cf7-a9f1-bf3703467718"));
}

#[test]
fn the_same_message_of_another_topic_or_account_is_another_request() {
    let other = with(SNS, "/Records/0/Sns/TopicArn", json!("arn:aws:sns:::other"));
    let fingerprint = |event: &str| Kind::Sns.open(event).unwrap().fingerprint(&[]);
    assert_ne!(fingerprint(&other.to_string()), fingerprint(SNS));
    let again = with(SNS, "/Records/0/Sns/Timestamp", json!("later"));
    assert_eq!(fingerprint(&again.to_string()), fingerprint(SNS));

    let fingerprint = |event: &str| Kind::EventBridge.open(event).unwrap().fingerprint(&[]);
    let other = with(EVENT, "/account", json!("210987654321"));
    assert_ne!(fingerprint(&other.to_string()), fingerprint(EVENT));
    // Of an event without an account, the other parts count as before.
    let none = with(EVENT, "/account", json!(null));
    let context = ["shop.checkout", "payment.requested"];
    let context = context.map(|text| Fingerprint::bytes(text.as_bytes()));
    let detail = Fingerprint::json(br#"{"payment_id":"p-1","amount":5}"#);
    let expected = Fingerprint::combine(context.iter().chain([&detail]));
    assert_eq!(fingerprint(&none.to_string()), expected);
}

#[test]
fn the_event_of_another_source_is_refused() {
    let sns: Value = serde_json::from_str(SNS).unwrap();
    let bus: Value = serde_json::from_str(EVENT).unwrap();
    assert_eq!(token(Kind::Sns, &bus), Err(NO_SNS_EVENT));
    assert_eq!(token(Kind::EventBridge, &sns), Err(NO_BUS_EVENT));
    assert_eq!(token(Kind::Scheduler, &bus), Err(NO_SCHEDULE));
    let step = token(Kind::StepFunctions, &sns);
    assert_eq!(step, Err(NO_EXECUTION));
    let empty = json!({ "Records": [] });
    assert_eq!(token(Kind::Sns, &empty), Err(NOT_ONE_RECORD));
    let confirmation = with(
        SNS,
        "/Records/0/Sns/Type",
        json!("SubscriptionConfirmation"),
    );
    assert_eq!(token(Kind::Sns, &confirmation), Err(NO_SNS_EVENT));
}

#[test]
fn a_schedule_is_named_by_its_arn_and_its_time() {
    let arn = "arn:aws:scheduler:eu-central-1:123456789012:schedule/default/nightly";
    let input =
        |arn: &str, time: &str| json!({ "schedule_arn": arn, "scheduled_time": time, "x": 1 });
    let of = |arn: &str, time: &str| token(Kind::Scheduler, &input(arn, time));
    let first = of(arn, "2026-11-23T00:00:00Z").unwrap();
    assert_eq!(of(arn, "2026-11-23T00:00:00Z"), Ok(first.clone()));
    assert_ne!(of(arn, "2026-11-24T00:00:00Z"), Ok(first.clone()));
    assert_ne!(of(&format!("{arn}-2"), "2026-11-23T00:00:00Z"), Ok(first));

    let group = "arn:aws:scheduler:eu-central-1:123456789012:schedule-group/default";
    for wrong in ["nightly", group] {
        assert_eq!(of(wrong, "now"), Err(NO_SCHEDULE_ARN));
    }
    let unreplaced = Err(NOT_REPLACED);
    assert_eq!(of("<aws.scheduler.schedule-arn>", "now"), unreplaced);
    assert_eq!(of(arn, "<aws.scheduler.scheduled-time>"), unreplaced);
    for wrong in [
        json!({}),
        json!({ "schedule_arn": arn }),
        json!({ "scheduled_time": "now" }),
        input(arn, ""),
        input("", "now"),
        json!({ "schedule_arn": 7, "scheduled_time": "now" }),
        json!([]),
        json!(null),
    ] {
        let found = token(Kind::Scheduler, &wrong);
        assert_eq!(found, Err(NO_SCHEDULE), "{wrong}");
    }
}

#[test]
fn a_task_is_named_by_execution_state_index_and_iteration() {
    let arn = "arn:aws:states:eu-central-1:123456789012:execution:settle:e-1";
    let task = |place: Value| token(Kind::StepFunctions, &json!({ "idempotency": place }));
    let places = [
        json!({ "execution": arn, "state": "Pay" }),
        json!({ "execution": arn, "state": "Refund" }),
        json!({ "execution": format!("{arn}2"), "state": "Pay" }),
        json!({ "execution": arn.replace("execution", "express"), "state": "Pay" }),
        json!({ "execution": arn, "state": "Pay", "index": 0 }),
        json!({ "execution": arn, "state": "Pay", "index": 1 }),
        json!({ "execution": arn, "state": "Pay", "iteration": 1 }),
        json!({ "execution": arn, "state": "Pay", "index": 1, "iteration": 1 }),
    ];
    let tokens: std::collections::BTreeSet<_> = places
        .iter()
        .map(|place| task(place.clone()).unwrap())
        .collect();
    assert_eq!(tokens.len(), places.len());
    assert_eq!(
        task(json!({ "execution": arn, "state": "Pay", "index": "1" })),
        task(places[5].clone())
    );
    let nulls = json!({ "execution": arn, "state": "Pay", "index": null, "iteration": null });
    assert_eq!(task(nulls), task(places[0].clone()));

    for (place, expected) in [
        (
            json!({ "execution": "$$.Execution.Id", "state": "Pay" }),
            NOT_EVALUATED,
        ),
        (
            json!({ "execution": arn, "state": "{% $states.context.State.Name %}" }),
            NOT_EVALUATED,
        ),
        (
            json!({ "execution": arn, "state": "Pay", "index": "$$.Map.Item.Index" }),
            NOT_EVALUATED,
        ),
        (
            json!({ "execution": arn, "state": "Pay", "index": [1] }),
            NO_POSITION,
        ),
        (json!({ "execution": arn }), NO_EXECUTION),
        (json!({ "execution": arn, "state": "" }), NO_EXECUTION),
        (json!({ "execution": "", "state": "Pay" }), NO_EXECUTION),
        (
            json!({ "execution": "e-1", "state": "Pay" }),
            NO_EXECUTION_ARN,
        ),
        (
            json!({ "execution": arn.replace("execution", "stateMachine"), "state": "Pay" }),
            NO_EXECUTION_ARN,
        ),
    ] {
        assert_eq!(task(place.clone()), Err(expected), "{place}");
    }
}

#[test]
fn an_envelope_has_both_members_at_the_top_as_texts() {
    let envelope = r#"{"CheckpointToken": "t", "DurableExecutionArn": "arn:…", "x": [1]}"#;
    assert!(is_durable(envelope));
    // Deeper than `serde_json` reads a value.
    let deep = envelope.replace("[1]", &format!("{}{}", "[".repeat(200), "]".repeat(200)));
    assert!(is_durable(&deep));
    for other in [
        r#"{"DurableExecutionArn": "arn:…"}"#,
        r#"{"CheckpointToken": "t"}"#,
        r#"{"CheckpointToken": "t", "DurableExecutionArn": null}"#,
        r#"{"CheckpointToken": 1, "DurableExecutionArn": "arn:…"}"#,
        r#"{"detail": {"CheckpointToken": "t", "DurableExecutionArn": "arn:…"}}"#,
        r#"["CheckpointToken", "DurableExecutionArn"]"#,
        r#""CheckpointToken DurableExecutionArn""#,
        r#"{"CheckpointToken": "t", "DurableExecutionArn": "arn:…""#,
        "",
    ] {
        assert!(!is_durable(other), "{other}");
    }
}
