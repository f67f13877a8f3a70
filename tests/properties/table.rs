//! A table of one item, behind the real SDK: it evaluates the conditions that the store sends, as DynamoDB would, and applies
//! what they allow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Credentials, Region, StalledStreamProtectionConfig,
};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use lambda_idempotency::dynamodb::DynamoDbStore;
use serde_json::{Map, Value, json};

/// An item as it goes over the wire: `{"S": "…"}` for each name.
pub(super) type Item = BTreeMap<String, Value>;

/// The one item that there is, if any.
#[derive(Clone, Default)]
pub(super) struct Table(Arc<Mutex<Option<Item>>>);

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Table")
    }
}

impl Table {
    pub(super) fn holding(item: Item) -> Self {
        Self(Arc::new(Mutex::new(Some(item))))
    }

    pub(super) fn item(&self) -> Option<Item> {
        self.0.lock().expect("no panic while it is held").clone()
    }

    /// A store on it. On each thread, the table that was asked last is the one that answers: a client is slow to make.
    pub(super) fn store(&self) -> DynamoDbStore {
        thread_local! {
            static CLIENT: (Client, Current) = Current::client();
        }
        CLIENT.with(|(client, current)| {
            *current.0.lock().expect("no panic while it is held") = self.clone();
            DynamoDbStore::new(client.clone(), "table")
        })
    }

    fn answer(&self, action: &str, request: &Value) -> (u16, Value) {
        let mut item = self.0.lock().expect("no panic while it is held");
        if action == "GetItem" {
            return (200, json!({ "Item": *item }));
        }
        let expressions = Expressions(request);
        if !expressions.hold(item.as_ref()) {
            let refused = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException";
            return (
                400,
                json!({ "__type": refused, "message": "refused", "Item": *item }),
            );
        }
        match action {
            "PutItem" => {
                *item = Some(members(&request["Item"]).collect());
                (200, json!({}))
            }
            "UpdateItem" => {
                let updated = item.get_or_insert_default();
                updated.extend(members(&request["Key"]));
                expressions.update(updated);
                (200, json!({ "Attributes": updated }))
            }
            other => panic!("{other} is not expected here"),
        }
    }
}

/// The table that answers.
#[derive(Clone, Debug, Default)]
struct Current(Arc<Mutex<Table>>);

impl Current {
    fn client() -> (Client, Self) {
        let current = Self::default();
        let connector = SharedHttpConnector::new(current.clone());
        let http = http_client_fn(move |_: &HttpConnectorSettings, _: &RuntimeComponents| {
            connector.clone()
        });
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::from_static("eu-central-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .endpoint_url("http://127.0.0.1:1")
            .http_client(http);
        (Client::from_conf(config.build()), current)
    }
}

impl HttpConnector for Current {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").expect("an action");
        let action = target.rsplit('.').next().expect("its name");
        let body = request.body().bytes().expect("a body that is no stream");
        let request = serde_json::from_slice(body).expect("JSON");
        let table = self.0.lock().expect("no panic while it is held").clone();
        let (status, answer) = table.answer(action, &request);
        let status = StatusCode::try_from(status).expect("a status");
        HttpConnectorFuture::ready(Ok(HttpResponse::new(
            status,
            SdkBody::from(answer.to_string()),
        )))
    }
}

/// The expressions of a request: as much of their language as the store speaks.
struct Expressions<'a>(&'a Value);

impl Expressions<'_> {
    /// Returns whether the condition holds. A write without one is a defect.
    fn hold(&self, item: Option<&Item>) -> bool {
        let condition = self.0["ConditionExpression"].as_str();
        let condition = condition.expect("each write has a condition");
        condition.split(" AND ").all(|test| self.holds(test, item))
    }

    fn holds(&self, test: &str, item: Option<&Item>) -> bool {
        let found = |path: &str| self.path(path, item?);
        if let Some(either) = test
            .strip_prefix('(')
            .and_then(|test| test.strip_suffix(')'))
        {
            return either.split(" OR ").any(|test| self.holds(test, item));
        }
        if let Some(path) = test.strip_prefix("attribute_not_exists(") {
            return found(path.trim_end_matches(')')).is_none();
        }
        let [path, operator, value] = test.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{test} is not understood");
        };
        let (Some(found), value) = (found(path), self.value(value)) else {
            return false;
        };
        match operator {
            // Numbers are compared as such: `1` is `+1`.
            "=" => found == value || number(found).is_some() && number(found) == number(value),
            "<" => number(found) < number(value),
            _ => panic!("{test} is not understood"),
        }
    }

    fn update(&self, item: &mut Item) {
        let text = self.0["UpdateExpression"].as_str().unwrap_or_default();
        let (sets, removes) = match text.split_once("REMOVE ") {
            Some((sets, removes)) => (sets, removes),
            None => (text, ""),
        };
        let sets = sets.trim().strip_prefix("SET ").unwrap_or_default();
        for set in sets.split(", ").filter(|set| !set.is_empty()) {
            let (name, value) = set.split_once(" = ").expect("a name and a value");
            item.insert(self.name(name).to_owned(), self.value(value).clone());
        }
        for name in removes.split(", ").filter(|name| !name.is_empty()) {
            item.remove(self.name(name));
        }
    }

    fn path<'a>(&self, path: &str, item: &'a Item) -> Option<&'a Value> {
        match path.split_once('.') {
            Some((name, member)) => item.get(self.name(name))?.get("M")?.get(self.name(member)),
            None => item.get(self.name(path)),
        }
    }

    fn name(&self, alias: &str) -> &str {
        self.0["ExpressionAttributeNames"][alias]
            .as_str()
            .expect("a name for each alias")
    }

    fn value(&self, alias: &str) -> &Value {
        &self.0["ExpressionAttributeValues"][alias]
    }
}

fn number(value: &Value) -> Option<i64> {
    value["N"].as_str()?.parse().ok()
}

fn members(value: &Value) -> impl Iterator<Item = (String, Value)> {
    let members: Map<_, _> = value.as_object().cloned().expect("a map");
    members.into_iter()
}
