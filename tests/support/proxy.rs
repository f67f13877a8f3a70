//! A wire between the SDK and a server, on which requests are counted and replies can be lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::Server;

/// What happens to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Forwarded, and its reply thrown away with the connection.
    LoseReply,
    /// Thrown away with the connection, never forwarded.
    LoseRequest,
    /// Answered with a service error, never forwarded.
    Answer { status: u16, code: &'static str },
    /// Forwarded: the fault is for a later one.
    Pass,
    /// Never answered. The test hears of it, and whether the server does is said here.
    Park { applies: bool },
    /// Forwarded after a pause.
    Delay(Duration),
    /// Forwarded at once, and answered after a pause.
    SlowReply(Duration),
    /// Answered with this, never forwarded.
    Reply(&'static str),
    /// Answered as a transaction that was cancelled for these reasons, one for each of its actions; never forwarded.
    Cancel(&'static [&'static str]),
    /// A read of many keys, answered with no record and all its keys unprocessed, never forwarded.
    Unprocessed,
}

impl Fault {
    pub const THROTTLE: Self = Self::Answer {
        status: 400,
        code: "ProvisionedThroughputExceededException",
    };
    pub const DENY: Self = Self::Answer {
        status: 400,
        code: "AccessDeniedException",
    };
    pub const CONFLICT: Self = Self::Answer {
        status: 400,
        code: "TransactionConflictException",
    };
    pub const INTERNAL: Self = Self::Answer {
        status: 500,
        code: "InternalServerError",
    };
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
    counts: Mutex<BTreeMap<String, usize>>,
    /// Waiting faults, each for the next request of an operation.
    faults: Mutex<VecDeque<(String, Fault)>>,
    parked: Notify,
    /// Capacity units, as the server counts them; only where it is asked.
    units: Mutex<Option<f64>>,
    /// How many requests were made to wait, or their replies.
    held: AtomicUsize,
}

impl Proxy {
    pub async fn before(upstream: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(State {
            upstream: upstream.endpoint().to_owned(),
            ..State::default()
        });
        tokio::spawn(serve(listener, Arc::clone(&state)));
        Self {
            server: Server::behind(format!("http://{address}")),
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

    /// Waits until a request was [parked](Fault::Park).
    pub async fn parked(&self) {
        self.state.parked.notified().await;
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

    /// Waits until a request, or its reply, is held back by a `Delay` or a `SlowReply`.
    pub async fn held(&self) {
        let patience = tokio::time::Instant::now() + Duration::from_secs(30);
        while self.state.held.swap(0, Ordering::Relaxed) == 0 {
            assert!(tokio::time::Instant::now() < patience, "nothing came");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// How many requests since the last call.
    pub fn take_total(&self) -> usize {
        self.take_counts().values().sum()
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let (state, client) = (Arc::clone(&state), client.clone());
        let service = service_fn(move |request| relay(Arc::clone(&state), client.clone(), request));
        tokio::spawn(async move {
            // An error here is a fault that was asked for: the connection is cut.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// The connection is to be cut.
#[derive(Debug, thiserror::Error)]
#[error("cut on purpose")]
struct Cut;

async fn relay(
    state: Arc<State>,
    client: Client<HttpConnector, Full<Bytes>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Cut> {
    let operation = operation(request.headers());
    *state
        .counts
        .lock()
        .expect("not poisoned")
        .entry(operation.clone())
        .or_default() += 1;
    match state.next_fault(&operation) {
        None | Some(Fault::Pass) => forward(&state, &client, request).await,
        Some(Fault::Park { applies }) => {
            if applies {
                forward(&state, &client, request).await?;
            }
            state.parked.notify_one();
            std::future::pending().await
        }
        Some(Fault::Delay(pause)) => {
            state.held.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(pause).await;
            forward(&state, &client, request).await
        }
        Some(Fault::SlowReply(pause)) => {
            let reply = forward(&state, &client, request).await;
            state.held.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(pause).await;
            reply
        }
        Some(Fault::LoseReply) => {
            forward(&state, &client, request).await?;
            Err(Cut)
        }
        Some(Fault::LoseRequest) => Err(Cut),
        Some(Fault::Reply(body)) => Ok(Response::new(Full::new(Bytes::from_static(
            body.as_bytes(),
        )))),
        Some(Fault::Unprocessed) => unprocessed(request).await,
        Some(Fault::Answer { status, code }) => Ok(service_error(status, code)),
        Some(Fault::Cancel(reasons)) => Ok(cancelled(reasons)),
    }
}

impl State {
    fn next_fault(&self, operation: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().expect("not poisoned");
        let position = faults.iter().position(|(wanted, _)| wanted == operation)?;
        faults.remove(position).map(|(_, fault)| fault)
    }

    fn meter(&self, reply: &Value) {
        let consumed = &reply["ConsumedCapacity"];
        let all = consumed
            .as_array()
            .map_or(std::slice::from_ref(consumed), Vec::as_slice);
        let units: f64 = all
            .iter()
            .filter_map(|one| one["CapacityUnits"].as_f64())
            .sum();
        if let Some(sum) = self.units.lock().expect("not poisoned").as_mut() {
            *sum += units;
        }
    }
}

async fn forward(
    state: &State,
    client: &Client<HttpConnector, Full<Bytes>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Cut> {
    let (mut parts, body) = request.into_parts();
    let mut body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let is_metered = state.units.lock().expect("not poisoned").is_some();
    if is_metered {
        let mut asked: Value = serde_json::from_slice(&body).map_err(|_| Cut)?;
        asked["ReturnConsumedCapacity"] = json!("TOTAL");
        body = asked.to_string().into();
        parts.headers.remove(CONTENT_LENGTH);
    }
    parts.uri = format!("{}{}", state.upstream, parts.uri.path())
        .parse()
        .map_err(|_| Cut)?;
    let reply = client
        .request(Request::from_parts(parts, Full::new(body)))
        .await
        .map_err(|_| Cut)?;
    let (parts, body) = reply.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    if is_metered {
        state.meter(&serde_json::from_slice(&body).map_err(|_| Cut)?);
    }
    Ok(Response::from_parts(parts, Full::new(body)))
}

fn cancelled(reasons: &[&str]) -> Response<Full<Bytes>> {
    let reasons: Vec<_> = reasons.iter().map(|code| json!({ "Code": code })).collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "injected",
        "CancellationReasons": reasons,
    });
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// What DynamoDB answers to a `BatchGetItem` that it had no capacity for.
async fn unprocessed(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Cut> {
    let body = request.collect().await.map_err(|_| Cut)?.to_bytes();
    let asked: serde_json::Value = serde_json::from_slice(&body).map_err(|_| Cut)?;
    let reply = serde_json::json!({"Responses": {}, "UnprocessedKeys": asked["RequestItems"]});
    Ok(Response::new(Full::new(Bytes::from(reply.to_string()))))
}

fn service_error(status: u16, code: &str) -> Response<Full<Bytes>> {
    let body =
        format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"injected"}}"#);
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
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
