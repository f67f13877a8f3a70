//! The spans of each source have the names of OpenTelemetry's conventions, and no content.

use lambda_idempotency::cloudwatch_logs::LogsEvent;
use lambda_idempotency::kafka::KafkaEvent;
use lambda_idempotency::mq::{activemq::ActiveMqEvent, rabbitmq::RabbitMqEvent};
use lambda_idempotency::s3_events::S3Event;
use lambda_idempotency::store::MemoryStore;

use super::*;
use crate::secrets::Log;

/// Returns the log's line on a handler that fails on the first record.
async fn released_line<Src: Source + DeserializeOwned>(event: &str) -> String {
    let (log, _capture) = Log::capture();
    let builder = Idempotency::builder(MemoryStore::new()).namespace("spans");
    let layer = BatchLayer::<Src, Value, _>::new(builder.build().unwrap());
    let mut worker = layer.handler(|_| async { Err::<(), _>("no") });
    let mut context = Context::default();
    "invocation-1".clone_into(&mut context.request_id);
    let event = serde_json::from_str(event).unwrap();
    // Some sources fail as a whole.
    let _ = worker.call(LambdaEvent::new(event, context)).await;
    let log = log.text();
    let line = log.lines().find(|line| line.contains("released"));
    line.unwrap_or_else(|| panic!("{log}")).to_owned()
}

async fn has<Src: Source + DeserializeOwned>(event: &str, fields: &[&str]) {
    let line = released_line::<Src>(event).await;
    let all = [
        r#"faas.invocation_id="invocation-1""#,
        r#"otel.kind="consumer""#,
    ];
    for field in fields.iter().chain(&all) {
        assert!(line.contains(field), "{field} is not in {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_tells_where_it_comes_from() {
    has::<KafkaEvent>(
        include_str!("../../fixtures/kafka-msk.json"),
        &[
            r#"faas.trigger="pubsub""#,
            r#"messaging.system="kafka""#,
            r#"messaging.destination.name="stock-movements""#,
            "messaging.destination.partition.id=0",
            "messaging.kafka.offset=15",
            "messaging.batch.message_count=5",
            "otel.name=process stock-movements",
        ],
    )
    .await;
    has::<LogsEvent>(
        include_str!("../../fixtures/cloudwatch-logs.json"),
        &[
            r#"faas.trigger="other""#,
            r#"aws.log.group.names="/aws/lambda/orders""#,
        ],
    )
    .await;
    has::<ActiveMqEvent>(
        include_str!("../../fixtures/activemq.json"),
        &[
            r#"messaging.system="activemq""#,
            r#"messaging.destination.name="bills""#,
        ],
    )
    .await;
    has::<RabbitMqEvent>(
        include_str!("../../fixtures/rabbitmq.json"),
        &[
            r#"messaging.system="rabbitmq""#,
            r#"messaging.destination.name="bills""#,
            r#"messaging.message.id="bill-1""#,
        ],
    )
    .await;
    let s3 = include_str!("../../fixtures/s3-notification.json");
    has::<S3Event>(
        s3,
        &[
            r#"faas.trigger="datasource""#,
            r#"faas.document.collection="amzn-s3-demo-bucket""#,
            r#"faas.document.operation="insert""#,
        ],
    )
    .await;
    let line = released_line::<S3Event>(s3).await;
    assert!(!line.contains("flower"), "{line}");
    for (name, operation) in [
        ("ObjectRemoved:Delete", "delete"),
        ("LifecycleExpiration:Delete", "delete"),
        ("ObjectTagging:Put", "edit"),
    ] {
        let event = s3.replace("ObjectCreated:Put", name);
        let field = format!("faas.document.operation={operation:?}");
        has::<S3Event>(&event, &[&field]).await;
    }
}
