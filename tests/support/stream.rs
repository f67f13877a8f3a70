//! A table's stream, read as an event source mapping reads it: in order, from a checkpoint, a batch again when it failed.
//!
//! Spoken to in JSON: what comes back is, member for member, what Lambda hands to a function.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::Server;
use super::virtual_time::stand;

/// The stream of one table, and how far it was read.
pub struct Stream {
    endpoint: String,
    arn: String,
    checkpoint: Option<u128>,
}

impl Stream {
    pub async fn of(server: &Server, table: &str) -> Self {
        let reply = server
            .client()
            .describe_table()
            .table_name(table)
            .send()
            .await;
        let table = reply.expect("the table").table.expect("its description");
        Self {
            endpoint: server.endpoint().to_owned(),
            arn: table.latest_stream_arn.expect("a stream"),
            checkpoint: None,
        }
    }

    /// The event with all records since the checkpoint, of the first thousand in each shard.
    pub async fn event(&self) -> Value {
        let mut records = self.read(1).await;
        records.retain(|record| Some(number(record)) > self.checkpoint);
        json!({ "Records": records })
    }

    /// Everything that the table's stream has, in order.
    pub async fn all(&self) -> Vec<Value> {
        self.read(usize::MAX).await
    }

    async fn read(&self, pages: usize) -> Vec<Value> {
        let described = self
            .ask("DescribeStream", json!({ "StreamArn": self.arn }))
            .await;
        let shards = described["StreamDescription"]["Shards"].as_array().cloned();
        let mut records = Vec::new();
        for shard in shards.unwrap_or_default() {
            let from = json!({
                "StreamArn": self.arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON",
            });
            let mut iterator = self.ask("GetShardIterator", from).await["ShardIterator"].take();
            for _ in 0..pages {
                let read = json!({ "ShardIterator": iterator, "Limit": 1000 });
                let mut read = self.ask("GetRecords", read).await;
                let page = read["Records"].as_array_mut().expect("records");
                // An open shard always has another page.
                if page.is_empty() {
                    break;
                }
                records.append(page);
                iterator = read["NextShardIterator"].take();
                if iterator.is_null() {
                    break;
                }
            }
        }
        records.sort_by_key(number);
        records
    }

    /// Goes on behind the batch, or back to the lowest of what failed.
    pub fn answered(&mut self, event: &Value, answer: &Value) {
        let failures = answer["batchItemFailures"]
            .as_array()
            .expect("a list")
            .iter();
        let failed: Vec<_> = failures
            .map(|failure| {
                failure["itemIdentifier"]
                    .as_str()
                    .expect("a number")
                    .parse::<u128>()
                    .expect("a number")
            })
            .collect();
        let done = event["Records"]
            .as_array()
            .expect("records")
            .iter()
            .map(number);
        let lowest = failed.into_iter().min().unwrap_or(u128::MAX);
        self.checkpoint = done
            .filter(|number| *number < lowest)
            .max()
            .or(self.checkpoint);
    }

    async fn ask(&self, operation: &str, body: Value) -> Value {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let request = Request::post(&self.endpoint)
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("DynamoDBStreams_20120810.{operation}"))
            .header("x-amz-date", "20261120T000000Z")
            .header(
                "authorization",
                "AWS4-HMAC-SHA256 Credential=test/20261120/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0",
            )
            .body(Full::new(Bytes::from(body.to_string())))
            .expect("a request");
        let _stands = stand();
        let reply = client.request(request).await.expect("a reply");
        let status = reply.status();
        let body = reply
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        assert!(
            status.is_success(),
            "{operation}: {}",
            String::from_utf8_lossy(&body)
        );
        serde_json::from_slice(&body).expect("JSON")
    }
}

fn number(record: &Value) -> u128 {
    let number = record["dynamodb"]["SequenceNumber"].as_str();
    number.expect("a number").parse().expect("a number")
}
