//! Events and records that can't be worked on: a clear error, nothing run, nothing acknowledged.

use lambda_idempotency::cloudwatch_logs::LogsEvent;
use lambda_idempotency::kafka::KafkaEvent;
use lambda_idempotency::mq::activemq::ActiveMqEvent;
use lambda_idempotency::mq::rabbitmq::RabbitMqEvent;
use lambda_idempotency::s3_events::S3Event;
use lambda_idempotency::sqs::SqsMessage;

use super::*;

fn refused<Event: DeserializeOwned>(event: &str) -> bool {
    serde_json::from_str::<Event>(event).is_err()
}

#[test]
fn each_source_refuses_the_events_of_the_others() {
    let fixtures = [
        ("kafka", include_str!("../../fixtures/kafka-msk.json")),
        ("logs", include_str!("../../fixtures/cloudwatch-logs.json")),
        ("activemq", include_str!("../../fixtures/activemq.json")),
        ("rabbitmq", include_str!("../../fixtures/rabbitmq.json")),
        ("s3", include_str!("../../fixtures/s3-notification.json")),
        ("pipe", include_str!("../../fixtures/pipe-sqs.json")),
        ("sqs", include_str!("../../fixtures/e2e-sqs.json")),
    ];
    for (source, event) in fixtures {
        let found = [
            ("kafka", refused::<KafkaEvent>(event)),
            ("logs", refused::<LogsEvent>(event)),
            ("activemq", refused::<ActiveMqEvent>(event)),
            ("rabbitmq", refused::<RabbitMqEvent>(event)),
            ("s3", refused::<S3Event>(event)),
            ("pipe", refused::<Vec<SqsMessage>>(event)),
        ];
        for (reader, is_refused) in found {
            assert_eq!(is_refused, reader != source, "{reader} reads {source}");
        }
    }
}

on_each_server!(a_record_without_an_id_fails_the_invocation_before_anything_runs);
async fn a_record_without_an_id_fails_the_invocation_before_anything_runs(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    let expected = Err(BatchError::MessageWithoutId { position: 1 });
    let event = r#"{"eventSource":"aws:kafka","eventSourceArn":"arn:c","records":{"t-0":[{"offset":1,"value":"Nw=="},{"value":"Nw=="}]}}"#;
    assert_eq!(
        deliver(layer::<KafkaEvent>(&once), &world, event).await,
        expected
    );
    let event = r#"{"eventSource":"aws:mq","messages":[{"messageID":"m-1","data":"Nw=="},{"data":"Nw=="}]}"#;
    let reply = deliver(layer::<ActiveMqEvent>(&once), &world, event).await;
    assert_eq!(reply.err(), expected.clone().err());
    let event = r#"[{"messageId":"m-1","body":"7"},{"body":"7"}]"#;
    assert_eq!(
        deliver(layer::<Vec<SqsMessage>>(&once), &world, event)
            .await
            .err(),
        expected.err()
    );
    assert_eq!(world.take(), NOTHING);
}

on_each_server!(data_that_is_missing_or_not_base64_fails_its_batch);
async fn data_that_is_missing_or_not_base64_fails_its_batch(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    let event = r#"{"eventSource":"aws:mq","eventSourceArn":"arn:b","messages":[{"messageID":"m-1"},{"messageID":"m-2","data":"%%%"},{"messageID":"m-3","data":"Nw=="}]}"#;
    let error = deliver(layer::<ActiveMqEvent>(&once), &world, event).await;
    let expected = BatchError::Incomplete {
        failed: 2,
        messages: 3,
    };
    assert_eq!(error.unwrap_err(), expected);
    assert_eq!(world.take(), ["m-3"]);
}

on_each_server!(equal_places_in_two_clusters_are_two_records);
async fn equal_places_in_two_clusters_are_two_records(server: Server) {
    let (once, world) = (engine(&server).await, World::default());
    for cluster in ["arn:one", "arn:two", "arn:two"] {
        let event = format!(
            r#"{{"eventSource":"aws:kafka","eventSourceArn":"{cluster}","records":{{"t-0":[{{"offset":1,"value":"Nw=="}}]}}}}"#
        );
        deliver(layer::<KafkaEvent>(&once), &world, &event)
            .await
            .unwrap();
    }
    assert_eq!(world.take().len(), 2);
    let nameless = r#"{"eventSource":"aws:kafka","records":{"t-0":[{"offset":1,"value":"Nw=="}]}}"#;
    let reply = deliver(layer::<KafkaEvent>(&once), &world, nameless)
        .await
        .unwrap();
    assert_eq!(reply.batch_item_failures.len(), 1, "no cluster, no key");
    assert_eq!(world.take(), NOTHING);
}

#[test]
fn a_refused_log_batch_quotes_nothing() {
    let event = r#"{"awslogs":{"data":"secret-that-is-no-base64"}}"#;
    let said = serde_json::from_str::<LogsEvent>(event).unwrap_err();
    assert!(!said.to_string().contains("secret"), "{said}");
    assert_eq!(LogsEvent::NAME, "cloudwatch_logs");
}
