//! A client whose requests go nowhere: the answer is ready at once. Only the client's own work is left, and its
//! instructions can be counted to the last per mille.

use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;

use crate::dynamo::config;

/// The name of the only table.
pub const TABLE: &str = "bench";

/// The records that the table seems to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// Nothing: each claim is the first.
    Empty,
    /// A completed record under every id.
    Done,
    /// The same, and its outcome is an answer over HTTP.
    Answered,
}

/// A client in that world.
pub fn client(world: World) -> Client {
    let connector = SharedHttpConnector::new(Canned(world));
    let http =
        http_client_fn(move |_: &HttpConnectorSettings, _: &RuntimeComponents| connector.clone());
    let config = config()
        .endpoint_url("http://127.0.0.1:1")
        .http_client(http);
    Client::from_conf(config.build())
}

#[derive(Clone, Copy)]
struct Canned(World);

impl fmt::Debug for Canned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Canned")
    }
}

/// Without the id, the fingerprint and the outcome, which differ.
const ATTRIBUTES: &str = concat!(
    r#""status":{"S":"COMPLETED"},"owner":{"S":"0123456789abcdef0123456789abcdef"},"attempt":{"N":"1"},"#,
    r#""expiration":{"N":"4102444800"},"started_at":{"N":"1763640000000"},"completed_at":{"N":"1763640000001"},"#,
    r#""v":{"N":"1"}"#
);

impl HttpConnector for Canned {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let action = target.rsplit('.').next().unwrap_or_default();
        let body = request.body().bytes().unwrap_or_default();
        let text = std::str::from_utf8(body).unwrap_or_default();
        let (status, answer) = self.answer(action, text);
        let status =
            StatusCode::try_from(status).unwrap_or_else(|_| unreachable!("a valid status"));
        HttpConnectorFuture::ready(Ok(HttpResponse::new(status, SdkBody::from(answer))))
    }
}

impl Canned {
    fn outcome(self) -> &'static str {
        match self.0 {
            World::Answered => concat!(
                r#""data":{"S":"{\"status\":201,\"headers\":[[\"content-type\",\"application/json\"]],"#,
                r#"\"body\":\"{\\\"receipt\\\": \\\"round-1\\\"}\"}"}"#
            ),
            World::Empty | World::Done => r#""data":{"S":"\"done\""}"#,
        }
    }

    fn answer(self, action: &str, request: &str) -> (u16, String) {
        let done = self.0 != World::Empty;
        let data = self.outcome();
        match action {
            "PutItem" if done => (
                400,
                format!(
                    r#"{{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed","Item":{{{ATTRIBUTES},{data}}}}}"#
                ),
            ),
            "GetItem" if done => (200, format!(r#"{{"Item":{{{ATTRIBUTES},{data}}}}}"#)),
            "BatchExecuteStatement" => {
                let each = if done {
                    r#"{"Error":{"Code":"DuplicateItem","Message":"Duplicate primary key exists in table"},"TableName":"bench"}"#
                } else {
                    r#"{"TableName":"bench"}"#
                };
                // As cheap as can be: this stands in for a server, and should not count.
                let statements =
                    memchr::memmem::find_iter(request.as_bytes(), "\"Statement\":").count();
                (
                    200,
                    format!(r#"{{"Responses":[{}]}}"#, vec![each; statements].join(",")),
                )
            }
            "BatchGetItem" => {
                let items: Vec<_> = ids(request)
                    .map(|id| format!(r#"{{"id":{{"S":"{id}"}},{ATTRIBUTES},{data}}}"#))
                    .collect();
                (
                    200,
                    format!(
                        r#"{{"Responses":{{"{TABLE}":[{}]}},"UnprocessedKeys":{{}}}}"#,
                        items.join(",")
                    ),
                )
            }
            _ => (200, "{}".to_owned()),
        }
    }
}

/// The keys that a request asks for.
fn ids(request: &str) -> impl Iterator<Item = &str> {
    request
        .split(r#"{"id":{"S":""#)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
}
