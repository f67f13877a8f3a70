//! A wire between the SDK and a server, on which requests are counted and replies can be lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::virtual_time::{stand, wait};
use super::{Server, loopback};

mod fault;
mod forward;

pub use fault::Fault;

use fault::{Part, cancelled, response, service_error};
use forward::forward;

/// Somebody who sees every exchange, and may meddle with it.
pub trait Meddler: Send + Sync {
    /// Returns the fault that this request meets.
    fn fault(&self, operation: &str, request: &Value) -> Fault;

    /// The request as the server is to get it.
    fn rewrite(&self, _operation: &str, request: Value) -> Value {
        request
    }

    /// Takes in the server's answer, whether or not the client will hear it.
    fn answered(&self, _operation: &str, _request: &Value, _status: u16, _reply: &Value) {}
}

/// A counting, failing relay in front of a [`Server`].
#[derive(Clone)]
pub struct Proxy {
    server: Server,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    upstream: String,
    meddler: Option<Arc<dyn Meddler>>,
    counts: Mutex<BTreeMap<String, usize>>,
    /// Waiting faults, each for the next request of an operation.
    faults: Mutex<VecDeque<(String, Fault)>>,
    parked: Notify,
    go: watch::Sender<bool>,
    /// Requests that arrive when the test delivers them.
    withheld: Mutex<Vec<Exchange>>,
    /// Capacity units, as the server counts them; only where it is asked.
    units: Mutex<Option<f64>>,
    /// The number of requests that were made to wait, themselves or their replies.
    held: AtomicUsize,
}

impl Proxy {
    pub async fn before(upstream: &Server) -> Self {
        Self::start(upstream, None).await
    }

    /// The same, with somebody on the wire.
    pub async fn meddled_with(upstream: &Server, meddler: Arc<dyn Meddler>) -> Self {
        Self::start(upstream, Some(meddler)).await
    }

    async fn start(upstream: &Server, meddler: Option<Arc<dyn Meddler>>) -> Self {
        let state = Arc::new(State {
            upstream: upstream.endpoint().to_owned(),
            meddler,
            ..State::default()
        });
        let client = Client::builder(TokioExecutor::new()).build_http();
        let relayed = Arc::clone(&state);
        let relay = move |request| relay(Arc::clone(&relayed), client.clone(), request);
        Self {
            server: Server::behind(loopback::serve(relay).await),
            state,
        }
    }

    /// The server as seen through this wire.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The next request of this operation (`PutItem`, say) meets this fault. Faults queue up.
    pub fn inject(&self, operation: &str, fault: Fault) {
        self.state
            .faults
            .lock()
            .expect("not poisoned")
            .push_back((operation.to_owned(), fault));
    }

    /// The next requests of this operation, so many, meet this fault.
    pub fn repeat(&self, operation: &str, fault: Fault, times: usize) {
        for fault in std::iter::repeat_n(fault, times) {
            self.inject(operation, fault);
        }
    }

    /// Drops the faults that no request has met.
    pub fn forget(&self) {
        self.state.faults.lock().expect("not poisoned").clear();
    }

    /// Waits until a request was [parked](Fault::Park).
    pub async fn parked(&self) {
        self.state.parked.notified().await;
    }

    /// Lets the [withheld](Fault::Withhold) requests arrive, and returns the status of the server's answer to each.
    pub async fn deliver(&self) -> Vec<u16> {
        let withheld = std::mem::take(&mut *self.state.withheld.lock().expect("not poisoned"));
        let mut statuses = Vec::new();
        for exchange in withheld {
            let reply = exchange.forward().await.expect("the server's answer");
            statuses.push(reply.status().as_u16());
        }
        statuses
    }

    /// Requests of this operation since the last call of [`take_counts`](Self::take_counts).
    pub fn count(&self, operation: &str) -> usize {
        let counts = self.state.counts.lock().expect("not poisoned");
        counts.get(operation).copied().unwrap_or_default()
    }

    /// Requests since the last call, by operation, retries of the SDK among them.
    pub fn take_counts(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.state.counts.lock().expect("not poisoned"))
    }

    /// Capacity units since the last call, as the server reports them for requests that succeed; from the first call on it is
    /// asked to.
    pub fn take_units(&self) -> f64 {
        let mut units = self.state.units.lock().expect("not poisoned");
        units.replace(0.0).unwrap_or_default()
    }

    /// Lets the requests go on that are [stopped](Fault::Stop), from now on.
    pub fn let_go(&self) {
        self.state.go.send_replace(true);
    }

    /// Waits until a request, or its reply, is held back by a `Stop`, a `Delay` or a `SlowReply`.
    pub async fn held(&self) {
        let patience = tokio::time::Instant::now() + Duration::from_mins(1);
        while self.state.held.swap(0, Ordering::Relaxed) == 0 {
            assert!(tokio::time::Instant::now() < patience, "nothing came");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns the number of requests since the last call.
    pub fn take_total(&self) -> usize {
        self.take_counts().values().sum()
    }
}

/// The connection is to be cut.
#[derive(Debug, thiserror::Error)]
#[error("cut on purpose")]
struct Cut;

type Reply = Result<Response<Full<Bytes>>, Cut>;

/// A request that was received, and how to forward it.
#[derive(Clone)]
struct Exchange {
    state: Arc<State>,
    client: Client<HttpConnector, Full<Bytes>>,
    operation: String,
    parts: Parts,
    body: Bytes,
}

impl Exchange {
    /// To the end, once it has begun: what is under way to the server arrives, whatever becomes of the client.
    async fn forward(self) -> Reply {
        tokio::spawn(async {
            let _stands = stand();
            forward(self).await
        })
        .await
        .map_err(|_| Cut)?
    }

    fn forward_after(self, pause: Duration) {
        tokio::spawn(async move {
            sleep(pause).await;
            self.forward().await
        });
    }

    fn json(&self) -> Result<Value, Cut> {
        serde_json::from_slice(&self.body).map_err(|_| Cut)
    }
}

async fn relay(
    state: Arc<State>,
    client: Client<HttpConnector, Full<Bytes>>,
    request: Request<Incoming>,
) -> Reply {
    let operation = operation(request.headers());
    *state
        .counts
        .lock()
        .expect("not poisoned")
        .entry(operation.clone())
        .or_default() += 1;
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let exchange = Exchange {
        state: Arc::clone(&state),
        client,
        operation,
        parts,
        body,
    };
    let fault = match (state.next_fault(&exchange.operation), &state.meddler) {
        (Some(fault), _) => fault,
        (None, Some(meddler)) => meddler.fault(&exchange.operation, &exchange.json()?),
        (None, None) => Fault::Pass,
    };
    meet(fault, exchange).await
}

async fn meet(fault: Fault, exchange: Exchange) -> Reply {
    let state = Arc::clone(&exchange.state);
    match fault {
        Fault::Pass => exchange.forward().await,
        Fault::Park { applies } => {
            if applies {
                exchange.clone().forward().await?;
            }
            state.parked.notify_one();
            wait(&exchange.parts.headers, std::future::pending()).await
        }
        Fault::Stop => {
            state.held.fetch_add(1, Ordering::Relaxed);
            let mut go = state.go.subscribe();
            let go = async move { go.wait_for(|go| *go).await.is_ok() };
            wait(&exchange.parts.headers, go).await;
            exchange.forward().await
        }
        Fault::Delay(pause) => {
            state.held.fetch_add(1, Ordering::Relaxed);
            wait(&exchange.parts.headers, sleep(pause)).await;
            exchange.forward().await
        }
        Fault::Hold(pause) => {
            let held = tokio::spawn(async move {
                wait(&exchange.parts.headers, sleep(pause)).await;
                exchange.forward().await
            });
            held.await.map_err(|_| Cut)?
        }
        Fault::SlowReply(pause) => {
            let headers = exchange.parts.headers.clone();
            let reply = exchange.forward().await;
            state.held.fetch_add(1, Ordering::Relaxed);
            wait(&headers, sleep(pause)).await;
            reply
        }
        Fault::LoseReply => {
            exchange.forward().await?;
            Err(Cut)
        }
        Fault::LoseRequest => Err(Cut),
        Fault::Late(pause) => {
            exchange.forward_after(pause);
            Err(Cut)
        }
        Fault::Withhold => {
            let mut withheld = state.withheld.lock().expect("not poisoned");
            withheld.push(exchange);
            Err(Cut)
        }
        Fault::Again(pause) => {
            exchange.clone().forward_after(pause);
            exchange.forward().await
        }
        Fault::Partly { taken, code } => partly(exchange, taken, code).await,
        Fault::Refuse(body) => {
            let mut refusal = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
            *refusal.status_mut() = StatusCode::BAD_REQUEST;
            Ok(refusal)
        }
        Fault::Reply(body) => Ok(Response::new(Full::new(Bytes::from_static(
            body.as_bytes(),
        )))),
        Fault::Answer { status, code } => Ok(service_error(status, code)),
        Fault::Cancel(reasons) => Ok(cancelled(reasons)),
    }
}

async fn partly(mut exchange: Exchange, taken: usize, code: &'static str) -> Reply {
    let Some(part) = Part::of(&exchange.json()?, taken, code) else {
        return exchange.forward().await;
    };
    exchange.body = part.forwarded.to_string().into();
    let reply = exchange.forward().await?;
    if !reply.status().is_success() {
        return Ok(reply);
    }
    let body = reply.into_body().collect().await.map_err(|_| Cut)?;
    let mut reply = serde_json::from_slice(&body.to_bytes()).map_err(|_| Cut)?;
    part.complete(&mut reply);
    Ok(response(&reply))
}

impl State {
    fn next_fault(&self, operation: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().expect("not poisoned");
        let position = faults.iter().position(|(wanted, _)| wanted == operation)?;
        faults.remove(position).map(|(_, fault)| fault)
    }
}

pub(super) fn operation(headers: &HeaderMap) -> String {
    let target = headers
        .get("x-amz-target")
        .and_then(|value| value.to_str().ok());
    target
        .and_then(|target| target.split('.').next_back())
        .unwrap_or("?")
        .to_owned()
}
