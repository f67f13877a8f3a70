//! The job that a contender is given, and its report: one line of JSON each.

use std::time::{Duration, Instant};

use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::kinesis::KinesisEvent;
use lambda_idempotency::sqs::SqsEvent;
use serde::{Deserialize, Serialize};

use crate::dynamo::{Requests, connect};
use crate::layer::Layer;
use crate::messages::{event, ids, stream_event};
use crate::raw::{Raw, Record, Style};
use crate::web::{Web, request};
use crate::{Error, usage};

/// The number of requests that a crowd has under way at a time.
const CROWD: usize = 64;

/// So many batches of so many messages.
#[derive(Debug, Deserialize)]
pub struct Job {
    /// The prefix of the payment ids: the same prefix again makes the same messages again.
    pub prefix: String,
    /// The number of batches.
    pub batches: usize,
    /// The number of messages in each batch.
    pub size: usize,
    /// The receive count of each message: 1 at its first delivery.
    pub receives: u32,
}

/// The measurements of a job.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Processor time of this process.
    pub cpu_us: u128,
    /// Of each batch.
    pub wall_us: Vec<u128>,
    /// The number of times that the handler ran, or of claims that were new.
    pub ran: usize,
    /// Over the wire.
    pub requests: u64,
    /// The median latency of the requests that came at once with others.
    pub p50_us: u128,
    /// Their 99th percentile.
    pub p99_us: u128,
    /// Resident before the first batch, in KiB.
    pub resident_kib: u64,
    /// The most that was resident, in KiB.
    pub peak_kib: u64,
}

/// One of the Rust contenders.
pub struct Contender {
    requests: Requests,
    way: Way,
}

enum Way {
    Layer(Box<Layer<SqsEvent>>),
    Stream(Box<Layer<KinesisEvent>>),
    Raw(Box<Raw>),
    Web(Box<Web>),
}

enum Input {
    Event(SqsEvent),
    Text(String),
    Records(Vec<Record>),
    Requests(Vec<ApiGatewayV2httpRequest>),
}

impl Contender {
    /// By its name, on a table of a server.
    pub fn new(name: &str, endpoint: &str, table: &str) -> Result<Self, Error> {
        let (client, requests) = connect(endpoint);
        let by_hand = |style| Raw::new(client.clone(), table, style);
        let raw = |style| Way::Raw(Box::new(by_hand(style)));
        let guarded = |groups| Web::guarded(DynamoDbStore::new(client.clone(), table), groups);
        let web = |web| Way::Web(Box::new(web));
        let way = match name {
            "layer" => Way::Layer(Box::new(Layer::new(DynamoDbStore::new(client, table))?)),
            "layer-kinesis" => {
                Way::Stream(Box::new(Layer::new(DynamoDbStore::new(client, table))?))
            }
            "raw-serial" => raw(Style::Serial),
            "raw-at-once" => raw(Style::AtOnce),
            "raw-groups" => raw(Style::Groups),
            "raw-reads" => raw(Style::Reads),
            "web-bare" => web(Web::bare()),
            "web-floor" => web(Web::by_hand(by_hand(Style::Serial))),
            "web-layer" => web(guarded(false)?),
            "web-grouped" => web(guarded(true)?),
            "crowd-floor" => web(Web::groups_by_hand(by_hand(Style::Groups))),
            "crowd-layer" => web(guarded(false)?.at_once(CROWD)),
            "crowd-grouped" => web(guarded(true)?.at_once(CROWD)),
            _ => return Err(format!("no contender {name}").into()),
        };
        Ok(Self { requests, way })
    }

    /// Does a job. Each batch is made just before its clock starts, as the runtime has just parsed the event that it hands over. An
    /// event of Kinesis is parsed while the clock runs.
    pub async fn run(&mut self, job: &Job) -> Result<Report, Error> {
        let mut report = Report {
            cpu_us: 0,
            wall_us: Vec::with_capacity(job.batches),
            ran: 0,
            requests: 0,
            p50_us: 0,
            p99_us: 0,
            resident_kib: 0,
            peak_kib: 0,
        };
        self.requests.take();
        let mut used = Duration::ZERO;
        for batch in 0..job.batches {
            let input = self.input(&ids(&job.prefix, batch, job.size), job.receives)?;
            if batch == 0 {
                usage::forget_peak()?;
                report.resident_kib = usage::resident()?;
            }
            let before = usage::cpu()?;
            let start = Instant::now();
            report.ran += match (&mut self.way, input) {
                (Way::Layer(layer), Input::Event(event)) => layer.batch(event).await?,
                // Base64 is decoded where the event is parsed; the peer decodes it later.
                (Way::Stream(layer), Input::Text(text)) => {
                    layer.batch(serde_json::from_str(&text)?).await?
                }
                (Way::Raw(raw), Input::Records(records)) => raw.batch(&records).await?,
                (Way::Web(web), Input::Requests(requests)) => web.requests(requests).await?,
                _ => 0,
            };
            report.wall_us.push(start.elapsed().as_micros());
            used += usage::cpu()?.saturating_sub(before);
        }
        report.cpu_us = used.as_micros();
        report.requests = self.requests.take();
        report.peak_kib = usage::peak()?;
        if let Way::Web(web) = &mut self.way {
            let latencies = web.latencies();
            let at = |percent: usize| {
                let place = latencies.get(latencies.len() * percent / 100);
                place.map_or(0, Duration::as_micros)
            };
            (report.p50_us, report.p99_us) = (at(50), at(99));
        }
        Ok(report)
    }

    fn input(&self, ids: &[String], receives: u32) -> Result<Input, Error> {
        Ok(match &self.way {
            Way::Layer(_) => Input::Event(event(ids, receives)?),
            Way::Stream(_) => Input::Text(stream_event(ids)?),
            Way::Raw(_) => Input::Records(ids.iter().map(|id| Record::of(id)).collect()),
            Way::Web(_) => {
                Input::Requests(ids.iter().map(|id| request(id)).collect::<Result<_, _>>()?)
            }
        })
    }
}
