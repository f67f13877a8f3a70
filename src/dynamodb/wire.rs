//! A wire behind the SDK whose replies a test writes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use serde_json::Value;

use super::store::DynamoDbStore;

/// The reply to a request: a status and a body, or none at all.
pub(super) type Reply = Option<(u16, Value)>;

/// Answers the requests one after the other with the next reply; the last one answers all that
/// follow.
#[derive(Clone, Default)]
pub(super) struct Wire(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    requests: Vec<(String, Value)>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    pub(super) fn answering(replies: impl IntoIterator<Item = Reply>) -> Self {
        let wire = Self::default();
        wire.0.lock().unwrap().replies = replies.into_iter().collect();
        wire
    }

    /// A store behind it, whose client tries once.
    pub(super) fn store(&self) -> DynamoDbStore {
        self.retrying(RetryConfig::disabled())
    }

    /// A store behind it, whose client tries so often.
    pub(super) fn retrying(&self, retries: RetryConfig) -> DynamoDbStore {
        let connector = SharedHttpConnector::new(self.clone());
        let http = http_client_fn(move |_: &HttpConnectorSettings, _: &RuntimeComponents| {
            connector.clone()
        });
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            // It fails a request on a machine that is too busy to read the answer.
            .stalled_stream_protection(
                aws_sdk_dynamodb::config::StalledStreamProtectionConfig::disabled(),
            )
            .endpoint_url("http://127.0.0.1:1")
            .region(Region::from_static("eu-central-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
            .retry_config(retries)
            .http_client(http);
        DynamoDbStore::new(
            aws_sdk_dynamodb::Client::from_conf(config.build()),
            "records",
        )
    }

    /// The actions and bodies of the requests so far.
    pub(super) fn requests(&self) -> Vec<(String, Value)> {
        self.0.lock().unwrap().requests.clone()
    }

    /// The actions of the requests so far.
    pub(super) fn actions(&self) -> Vec<String> {
        self.requests()
            .into_iter()
            .map(|(action, _)| action)
            .collect()
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap();
        let action = target.rsplit('.').next().unwrap().to_owned();
        let body = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        let mut state = self.0.lock().unwrap();
        state.requests.push((action, body));
        let reply = match state.replies.len() {
            0 | 1 => state.replies.front().cloned(),
            _ => state.replies.pop_front(),
        };
        let Some((status, body)) = reply.expect("a reply for each request") else {
            return HttpConnectorFuture::new(std::future::pending());
        };
        let body = SdkBody::from(body.to_string());
        HttpConnectorFuture::ready(Ok(HttpResponse::new(status.try_into().unwrap(), body)))
    }
}
