//! Decodes the event of a Kafka event source mapping.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::kafka::record::{Fields, KafkaRecord};

/// Holds the records of one invocation, from one or several topics and partitions: the
/// [event of Amazon MSK][msk] or of a [self-managed cluster][own].
///
/// [msk]: https://docs.aws.amazon.com/lambda/latest/dg/with-msk.html
/// [own]: https://docs.aws.amazon.com/lambda/latest/dg/with-kafka.html
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire")]
#[non_exhaustive]
pub struct KafkaEvent {
    /// The records, by topic and partition, in the order of each partition.
    pub records: Vec<KafkaRecord>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(rename = "eventSource")]
    _source: EventSource,
    event_source_arn: Option<String>,
    bootstrap_servers: Option<String>,
    records: BTreeMap<String, Vec<Fields>>,
}

/// The values that Lambda documents; the event of another source is an error.
#[derive(Deserialize)]
enum EventSource {
    #[serde(rename = "aws:kafka")]
    Msk,
    #[serde(rename = "SelfManagedKafka", alias = "aws:SelfManagedKafka")]
    SelfManaged,
}

impl From<Wire> for KafkaEvent {
    fn from(wire: Wire) -> Self {
        let arn = wire.event_source_arn.filter(|arn| !arn.is_empty());
        let servers = || wire.bootstrap_servers.as_deref().and_then(sorted);
        let cluster: Option<Arc<str>> = arn.or_else(servers).map(Arc::from);
        let records = wire.records.into_iter().flat_map(|(partition, records)| {
            let partition: Arc<str> = partition.into();
            let cluster = cluster.clone();
            let record = move |fields| KafkaRecord::new(cluster.clone(), &partition, fields);
            records.into_iter().map(record)
        });
        Self {
            records: records.collect(),
        }
    }
}

/// Sorts the names of servers: their order is not a part of the cluster's name.
fn sorted(servers: &str) -> Option<String> {
    let names = servers.split(',').map(str::trim);
    let mut names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    (!names.is_empty()).then(|| names.join(","))
}
