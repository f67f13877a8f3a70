//! The wire between the environments and the table: draws each request and its answer, and loses what it is told to lose.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::ORIGIN;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::{Stage, lock};

/// The number of bytes that a request may have; an environment's have far fewer.
const MOST_BYTES: usize = 64 * 1_024;

/// The fate of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The next one arrives, and its reply doesn't.
    LoseReply,
    /// Each one is answered with an error.
    Down,
}

pub(crate) struct Wire {
    port: u16,
}

impl Wire {
    pub(crate) async fn start(stage: Arc<Stage>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let client = Client::builder(TokioExecutor::new()).build_http();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (stage, client) = (Arc::clone(&stage), client.clone());
                let service =
                    service_fn(move |request| relay(Arc::clone(&stage), client.clone(), request));
                // An error cuts the connection: a reply is lost so.
                let served = hyper::server::conn::http1::Builder::new();
                tokio::spawn(served.serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { port })
    }

    /// The address of the table for the environment with this name.
    pub(crate) fn endpoint(&self, lane: &str) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, lane.replace(' ', "-"))
    }
}

/// Answers a request that the table doesn't get.
fn refusal(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *reply.status_mut() = status;
    reply
}

async fn relay(
    stage: Arc<Stage>,
    client: Client<HttpConnector, Full<Bytes>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, crate::BoxError> {
    let (mut parts, body) = request.into_parts();
    // Each page that the reader has open can reach this port; its browser adds this header.
    if parts.headers.contains_key(ORIGIN) {
        return Ok(refusal(StatusCode::FORBIDDEN, "the wire answers no page"));
    }
    let lane = parts.uri.path().trim_matches('/').replace('-', " ");
    let target = parts
        .headers
        .get("x-amz-target")
        .and_then(|target| target.to_str().ok());
    let operation = target
        .and_then(|target| target.split('.').next_back())
        .unwrap_or("?")
        .to_owned();
    let body = Limited::new(body, MOST_BYTES).collect().await?.to_bytes();
    let sent = lock(&stage.words).request(&operation, &serde_json::from_slice(&body)?);
    stage.arrow(&lane, "DynamoDB", false, sent.join("\n"));
    let fault = *lock(&stage.fault);
    if fault == Fault::Down {
        stage.arrow("DynamoDB", &lane, true, "500");
        let body = r#"{"__type": "com.amazonaws.dynamodb.v20120810#InternalServerError"}"#;
        return Ok(refusal(StatusCode::INTERNAL_SERVER_ERROR, body));
    }
    parts.headers.remove("content-length");
    parts.uri = format!("{}/", stage.dynamodb.endpoint()).parse()?;
    let reply = client
        .request(Request::from_parts(parts, Full::new(body)))
        .await?;
    let (mut parts, body) = reply.into_parts();
    parts.headers.remove("content-length");
    let body = body.collect().await?.to_bytes();
    let said = lock(&stage.words).reply(
        &sent,
        parts.status.as_u16(),
        &serde_json::from_slice(&body)?,
    );
    if fault == Fault::LoseReply {
        *lock(&stage.fault) = Fault::None;
        stage.note("DynamoDB", format!("{said}; the reply is lost"));
        return Err("lost on purpose".into());
    }
    stage.arrow("DynamoDB", &lane, true, said);
    Ok(Response::from_parts(parts, Full::new(body)))
}
