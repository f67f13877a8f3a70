//! Tests of the module above.

use std::time::Duration;

use serde_json::json;

use super::*;

const STREAM: &str =
    "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000";

fn record(record: Value) -> DynamoDbStreamRecord {
    serde_json::from_value(record).unwrap()
}

fn of_item(arn: &str, keys: &Value) -> DynamoDbStreamRecord {
    record(json!({ "eventSourceARN": arn, "eventName": "INSERT", "dynamodb": { "Keys": keys } }))
}

#[test]
fn the_body_is_plain_json_with_the_images_that_there_are() {
    let images = json!({
        "ApproximateCreationDateTime": 1_785_600_001,
        "Keys": { "id": { "N": "7" } },
        "OldImage": { "id": { "N": "7" }, "state": { "S": "placed" } },
        "NewImage": { "id": { "N": "7" }, "state": { "S": "paid" } },
        "SequenceNumber": "111",
    });
    let modified = record(json!({ "eventName": "MODIFY", "dynamodb": images }));
    let body = DynamoDbStreamEvent::body(&modified).unwrap();
    let body: Value = serde_json::from_slice(body).unwrap();
    let expected = json!({
        "event": "MODIFY",
        "keys": { "id": 7 },
        "old": { "id": 7, "state": "placed" },
        "new": { "id": 7, "state": "paid" },
    });
    assert_eq!(body, expected);
    let created = SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_600_001);
    assert_eq!(modified.approximate_creation, Some(created));
    let keys_only = of_item(STREAM, &json!({ "id": { "N": "7" } }));
    let body = DynamoDbStreamEvent::body(&keys_only).unwrap();
    let body = std::str::from_utf8(body).unwrap();
    assert_eq!(body, r#"{"event":"INSERT","keys":{"id":7}}"#);
}

#[test]
fn what_a_record_lacks_is_an_error_of_its_body() {
    for (dynamodb, name, expected) in [
        (json!(null), json!("INSERT"), "no keys"),
        (json!({}), json!("INSERT"), "no keys"),
        (json!({ "Keys": {} }), json!(null), "no event name"),
        (json!({ "Keys": "id" }), json!("INSERT"), "not of a type"),
        (
            json!({ "Keys": {}, "NewImage": { "a": { "N": "x" } } }),
            json!("INSERT"),
            "number",
        ),
    ] {
        let record = record(json!({ "eventName": name, "dynamodb": dynamodb }));
        let said = DynamoDbStreamEvent::body(&record).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn an_item_is_ordered_by_its_table_and_its_keys_however_they_are_written() {
    let item = |arn: &str, keys: &str| {
        let keys = serde_json::from_str(keys).unwrap();
        let order = DynamoDbStreamEvent::order_key(&of_item(arn, &keys)).map(str::to_owned);
        order.unwrap()
    };
    let first = item(STREAM, r#"{"a": {"S": "x"}, "b": {"N": "1"}}"#);
    assert_eq!(
        first,
        item(STREAM, r#"{"b": {"N": "1.0"}, "a": {"S": "x"}}"#)
    );
    assert_ne!(first, item(STREAM, r#"{"a": {"S": "x"}, "b": {"N": "2"}}"#));
    let other = STREAM.replace("orders", "others");
    assert_ne!(first, item(&other, r#"{"a": {"S": "x"}, "b": {"N": "1"}}"#));
    let again = STREAM.replace("2026-01", "2026-02");
    assert_eq!(first, item(&again, r#"{"a": {"S": "x"}, "b": {"N": "1"}}"#));
}

#[test]
fn only_a_removal_by_dynamodb_itself_is_an_expiry() {
    let service = json!({ "type": "Service", "principalId": "dynamodb.amazonaws.com" });
    let of_the_api = json!({ "Type": "Service", "PrincipalId": "dynamodb.amazonaws.com" });
    let other = json!({ "type": "Service", "principalId": "other.amazonaws.com" });
    let person = json!({ "type": "User", "principalId": "AIDAEXAMPLE" });
    for (name, identity, expected) in [
        ("REMOVE", &service, true),
        ("REMOVE", &of_the_api, true),
        ("MODIFY", &service, false),
        ("REMOVE", &other, false),
        ("REMOVE", &person, false),
        ("REMOVE", &json!(null), false),
    ] {
        let record = record(json!({ "eventName": name, "userIdentity": identity }));
        assert_eq!(record.is_expiry, expected, "{name} {identity}");
    }
}

#[test]
fn the_event_of_another_service_is_named() {
    let event = json!({ "Records": [{ "eventSource": "aws:kinesis" }] });
    let error = serde_json::from_value::<DynamoDbStreamEvent>(event).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("an event of aws:kinesis, not of aws:dynamodb"),
        "{said}"
    );
}

#[test]
fn neither_keys_nor_images_are_shown() {
    let shown = format!("{:?}", of_item(STREAM, &json!({ "id": { "S": "secret" } })));
    assert!(
        !shown.contains("secret") && !shown.contains("115"),
        "{shown}"
    );
}

const TABLE_STREAM: &str =
    "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000";

fn record_of(arn: &str, event_id: &str) -> DynamoDbStreamRecord {
    let record = json!({ "eventSourceARN": arn, "eventID": event_id });
    serde_json::from_value(record).unwrap()
}

#[test]
fn a_token_names_the_stream_and_the_record() {
    let token = |arn: &str, id: &str| {
        let record = record_of(arn, id);
        DynamoDbStreamEvent::token(&record).map(Cow::into_owned)
    };
    assert_eq!(
        token(TABLE_STREAM, "c81e"),
        Some(format!("{TABLE_STREAM}#c81e"))
    );
    let anew = TABLE_STREAM.replace("2026-01", "2026-02");
    assert_ne!(token(TABLE_STREAM, "c81e"), token(&anew, "c81e"));
    assert_eq!(token("", "c81e"), None);
    assert_eq!(token(TABLE_STREAM, ""), None);
}

#[test]
fn the_table_names_the_operation() {
    assert_eq!(
        DynamoDbStreamEvent::origin(&record_of(TABLE_STREAM, "1")),
        Some("orders")
    );
    assert_eq!(DynamoDbStreamEvent::origin(&record_of("orders", "1")), None);
    assert_eq!(DynamoDbStreamEvent::origin(&record_of("", "1")), None);
}
