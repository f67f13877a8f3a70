//! Implements [`Source`] for Kafka. The names of its spans and their fields are those of
//! OpenTelemetry's conventions for Kafka and for functions.

use std::borrow::Cow;

use lambda_runtime::Context;
use tracing::{Span, info_span};

use crate::batch::{BodyError, Source};
use crate::kafka::event::KafkaEvent;
use crate::kafka::record::KafkaRecord;
use crate::kafka::reply::KafkaItemFailures;

/// Names Kafka as the [`Source`] of a batch: Amazon MSK, or a self-managed cluster.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Kafka;

impl Source for Kafka {
    type Event = KafkaEvent;
    type Record = KafkaRecord;
    type Reply = KafkaItemFailures;

    const NAME: &'static str = "kafka";

    fn records(event: KafkaEvent) -> Vec<KafkaRecord> {
        event.records
    }

    fn id(record: &KafkaRecord) -> Option<&str> {
        record.id()
    }

    fn token(record: &KafkaRecord) -> Option<Cow<'_, str>> {
        record.token().map(Cow::Owned)
    }

    /// Gives the value, or the JSON text `null` where it is null.
    fn body(record: &KafkaRecord) -> Result<&[u8], BodyError> {
        record.body()
    }

    fn origin(record: &KafkaRecord) -> Option<&str> {
        Some(record.topic())
    }

    fn order_key(record: &KafkaRecord) -> Option<&str> {
        Some(record.topic_partition())
    }

    fn is_ordered(_: &KafkaRecord) -> bool {
        true
    }

    /// Gives the last header of this name as text, or in Base64 where it is not UTF-8.
    fn attribute(record: &KafkaRecord, name: &str) -> Option<String> {
        record.header_text(name)
    }

    fn reply(failed: Vec<String>) -> KafkaItemFailures {
        KafkaItemFailures::of(failed)
    }

    fn batch_span(records: &[KafkaRecord], context: &Context) -> Span {
        let topic = records.first().map_or("", KafkaRecord::topic);
        info_span!(
            "kafka_batch",
            otel.kind = "consumer",
            otel.name = format_args!("poll {topic}"),
            faas.trigger = "pubsub",
            faas.invocation_id = context.request_id,
            messaging.system = "kafka",
            messaging.operation.name = "poll",
            messaging.operation.r#type = "receive",
            messaging.destination.name = topic,
            messaging.batch.message_count = records.len(),
        )
    }

    fn record_span(record: &KafkaRecord) -> Span {
        let topic = record.topic();
        info_span!(
            "kafka_record",
            otel.kind = "consumer",
            otel.name = format_args!("process {topic}"),
            messaging.system = "kafka",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = topic,
            messaging.destination.partition.id = record.partition(),
            messaging.kafka.offset = record.offset,
            messaging.kafka.message.tombstone = record.is_tombstone().then_some(true),
        )
    }
}

#[cfg(test)]
mod tests;
