//! Sources that read no reply: one failure fails the batch, and what succeeded is replayed.

use std::time::Duration;

use lambda_idempotency::Selector;
use lambda_idempotency::cloudwatch_logs::LogsEvent;
use lambda_idempotency::mq::{activemq::ActiveMqEvent, rabbitmq::RabbitMqEvent};
use lambda_idempotency::s3_events::S3Event;

use super::*;

const LOGS: &str = include_str!("../../fixtures/cloudwatch-logs.json");
const CONTROL: &str = include_str!("../../fixtures/cloudwatch-logs-control.json");
const ACTIVEMQ: &str = include_str!("../../fixtures/activemq.json");
const RABBITMQ: &str = include_str!("../../fixtures/rabbitmq.json");
const S3: &str = include_str!("../../fixtures/s3-notification.json");

type Layer<Src> = BatchLayer<Src, Value, &'static str>;

/// Fails on the second of three records, then on none.
async fn recovers<Src: Source + DeserializeOwned>(
    server: &Server,
    event: &str,
    keyed: fn(Layer<Src>) -> Layer<Src>,
) {
    let (once, world) = (engine(server).await, World::default());
    let layer = || keyed(layer(&once));
    let records = Src::records(serde_json::from_str(event).unwrap());
    let ids: Vec<_> = records
        .iter()
        .map(|record| Src::id(record).unwrap())
        .collect();
    assert_eq!(ids.len(), 3);

    world.fail_on(&[ids[1]]);
    let error = deliver(layer(), &world, event).await.err();
    let expected = BatchError::Incomplete {
        failed: 1,
        messages: 3,
    };
    assert_eq!(error, Some(expected));
    assert_eq!(world.take().len(), 2);

    world.fail_on(&[]);
    deliver(layer(), &world, event).await.unwrap();
    assert_eq!(world.take(), [ids[1]]);

    deliver(layer(), &world, event).await.unwrap();
    assert_eq!(world.take(), NOTHING);
}

on_each_server!(log_events_that_succeeded_are_replayed);
async fn log_events_that_succeeded_are_replayed(server: Server) {
    recovers::<LogsEvent>(&server, LOGS, |layer| layer).await;
}

on_each_server!(activemq_messages_that_succeeded_are_replayed);
async fn activemq_messages_that_succeeded_are_replayed(server: Server) {
    recovers::<ActiveMqEvent>(&server, ACTIVEMQ, |layer| layer).await;
    recovers::<ActiveMqEvent>(&server, ACTIVEMQ, |layer| layer.key_attribute("bill-id")).await;
}

on_each_server!(rabbitmq_messages_that_succeeded_are_replayed);
async fn rabbitmq_messages_that_succeeded_are_replayed(server: Server) {
    recovers::<RabbitMqEvent>(&server, RABBITMQ, |layer| layer.key_attribute("bill-id")).await;
    recovers::<RabbitMqEvent>(&server, RABBITMQ, |layer| {
        layer.key_from(Selector::pointer("/bill").unwrap())
    })
    .await;
}

on_each_server!(a_failure_that_a_hook_took_does_not_run_again_when_its_batch_does);
async fn a_failure_that_a_hook_took_does_not_run_again_when_its_batch_does(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    let parking = || {
        layer::<ActiveMqEvent>(&once)
            .permanent(|_| true)
            .on_rejected(|_, _| async { Ok::<_, &'static str>(()) })
    };
    let event: ActiveMqEvent = serde_json::from_str(ACTIVEMQ).unwrap();
    world.fail_on(&[ActiveMqEvent::id(&event.messages[1]).unwrap()]);
    deliver(parking(), &world, ACTIVEMQ).await.unwrap();
    assert_eq!(world.take().len(), 2);
    // Long after the failure's own retention, the batch comes again for another message.
    tokio::time::advance(Duration::from_mins(61)).await;
    world.fail_on(&[]);
    deliver(parking(), &world, ACTIVEMQ).await.unwrap();
    assert_eq!(world.take(), NOTHING);
}

on_each_server!(a_rabbitmq_message_without_an_id_and_a_key_is_not_run);
async fn a_rabbitmq_message_without_an_id_and_a_key_is_not_run(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    let error = deliver(layer::<RabbitMqEvent>(&once), &world, RABBITMQ).await;
    let expected = BatchError::Incomplete {
        failed: 1,
        messages: 3,
    };
    assert_eq!(error.unwrap_err(), expected);
    assert_eq!(world.take(), ["bill-1", "bill-3"]);
}

on_each_server!(s3_records_have_one_claim_each);
async fn s3_records_have_one_claim_each(server: Server) {
    let one: Value = serde_json::from_str(S3).unwrap();
    let mut three = one.clone();
    let records = three["Records"].as_array_mut().unwrap();
    for sequencer in ["0055AED6DCD90281E6", "0055AED6DD"] {
        let mut later = one["Records"][0].clone();
        later["s3"]["object"]["sequencer"] = sequencer.into();
        records.push(later);
    }
    recovers::<S3Event>(&server, &three.to_string(), |layer| layer).await;
}

on_each_server!(what_has_no_records_is_done);
async fn what_has_no_records_is_done(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    let test = r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2026-11-20T12:00:00.000Z","Bucket":"b"}"#;
    deliver(layer::<S3Event>(&once), &world, test)
        .await
        .unwrap();
    deliver(layer::<S3Event>(&once), &world, r#"{"Records":[]}"#)
        .await
        .unwrap();
    deliver(layer::<LogsEvent>(&once), &world, CONTROL)
        .await
        .unwrap();
    let empty = r#"{"eventSource":"aws:mq","messages":[]}"#;
    deliver(layer::<ActiveMqEvent>(&once), &world, empty)
        .await
        .unwrap();
    let empty = r#"{"eventSource":"aws:rmq","rmqMessagesByQueue":{}}"#;
    deliver(layer::<RabbitMqEvent>(&once), &world, empty)
        .await
        .unwrap();
    assert_eq!(world.take(), NOTHING);
}
