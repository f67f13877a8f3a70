//! A small S3: objects are put and got, by path, and requests can be refused.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use super::loopback;

/// The S3 API on the loopback interface, through the SDK's own protocol. It checks no signature, and knows one bucket.
#[derive(Clone)]
pub struct Bucket {
    endpoint: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Bytes>,
    /// The error with which all requests are answered.
    refusal: Option<(u16, &'static str)>,
}

impl Bucket {
    pub const NAME: &'static str = "outcomes";

    pub async fn new() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let served = Arc::clone(&state);
        let endpoint = loopback::serve(move |request| answer(Arc::clone(&served), request)).await;
        Self { endpoint, state }
    }

    pub fn client(&self) -> Client {
        let config =
            aws_sdk_s3::Config::builder()
                .behavior_version(BehaviorVersion::v2026_01_12())
                // It fails a request on a machine that is too busy to read the answer.
                .stalled_stream_protection(
                    aws_sdk_s3::config::StalledStreamProtectionConfig::disabled(),
                )
                .endpoint_url(&self.endpoint)
                .force_path_style(true)
                .region(Region::from_static("eu-central-1"))
                .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
                .http_client(super::virtual_time::http_client())
                .retry_config(RetryConfig::disabled())
                .build();
        Client::from_conf(config)
    }

    /// From now on all requests are answered so; `None`: as asked.
    pub fn refuse(&self, refusal: Option<(u16, &'static str)>) {
        self.state.lock().expect("not poisoned").refusal = refusal;
    }

    /// The keys and the sizes of its objects.
    pub fn objects(&self) -> Vec<(String, usize)> {
        let state = self.state.lock().expect("not poisoned");
        let objects = state.objects.iter();
        objects
            .map(|(key, object)| (key.clone(), object.len()))
            .collect()
    }

    /// Changes each object.
    pub fn change(&self, change: impl Fn(&Bytes) -> Option<Bytes>) {
        let mut state = self.state.lock().expect("not poisoned");
        state.objects = std::mem::take(&mut state.objects)
            .into_iter()
            .filter_map(|(key, object)| Some((key, change(&object)?)))
            .collect();
    }
}

async fn answer(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let encoding = parts.headers.get("content-encoding");
    assert!(
        encoding.is_none(),
        "this server takes no chunks: {encoding:?}"
    );
    let body = body.collect().await.expect("a body").to_bytes();
    let path = parts.uri.path();
    let mut state = state.lock().expect("not poisoned");
    if let Some((status, code)) = state.refusal {
        return Ok(error(status, code));
    }
    let prefix = format!("/{}/", Bucket::NAME);
    let Some(key) = path.strip_prefix(&prefix) else {
        return Ok(error(404, "NoSuchBucket"));
    };
    Ok(match parts.method {
        Method::PUT => {
            state.objects.insert(key.to_owned(), body);
            Response::new(Full::default())
        }
        Method::GET => match state.objects.get(key) {
            Some(object) => Response::new(Full::new(object.clone())),
            None => error(404, "NoSuchKey"),
        },
        _ => error(405, "MethodNotAllowed"),
    })
}

fn error(status: u16, code: &str) -> Response<Full<Bytes>> {
    let body = format!("<Error><Code>{code}</Code><Message>injected</Message></Error>");
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}
