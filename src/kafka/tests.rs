//! Tests of the module above.

use serde_json::{Value, json};

use super::*;

#[test]
fn each_failed_record_is_named_by_partition_and_offset() {
    let failed = ["stock-movements-0-15", "stock-movements-0-16", "b-12-7"];
    let reply = KafkaEvent::reply(failed.map(str::to_owned).to_vec());
    let expected = serde_json::json!({ "batchItemFailures": [
        { "itemIdentifier": { "partition": "stock-movements-0", "offset": 15 } },
        { "itemIdentifier": { "partition": "stock-movements-0", "offset": 16 } },
        { "itemIdentifier": { "partition": "b-12", "offset": 7 } },
    ] });
    assert_eq!(serde_json::to_value(reply).unwrap(), expected);
}

const ARN: &str = "arn:aws:kafka:eu-central-1:123456789012:cluster/stock/0a1b-4";

fn read(event: Value) -> Vec<KafkaRecord> {
    let event = serde_json::from_value(event).unwrap();
    KafkaEvent::records(event)
}

fn record(fields: &Value) -> KafkaRecord {
    let event = json!({ "eventSource": "aws:kafka", "eventSourceArn": ARN, "records": { "a-b-3": [fields] } });
    read(event).remove(0)
}

fn token_from(source: &Value) -> Option<String> {
    let mut event =
        json!({ "eventSource": "SelfManagedKafka", "records": { "a-0": [{ "offset": 7 }] } });
    let members = source.as_object().unwrap().clone();
    event.as_object_mut().unwrap().extend(members);
    KafkaEvent::token(&read(event)[0]).map(Cow::into_owned)
}

#[test]
fn a_key_names_cluster_topic_partition_and_offset() {
    let record = record(&json!({ "offset": 15 }));
    assert_eq!(KafkaEvent::id(&record), Some("a-b-3-15"));
    assert_eq!(
        KafkaEvent::token(&record).unwrap(),
        format!("{ARN}#a-b-3-15")
    );
    assert_eq!(KafkaEvent::origin(&record), Some("a-b"));
    assert_eq!(KafkaEvent::order_key(&record), Some("a-b-3"));
    assert_eq!(record.partition, Some(3));
}

#[test]
fn a_cluster_without_an_arn_is_its_servers_in_any_order() {
    let one = token_from(&json!({ "bootstrapServers": "b-2:9092,b-1:9092" }));
    let other = token_from(&json!({ "bootstrapServers": "b-1:9092, b-2:9092" }));
    assert_eq!(one.as_deref(), Some("b-1:9092,b-2:9092#a-0-7"));
    assert_eq!(one, other);
    assert_eq!(token_from(&json!({ "bootstrapServers": "" })), None);
    assert_eq!(token_from(&json!({ "eventSourceArn": "" })), None);
    assert_eq!(token_from(&json!({})), None);
}

#[test]
fn a_record_without_a_value_is_a_tombstone_and_its_body_is_null() {
    for fields in [
        json!({ "offset": 1, "value": null }),
        json!({ "offset": 1 }),
    ] {
        let record = record(&fields);
        assert!(record.is_tombstone);
        assert_eq!(KafkaEvent::body(&record), Ok(b"null".as_slice()));
    }
    let full = record(&json!({ "offset": 1, "value": "Nw==" }));
    assert!(!full.is_tombstone);
    assert_eq!(KafkaEvent::body(&full), Ok(b"7".as_slice()));
    let broken = record(&json!({ "offset": 1, "value": "%%%" }));
    assert!(!broken.is_tombstone);
    assert!(KafkaEvent::body(&broken).is_err());
}

#[test]
fn keys_and_headers_are_bytes_or_text() {
    let with = record(&json!({
        "offset": 1,
        "key": "c2t1LTc=",
        "headers": [{ "id": [112, 45, 48] }, { "raw": [-56] }, { "id": [112, 45, 49] }, { "none": null }],
    }));
    assert_eq!(with.key_text().as_deref(), Some("sku-7"));
    assert_eq!(KafkaEvent::attribute(&with, "id").as_deref(), Some("p-1"));
    assert_eq!(KafkaEvent::attribute(&with, "raw").as_deref(), Some("yA=="));
    assert_eq!(with.header("raw"), Some([200].as_slice()));
    assert_eq!(KafkaEvent::attribute(&with, "none"), None);
    for without in [
        json!({ "offset": 1 }),
        json!({ "offset": 1, "key": null, "headers": null }),
    ] {
        let without = record(&without);
        assert_eq!(without.key, None);
        assert_eq!(KafkaEvent::attribute(&without, "id"), None);
    }
}

#[test]
fn neither_value_nor_key_nor_headers_are_shown() {
    let headers = [json!({ "secret": [115] })];
    let fields = json!({ "offset": 7, "key": "c2VjcmV0", "value": "c2VjcmV0", "headers": headers });
    let shown = format!("{:?}", record(&fields));
    assert!(
        shown.contains("a-b-3") && !shown.contains("secret") && !shown.contains("115"),
        "{shown}"
    );
}

#[test]
fn the_schemas_of_a_registry_are_the_records() {
    let with = record(&json!({
        "offset": 1,
        "keySchemaMetadata": { "schemaId": "17", "dataFormat": "JSON" },
        "valueSchemaMetadata": { "schemaId": 18, "dataFormat": "AVRO", "later": [] },
    }));
    assert_eq!(with.key_schema_id.as_deref(), Some("17"));
    assert_eq!(with.key_schema_format.as_deref(), Some("JSON"));
    assert_eq!(with.value_schema_id.as_deref(), Some("18"));
    assert_eq!(with.value_schema_format.as_deref(), Some("AVRO"));
    for without in [
        json!({ "offset": 1 }),
        json!({ "offset": 1, "valueSchemaMetadata": null }),
        json!({ "offset": 1, "valueSchemaMetadata": "AVRO" }),
        json!({ "offset": 1, "valueSchemaMetadata": 17, "keySchemaMetadata": [true] }),
        json!({ "offset": 1, "valueSchemaMetadata": {} }),
    ] {
        let without = record(&without);
        assert_eq!(without.key_schema_id, None);
        assert_eq!(without.value_schema_id, None);
        assert_eq!(without.value_schema_format, None);
    }
}

#[test]
fn a_record_without_a_place_has_no_id() {
    assert_eq!(KafkaEvent::id(&record(&json!({ "value": "Nw==" }))), None);
    let nameless = json!({ "eventSource": "aws:kafka", "records": { "": [{ "offset": 1 }] } });
    assert_eq!(KafkaEvent::id(&read(nameless)[0]), None);
}

#[test]
fn the_event_of_another_source_is_an_error() {
    for event in [
        json!({ "Records": [{ "eventSource": "aws:sqs", "messageId": "m-1", "body": "7" }] }),
        json!({ "eventSource": "aws:mq", "records": {} }),
        json!({ "eventSource": "aws:kafka", "messages": [] }),
    ] {
        assert!(
            serde_json::from_value::<KafkaEvent>(event.clone()).is_err(),
            "{event}"
        );
    }
}
