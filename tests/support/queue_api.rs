//! A small endpoint of SQS, SNS and event buses: it answers what it is asked as they would, and remembers the requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Map, Value};

use super::loopback;

/// Requests, as (operation, body).
type Requests = Arc<Mutex<Vec<(String, Value)>>>;

/// The APIs on the loopback interface, through the SDKs' own protocols.
#[derive(Clone)]
pub struct QueueApi {
    endpoint: String,
    requests: Requests,
}

impl QueueApi {
    /// Answers every request with success, or with this error.
    pub async fn answering(error: Option<&'static str>) -> Self {
        let requests = Requests::default();
        let kept = Arc::clone(&requests);
        let answer = move |request| answer(Arc::clone(&kept), request, error);
        let endpoint = loopback::serve(answer).await;
        Self { endpoint, requests }
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A client that tries once.
    pub fn client(&self) -> Client {
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            // It fails a request on a machine that is too busy to read the answer.
            .stalled_stream_protection(
                aws_sdk_sqs::config::StalledStreamProtectionConfig::disabled(),
            )
            .endpoint_url(&self.endpoint)
            .region(Region::from_static("eu-central-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
            .http_client(super::virtual_time::http_client())
            .retry_config(RetryConfig::disabled())
            .build();
        Client::from_conf(config)
    }

    /// Requests since the last call.
    pub fn take(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.requests.lock().expect("not poisoned"))
    }
}

async fn answer(
    requests: Requests,
    request: Request<Incoming>,
    error: Option<&'static str>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let operation = super::proxy::operation(request.headers());
    let body = request
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    if operation == "?" {
        // SNS speaks forms and XML.
        let form: Map<_, _> = form_urlencoded::parse(&body)
            .map(|(name, value)| (name.into_owned(), Value::String(value.into_owned())))
            .collect();
        let operation = form["Action"].as_str().expect("an action").to_owned();
        let text = format!(
            "<{operation}Response><{operation}Result><MessageId>1</MessageId></{operation}Result></{operation}Response>"
        );
        requests
            .lock()
            .expect("not poisoned")
            .push((operation, Value::Object(form)));
        return Ok(Response::new(Full::new(Bytes::from(text))));
    }
    let body = serde_json::from_slice(&body).expect("JSON");
    requests
        .lock()
        .expect("not poisoned")
        .push((operation, body));
    let (status, text) = match error {
        None => (200, "{}".to_owned()),
        Some(code) => (
            400,
            format!(r#"{{"__type": "com.amazonaws.sqs#{code}", "message": "handle-of-m-1"}}"#),
        ),
    };
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/x-amz-json-1.0")
        .body(Full::new(Bytes::from(text)));
    Ok(response.expect("a response"))
}
