//! Kafka: what comes again after a failure, and under which key.

use lambda_idempotency::Selector;
use lambda_idempotency::batch::Order;
use lambda_idempotency::kafka::{ItemFailures, KafkaEvent, KafkaRecord};
use serde_json::json;

use super::*;
use crate::secrets::Log;

const MSK: &str = include_str!("../../fixtures/kafka-msk.json");
const SELF_MANAGED: &str = include_str!("../../fixtures/kafka-self-managed.json");

fn named(reply: ItemFailures<Value>) -> Vec<(String, u64)> {
    let places = reply.batch_item_failures.into_iter();
    places
        .map(|place| {
            let partition = place["partition"].as_str().unwrap();
            (partition.to_owned(), place["offset"].as_u64().unwrap())
        })
        .collect()
}

on_each_server!(a_batch_that_comes_twice_takes_effect_once);
async fn a_batch_that_comes_twice_takes_effect_once(server: Server) {
    let once = engine(&server).await;
    for (event, records) in [(MSK, 5), (SELF_MANAGED, 1)] {
        let world = World::default();
        let layer = || layer::<KafkaEvent>(&once);
        assert_eq!(named(deliver(layer(), &world, event).await.unwrap()), []);
        assert_eq!(world.take().len(), records);
        assert_eq!(named(deliver(layer(), &world, event).await.unwrap()), []);
        assert_eq!(world.take(), NOTHING);
    }
}

on_each_server!(a_partition_stops_at_its_first_failure_and_goes_on_from_there);
async fn a_partition_stops_at_its_first_failure_and_goes_on_from_there(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    world.fail_on(&["stock-movements-0-16"]);
    let reply = deliver(layer::<KafkaEvent>(&once), &world, MSK)
        .await
        .unwrap();
    let expected = json!({ "batchItemFailures": [
        { "itemIdentifier": { "partition": "stock-movements-0", "offset": 16 } },
        { "itemIdentifier": { "partition": "stock-movements-0", "offset": 17 } },
    ] });
    assert_eq!(serde_json::to_value(reply).unwrap(), expected);
    let done = [
        "stock-movements-0-15",
        "stock-movements-1-15",
        "stock-movements-1-16",
    ];
    assert_eq!(world.take(), done);

    world.fail_on(&[]);
    let reply = deliver(layer::<KafkaEvent>(&once), &world, MSK)
        .await
        .unwrap();
    assert_eq!(named(reply), []);
    assert_eq!(
        world.take(),
        ["stock-movements-0-16", "stock-movements-0-17"]
    );
}

on_each_server!(unordered_records_behind_a_failure_run_and_are_not_named);
async fn unordered_records_behind_a_failure_run_and_are_not_named(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    world.fail_on(&["stock-movements-0-16"]);
    let layer = layer::<KafkaEvent>(&once).settings(|settings| settings.order = Order::Unordered);
    let reply = deliver(layer, &world, MSK).await.unwrap();
    assert_eq!(named(reply), [("stock-movements-0".to_owned(), 16)]);
    assert_eq!(world.take().len(), 4);
}

on_each_server!(a_key_in_a_header_is_the_same_in_another_cluster);
async fn a_key_in_a_header_is_the_same_in_another_cluster(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    let layer = || layer::<KafkaEvent>(&once).key_attribute("movement-id");
    // Of the five records one has the header; the others have no key.
    let reply = deliver(
        layer().settings(|settings| settings.order = Order::Unordered),
        &world,
        MSK,
    )
    .await
    .unwrap();
    assert_eq!(named(reply).len(), 4);
    assert_eq!(world.take(), ["stock-movements-0-15"]);
    let reply = deliver(layer(), &world, SELF_MANAGED).await.unwrap();
    assert_eq!(named(reply), []);
    assert_eq!(world.take(), NOTHING);
}

on_each_server!(without_item_failures_the_whole_batch_fails);
async fn without_item_failures_the_whole_batch_fails(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    world.fail_on(&["stock-movements-1-16"]);
    let layer =
        layer::<KafkaEvent>(&once).settings(|settings| settings.without_item_failures = true);
    let error = deliver(layer, &world, MSK).await.unwrap_err();
    let expected = BatchError::Incomplete {
        failed: 1,
        messages: 5,
    };
    assert_eq!(error, expected);
}

on_each_server!(a_tombstone_is_none_and_a_broken_value_fails_alone);
async fn a_tombstone_is_none_and_a_broken_value_fails_alone(server: Server) {
    let once = engine(&server).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let bodies = Arc::clone(&seen);
    let layer = BatchLayer::<KafkaEvent, Option<u32>, &str>::new(once)
        .settings(|settings| settings.order = Order::Unordered);
    let mut worker = layer.handler(move |message| {
        bodies
            .lock()
            .unwrap()
            .push((message.body, message.metadata.is_tombstone));
        async { Ok(()) }
    });
    let event = json!({ "eventSource": "aws:kafka", "eventSourceArn": "arn:aws:kafka:eu-central-1:123456789012:cluster/c/1", "records": { "t-0": [
        { "offset": 1, "value": null },
        { "offset": 2, "value": "Nw==" },
        { "offset": 3, "value": "bnVsbA==" },
        { "offset": 4, "value": "%%%" },
        { "offset": 5, "value": "" },
    ] } });
    let event = serde_json::from_value(event).unwrap();
    let reply = worker
        .call(LambdaEvent::new(event, Context::default()))
        .await;
    let again: Vec<_> = named(reply.unwrap())
        .into_iter()
        .map(|(_, offset)| offset)
        .collect();
    assert_eq!(again, [4, 5]);
    seen.lock().unwrap().sort_unstable();
    assert_eq!(
        *seen.lock().unwrap(),
        [(None, false), (None, true), (Some(7), false)]
    );
}

on_each_server!(a_decoder_is_given_the_schema_of_the_value);
async fn a_decoder_is_given_the_schema_of_the_value(server: Server) {
    let (log, _capture) = Log::capture();
    let once = engine(&server).await;
    let decode = |value: &[u8], record: &KafkaRecord| {
        let schema = record.value_schema_id.clone().ok_or("no schema")?;
        Ok::<_, &str>((schema, value.len()))
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let bodies = Arc::clone(&seen);
    let layer = BatchLayer::<KafkaEvent, _, &str>::with_decoder(once, decode);
    let mut worker = layer.handler(move |message| {
        bodies.lock().unwrap().push(message.body);
        async { Ok(()) }
    });
    let event = json!({ "eventSource": "aws:kafka", "eventSourceArn": "arn:aws:kafka:eu-central-1:123456789012:cluster/c/1", "records": { "t-0": [
        { "offset": 1, "value": "AAEC", "valueSchemaMetadata": { "schemaId": "17", "dataFormat": "AVRO" } },
        { "offset": 2, "value": "AAEC" },
    ] } });
    let event = serde_json::from_value(event).unwrap();
    let event = LambdaEvent::new(event, Context::default());
    let reply = named(worker.call(event).await.unwrap());
    assert_eq!(reply, [("t-0".to_owned(), 2)]);
    assert_eq!(*seen.lock().unwrap(), [("17".to_owned(), 3)]);
    let text = log.text();
    assert!(text.contains("the body doesn't decode: &str"), "{text}");
    assert!(!text.contains("no schema"), "{text}");
}

on_each_server!(a_value_that_is_no_json_is_compared_as_a_whole_whatever_the_selector);
async fn a_value_that_is_no_json_is_compared_as_a_whole_whatever_the_selector(server: Server) {
    let once = engine(&server).await;
    let layer = BatchLayer::<KafkaEvent, (), &str>::with_decoder(once, |_, _| Ok::<_, &str>(()))
        .key_attribute("movement-id")
        .settings(|settings| {
            settings.fingerprint_from = Some(Selector::pointer("/delta").unwrap());
        });
    let mut worker = layer.handler(|_| async { Ok(()) });
    // The first bytes of gzip, which are no text, and the same in Base64, which are text.
    for (id, first, other) in [
        ("a", "H4sIAA==", "H4sIAQ=="),
        ("b", "SDRzSUFBPT0=", "SDRzSUFRPT0="),
    ] {
        let record = |offset: u64, value: &str| {
            let headers = [json!({ "movement-id": id.as_bytes() })];
            json!({ "offset": offset, "value": value, "headers": headers })
        };
        let records = [record(1, first), record(2, first), record(3, other)];
        let event = json!({ "eventSource": "aws:kafka", "eventSourceArn": "arn:aws:kafka:eu-central-1:123456789012:cluster/c/1", "records": { "t-0": records } });
        let event = serde_json::from_value(event).unwrap();
        let event = LambdaEvent::new(event, Context::default());
        let reply = named(worker.call(event).await.unwrap());
        assert_eq!(reply, [("t-0".to_owned(), 3)], "{id}");
    }
}
