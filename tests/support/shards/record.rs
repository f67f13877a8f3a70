//! A data stream in memory.

use std::hash::{DefaultHasher, Hash, Hasher};

use data_encoding::BASE64;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The records of a stream, shard by shard, in the order of their sequence numbers.
pub struct DataStream {
    arn: String,
    pub shards: Vec<Vec<Record>>,
    puts: u32,
}

/// One record of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    stream: String,
    shard: usize,
    pub sequence_number: String,
    pub partition_key: String,
    pub data: String,
    pub arrival: Instant,
}

impl DataStream {
    pub fn new(name: &str, shards: usize) -> Self {
        Self {
            arn: format!("arn:aws:kinesis:eu-central-1:123456789012:stream/{name}"),
            shards: vec![Vec::new(); shards],
            puts: 0,
        }
    }

    /// Puts a record: its partition key chooses the shard, and its sequence number is higher than all before.
    pub fn put(&mut self, partition_key: &str, data: &Value) {
        self.puts += 1;
        let shard = number_of(partition_key, self.shards.len());
        self.shards[shard].push(Record {
            stream: self.arn.clone(),
            shard,
            // As long as Kinesis's, which have 56 digits.
            sequence_number: format!(
                "4959033827149025660855969253836157109592157598{:010}",
                self.puts * 7
            ),
            partition_key: partition_key.to_owned(),
            data: data.to_string(),
            arrival: Instant::now(),
        });
    }

    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.shards.iter().flatten()
    }
}

/// The event that Lambda makes of records.
pub fn event(records: &[Record]) -> Value {
    let records: Vec<_> = records.iter().map(Record::in_event).collect();
    json!({ "Records": records })
}

impl Record {
    fn in_event(&self) -> Value {
        let event_id = format!("shardId-{:012}:{}", self.shard, self.sequence_number);
        json!({
            "kinesis": {
                "kinesisSchemaVersion": "1.0",
                "partitionKey": self.partition_key,
                "sequenceNumber": self.sequence_number,
                "data": BASE64.encode(self.data.as_bytes()),
                "approximateArrivalTimestamp": 1_795_176_000.25
            },
            "eventSource": "aws:kinesis",
            "eventVersion": "1.0",
            "eventID": event_id,
            "eventName": "aws:kinesis:record",
            "invokeIdentityArn": "arn:aws:iam::123456789012:role/stock-movements",
            "awsRegion": "eu-central-1",
            "eventSourceARN": self.stream
        })
    }
}

/// Spreads partition keys evenly: the same key always gets the same number.
pub(super) fn number_of(partition_key: &str, below: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    partition_key.hash(&mut hasher);
    let below = u64::try_from(below).expect("few");
    usize::try_from(hasher.finish() % below).expect("few")
}
