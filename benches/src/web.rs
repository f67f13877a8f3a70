//! The library's HTTP layer around a handler of API Gateway's events, the same by hand, and the same handler without either.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use lambda_http::aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_idempotency::Idempotency;
use lambda_idempotency::http::IdempotencyLayer;
use lambda_idempotency::http::events::Incoming;
use lambda_idempotency::store::Store;
use lambda_runtime::LambdaEvent;
use serde::Deserialize;
use tower::{Layer, Service, service_fn};

use crate::Error;
use crate::layer::context;
use crate::messages::Payment;
use crate::raw::{MOST_STATEMENTS, Raw, Record};

const TEMPLATE: &str = include_str!("../request.json");

type Reply = Pin<Box<dyn Future<Output = Result<ApiGatewayV2httpResponse, Error>> + Send>>;
type Function = Box<dyn FnMut(LambdaEvent<ApiGatewayV2httpRequest>) -> Reply>;

/// A function behind an HTTP API, whose handler looks at the body and answers.
pub struct Web {
    way: Way,
    runs: Arc<AtomicUsize>,
    /// The number of requests that are under way at a time.
    at_once: usize,
    /// The latency of each request that came at once with others.
    latencies: Vec<Duration>,
}

enum Way {
    Function(Function),
    /// Whole groups, by hand.
    Groups(Raw),
}

impl Web {
    fn new(make: impl FnOnce(Arc<AtomicUsize>) -> Function) -> Self {
        let runs = Arc::new(AtomicUsize::new(0));
        Self {
            way: Way::Function(make(Arc::clone(&runs))),
            runs,
            at_once: 1,
            latencies: Vec::new(),
        }
    }

    /// The handler, and nothing else.
    pub fn bare() -> Self {
        Self::new(|runs| {
            Box::new(move |event: LambdaEvent<_>| -> Reply {
                Box::pin(std::future::ready(pay(&runs, &event.payload)))
            })
        })
    }

    /// A conditional put, the handler, and an update, by hand: the floor. Nothing is hashed, and nothing is decided.
    pub fn by_hand(raw: Raw) -> Self {
        let raw = Arc::new(raw);
        Self::new(|runs| {
            Box::new(move |event: LambdaEvent<_>| -> Reply {
                let (raw, runs) = (Arc::clone(&raw), Arc::clone(&runs));
                Box::pin(async move { by_hand(&raw, &runs, event.payload).await })
            })
        })
    }

    /// The same in groups, one after the other: the floor for requests that come at once.
    pub fn groups_by_hand(raw: Raw) -> Self {
        Self {
            way: Way::Groups(raw),
            runs: Arc::default(),
            at_once: 1,
            latencies: Vec::new(),
        }
    }

    /// With so many requests under way at a time, each its own task as in a server.
    pub fn at_once(mut self, requests: usize) -> Self {
        self.at_once = requests;
        self
    }

    /// With the layer's own settings, and requests in groups or not.
    pub fn guarded(store: impl Store, groups: bool) -> Result<Self, Error> {
        let once = Idempotency::builder(store)
            .namespace("bench")
            .settings(|settings| settings.group_requests = groups)
            .build()?;
        Ok(Self::new(|runs| {
            let handler = service_fn(move |event: Incoming<ApiGatewayV2httpRequest>| {
                std::future::ready(pay(&runs, &event.payload))
            });
            let mut service = IdempotencyLayer::unscoped(once).layer(handler);
            Box::new(move |event| -> Reply { Box::pin(service.call(event)) })
        }))
    }

    /// Returns the latencies since the last call, the shortest first.
    pub fn latencies(&mut self) -> Vec<Duration> {
        let mut latencies = std::mem::take(&mut self.latencies);
        latencies.sort();
        latencies
    }

    /// Answers requests, and returns the number of those that ran. All must have got the handler's answer.
    pub async fn requests(
        &mut self,
        requests: Vec<ApiGatewayV2httpRequest>,
    ) -> Result<usize, Error> {
        match &mut self.way {
            Way::Function(function) if self.at_once == 1 => {
                for request in requests {
                    accepted(&function(LambdaEvent::new(request, context()?)).await?)?;
                }
            }
            Way::Function(function) => {
                let sent = requests.into_iter().map(|request| {
                    let answer = function(LambdaEvent::new(request, context()?));
                    let began = Instant::now();
                    let timed = async move { Ok::<_, Error>((answer.await?, began.elapsed())) };
                    Ok::<_, Error>(tokio::spawn(timed))
                });
                let mut answers = stream::iter(sent)
                    .map(async |task| task?.await?)
                    .buffer_unordered(self.at_once);
                while let Some(answer) = answers.next().await {
                    let (answer, took) = answer?;
                    accepted(&answer)?;
                    self.latencies.push(took);
                }
            }
            Way::Groups(raw) => {
                for group in requests.chunks(MOST_STATEMENTS) {
                    let records = group.iter().map(record).collect::<Result<Vec<_>, _>>()?;
                    if raw.group(&records).await? > 0 {
                        for request in group {
                            accepted(&pay(&self.runs, request)?)?;
                        }
                    }
                }
            }
        }
        Ok(self.runs.swap(0, Ordering::Relaxed))
    }
}

fn accepted(answer: &ApiGatewayV2httpResponse) -> Result<(), Error> {
    match answer.status_code {
        201 => Ok(()),
        other => Err(format!("answered with {other}").into()),
    }
}

/// The record of a request, whose outcome is as long as the one that the layer stores.
fn record(request: &ApiGatewayV2httpRequest) -> Result<Record, Error> {
    let key = request
        .headers
        .get("idempotency-key")
        .ok_or("a request without a key")?;
    let key = key.to_str()?;
    let outcome = format!(
        r#"{{"status":201,"headers":[["content-type","application/json"]],"body":"{{\"receipt\": \"{key}\"}}"}}"#
    );
    Ok(Record::with("POST /payments", key, outcome))
}

async fn by_hand(
    raw: &Raw,
    runs: &AtomicUsize,
    request: ApiGatewayV2httpRequest,
) -> Result<ApiGatewayV2httpResponse, Error> {
    let record = record(&request)?;
    if let Some(met) = raw.claim(&record).await? {
        let stored: Stored = serde_json::from_str(&met)?;
        return stored.response();
    }
    let response = pay(runs, &request)?;
    raw.complete(&record).await?;
    Ok(response)
}

#[derive(Deserialize)]
struct Stored {
    status: i64,
    headers: Vec<(String, String)>,
    body: String,
}

impl Stored {
    fn response(self) -> Result<ApiGatewayV2httpResponse, Error> {
        let mut response = ApiGatewayV2httpResponse::default();
        response.status_code = self.status;
        for (name, value) in self.headers {
            response.headers.insert(
                lambda_http::http::HeaderName::try_from(name)?,
                value.parse()?,
            );
        }
        response.body = Some(self.body.into());
        Ok(response)
    }
}

fn pay(
    runs: &AtomicUsize,
    request: &ApiGatewayV2httpRequest,
) -> Result<ApiGatewayV2httpResponse, Error> {
    runs.fetch_add(1, Ordering::Relaxed);
    let payment: Payment = serde_json::from_str(request.body.as_deref().unwrap_or_default())?;
    std::hint::black_box(payment.amount);
    let mut response = ApiGatewayV2httpResponse::default();
    response.status_code = 201;
    response
        .headers
        .insert("content-type", "application/json".parse()?);
    response.body = Some(format!(r#"{{"receipt": "{}"}}"#, payment.payment_id).into());
    Ok(response)
}

/// A request as API Gateway delivers it, its id in the header `idempotency-key`.
pub fn request(id: &str) -> Result<ApiGatewayV2httpRequest, Error> {
    Ok(serde_json::from_str(&TEMPLATE.replace("{id}", id))?)
}
