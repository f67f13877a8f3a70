//! Records that can't be worked on, and events of other sources: nothing is lost, and nothing acknowledged that wasn't done.

use lambda_idempotency::dynamodb_streams::DynamoDbStreamEvent;

use super::*;

on_each_store!(an_empty_batch_is_done);
async fn an_empty_batch_is_done(once: Idempotency) {
    let mut worker = booking(&once, &Ledger::default());
    let reply = worker.call(event([])).await.unwrap();
    let reply = serde_json::to_value(reply).unwrap();
    assert_eq!(reply, json!({ "batchItemFailures": [] }));
}

on_each_store!(data_that_cannot_be_read_sets_the_checkpoint_and_stops_its_key_alone);
async fn data_that_cannot_be_read_sets_the_checkpoint_and_stops_its_key_alone(once: Idempotency) {
    let aggregate = [&[0xf3, 0x89, 0x9a, 0xc2][..], &[7; 40]].concat();
    let (mut no_data, mut no_base64, mut null) = (
        record(3, "tea", "m"),
        record(3, "tea", "m"),
        record(3, "tea", "m"),
    );
    no_data["kinesis"].as_object_mut().unwrap().remove("data");
    no_base64["kinesis"]["data"] = json!("%%%");
    null["kinesis"]["data"] = json!(null);
    let cases = [
        no_data,
        no_base64,
        null,
        record_of(3, "tea", b""),
        record_of(3, "tea", b"not JSON"),
        record_of(3, "tea", &[0xff, 0xfe]),
        record_of(3, "tea", br#"{"sku": "tea"}"#),
        record_of(3, "tea", &aggregate),
    ];
    for (case, broken) in cases.into_iter().enumerate() {
        let ledger = Ledger::default();
        let mut worker = booking(&once, &ledger);
        let id = |n: usize| format!("c{case}-{n}");
        let records = [
            record(1, "tea", &id(1)),
            record(2, "milk", &id(2)),
            broken,
            record(4, "tea", &id(4)),
            record(5, "milk", &id(5)),
        ];
        assert_eq!(
            deliver(&mut worker, records).await,
            Some(number(3)),
            "case {case}"
        );
        assert_eq!(ledger.take(), [id(1), id(2), id(5)], "case {case}");
    }
}

on_each_store!(a_record_without_a_sequence_number_fails_the_batch_before_anything_runs);
async fn a_record_without_a_sequence_number_fails_the_batch_before_anything_runs(
    once: Idempotency,
) {
    let ledger = Ledger::default();
    let mut worker = booking(&once, &ledger);
    for nothing in [json!(null), json!("")] {
        let mut nameless = record(2, "tea", "m-2");
        nameless["kinesis"]["sequenceNumber"] = nothing;
        let batch = event([record(1, "tea", "m-1"), nameless]);
        let error = worker.call(batch).await.unwrap_err();
        assert_eq!(error, BatchError::MessageWithoutId { position: 1 });
    }
    assert_eq!(ledger.take(), NOTHING);
}

on_each_store!(without_an_event_id_a_record_has_no_default_key);
async fn without_an_event_id_a_record_has_no_default_key(once: Idempotency) {
    let ledger = Ledger::default();
    for (n, member) in [(1, "eventID"), (2, "eventSourceARN")] {
        let id = format!("m-{n}");
        let mut nameless = record(n, "tea", &id);
        nameless[member] = json!(null);
        let mut by_default = booking_by_default_key(&once, &ledger);
        let asked = deliver(&mut by_default, [nameless.clone()]).await;
        assert_eq!(asked, Some(number(n)), "{member}");
        assert_eq!(ledger.take(), NOTHING);

        assert_eq!(
            deliver(&mut booking(&once, &ledger), [nameless]).await,
            None
        );
        assert_eq!(ledger.take(), [id]);
    }
}

on_each_store!(a_shard_id_with_a_number_sign_is_a_shard_id);
async fn a_shard_id_with_a_number_sign_is_a_shard_id(once: Idempotency) {
    let ledger = Ledger::default();
    let mut worker = booking_by_default_key(&once, &ledger);
    let of_shard = |shard: &str, id: &str| {
        let mut record = record(1, "tea", id);
        record["eventID"] = json!(format!("{shard}:{}", number(1)));
        record
    };
    for (shard, id) in [("shard#1", "m-1"), ("shard#1#", "m-2"), ("shard", "m-3")] {
        for _ in 0..2 {
            assert_eq!(deliver(&mut worker, [of_shard(shard, id)]).await, None);
        }
    }
    assert_eq!(ledger.take(), ["m-1", "m-2", "m-3"]);
}

on_each_store!(records_without_a_partition_key_are_ordered_among_themselves);
async fn records_without_a_partition_key_are_ordered_among_themselves(once: Idempotency) {
    let ledger = Ledger::default();
    let mut worker = booking(&once, &ledger);
    let keyless = |n, id: &str| {
        let mut record = record(n, "", id);
        record["kinesis"]
            .as_object_mut()
            .unwrap()
            .remove("partitionKey");
        record
    };
    ledger.fail_only(["m-1"]);
    let records = [
        keyless(1, "m-1"),
        keyless(2, "m-2"),
        record(3, "tea", "m-3"),
    ];
    assert_eq!(deliver(&mut worker, records).await, Some(number(1)));
    assert_eq!(ledger.take(), ["m-3"]);
}

#[test]
fn the_event_of_another_source_is_named() {
    let sqs = json!({ "Records": [crate::support::events::message("m-1", "{}")] });
    let sns = include_str!("../../fixtures/sns-notification.json");
    let sns = json!({ "Records": [{ "EventSource": "aws:sns", "Sns": sns }] });
    let s3 =
        json!({ "Records": [{ "eventSource": "aws:s3", "s3": { "bucket": { "name": "b" } } }] });
    let changes: Value =
        serde_json::from_str(include_str!("../../fixtures/dynamodb-streams.json")).unwrap();
    for (service, event) in [
        ("aws:sqs", sqs),
        ("aws:sns", sns),
        ("aws:s3", s3),
        ("aws:dynamodb", changes),
    ] {
        let error = serde_json::from_value::<KinesisEvent>(event).unwrap_err();
        let expected = format!("this is an event of {service}, not of aws:kinesis");
        assert!(error.to_string().contains(&expected), "{error}");
    }
    for event in [
        json!({}),
        json!({ "Records": null }),
        json!([]),
        json!({ "Event": "s3:TestEvent" }),
    ] {
        assert!(serde_json::from_value::<KinesisEvent>(event).is_err());
    }
}

#[test]
fn an_event_of_a_tumbling_window_is_refused() {
    let windowed = |window: Value| json!({ "Records": [], "window": window, "state": {} });
    let window = json!({ "start": "2026-11-20T12:00:00Z", "end": "2026-11-20T12:02:00Z" });
    let of_kinesis = serde_json::from_value::<KinesisEvent>(windowed(window.clone()));
    let of_dynamodb = serde_json::from_value::<DynamoDbStreamEvent>(windowed(window));
    for error in [of_kinesis.unwrap_err(), of_dynamodb.unwrap_err()] {
        let said = error.to_string();
        assert!(said.contains("`TumblingWindowInSeconds`"), "{said}");
    }
    assert!(serde_json::from_value::<KinesisEvent>(windowed(json!(null))).is_ok());
}
