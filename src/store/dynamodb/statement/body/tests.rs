use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{BatchStatementRequest, ReturnValuesOnConditionCheckFailure};
use aws_sdk_dynamodb::{Client, Config};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use serde_json::Value as Json;

use super::super::super::change::{Change, Value};
use super::super::super::layout::{Attribute, TableLayout};
use super::super::{Statements, Verb};
use super::*;

/// Answers nothing of use, and keeps what it was asked: the headers, and the body.
#[derive(Clone, Debug, Default)]
struct Wire(Arc<Mutex<Vec<Sent>>>);

type Sent = (HashMap<String, String>, Vec<u8>);

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let body = request.body().bytes().unwrap().to_vec();
        self.0.lock().unwrap().push((headers.collect(), body));
        let status = 200.try_into().unwrap();
        let answer = HttpResponse::new(status, r#"{"Responses":[]}"#.into());
        HttpConnectorFuture::ready(Ok(answer))
    }
}

fn client(wire: &Wire) -> Client {
    let connector = SharedHttpConnector::new(wire.clone());
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("eu-central-1"))
        .credentials_provider(Credentials::new("me", "secret", None, None, "test"))
        .endpoint_url("http://127.0.0.1:1")
        .http_client(http_client_fn(move |_, _| connector.clone()));
    Client::from_conf(config.build())
}

/// A write of every kind of value that a record holds, with all that JSON has to escape.
fn change(nth: usize) -> Change<'static> {
    let odd = "\"quoted\" \\ back\u{8}\u{c}\n\r\t\0\u{1f}\u{7f} é 字 😀 \u{2028}/";
    let binary = AttributeValue::B(Blob::new((0..=u8::MAX).collect::<Vec<_>>()));
    let map = AttributeValue::M(HashMap::from([
        ("one".to_owned(), AttributeValue::S(odd.to_owned())),
        (odd.to_owned(), binary),
        ("none".to_owned(), AttributeValue::M(HashMap::new())),
    ]));
    Change {
        key: vec![("id", AttributeValue::S(format!("{odd}{nth}")))],
        sets: vec![
            (Attribute::Status, Value::Word("COMPLETED")),
            (
                Attribute::Data,
                AttributeValue::S("é\u{1f}".to_owned()).into(),
            ),
            (
                Attribute::CompletedAt,
                AttributeValue::N("-17".to_owned()).into(),
            ),
            (Attribute::Packed, map.into()),
        ],
        removes: vec![Attribute::Lease],
        step: None,
        tests: Vec::new(),
    }
}

/// What the SDK is told by its own means to send the same.
fn statement(verb: Verb, text: &str, change: &Change<'_>) -> BatchStatementRequest {
    let (key, mut values) = (change.key[0].1.clone(), Vec::new());
    for (_, value) in &change.sets {
        if let Value::Given(value) = value {
            values.push(value.clone());
        }
    }
    let place = if verb == Verb::Insert {
        0
    } else {
        values.len()
    };
    values.insert(place, key);
    BatchStatementRequest::builder()
        .statement(text)
        .set_parameters(Some(values))
        .set_return_values_on_condition_check_failure(
            (verb == Verb::Update).then_some(ReturnValuesOnConditionCheckFailure::AllOld),
        )
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_request_is_what_the_sdk_would_have_made_of_it() {
    for (verb, count) in [(Verb::Insert, 1), (Verb::Update, 1), (Verb::Update, 3)] {
        let (wire, layout) = (Wire::default(), TableLayout::default().data("da\"ta"));
        let mut statements = Statements::of(verb, "it's a \"table\"", &layout);
        let mut group: Option<Group> = None;
        let mut theirs = Vec::new();
        for change in (0..count).map(change) {
            let made = statements.make(&change);
            match &mut group {
                Some(group) => group.push(made),
                None => group = Some(Group::of(made)),
            }
            theirs.push(statement(verb, &statements.text, &change));
        }
        let group = group.unwrap();
        assert_eq!(group.statements(), count);
        let client = client(&wire);
        let ours = client.batch_execute_statement();
        let ours = ours.set_statements(Some(Vec::new())).customize();
        ours.interceptor(group.into_body()).send().await.unwrap();
        let request = client.batch_execute_statement();
        let request = request.set_statements(Some(theirs));
        request.send().await.unwrap();

        let sent = wire.0.lock().unwrap();
        let [(our_headers, ours), (their_headers, theirs)] = sent.as_slice() else {
            panic!("{} requests", sent.len());
        };
        let [parsed, expected]: [Json; 2] =
            [ours, theirs].map(|body| serde_json::from_slice(body).unwrap());
        assert_eq!(parsed, expected);
        for name in ["content-type", "x-amz-target", "host"] {
            assert_eq!(our_headers.get(name), their_headers.get(name), "{name}");
        }
        assert_eq!(our_headers["content-length"], ours.len().to_string());
    }
}

#[tokio::test]
async fn another_body_than_the_expected_is_not_replaced() {
    let (wire, layout) = (Wire::default(), TableLayout::default());
    let mut statements = Statements::of(Verb::Insert, "records", &layout);
    let group = Group::of(statements.make(&change(0)));
    let theirs = statement(Verb::Insert, "INSERT", &change(1));
    let request = client(&wire).batch_execute_statement().statements(theirs);
    let refused = request.customize().interceptor(group.into_body()).send();
    assert!(refused.await.is_err());
    assert!(wire.0.lock().unwrap().is_empty(), "nothing was sent");
}
