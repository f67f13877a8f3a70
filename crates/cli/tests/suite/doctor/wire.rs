//! A wire that answers as AWS documents it, from a deployment that a test may change.
//!
//! | service | calls |
//! |---|---|
//! | DynamoDB | `DescribeTable`, `DescribeTimeToLive`, `DescribeContinuousBackups` |
//! | Lambda | `GetFunctionConfiguration`, `GetFunctionConcurrency`, `ListEventSourceMappings`, `GetFunctionEventInvokeConfig` |
//! | SQS | `GetQueueUrl`, `GetQueueAttributes` |
//! | IAM | `SimulatePrincipalPolicy` |
//! | STS | `AssumeRole` |

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::support::serve;

type Shared = Arc<Mutex<Value>>;

pub(super) struct Wire {
    url: String,
    deployment: Shared,
    plays_dynamodb: bool,
}

impl Wire {
    /// A worker of a queue and a stream, as `template.yaml` has them.
    pub(super) async fn sound(plays_dynamodb: bool) -> Self {
        let arn = |service: &str, name: &str| {
            format!("arn:aws:{service}:eu-central-1:123456789012:{name}")
        };
        let deployment = json!({
            "table": {
                "TableName": "idempotency", "TableArn": arn("dynamodb", "table/idempotency"), "TableStatus": "ACTIVE",
                "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}], "DeletionProtectionEnabled": true,
            },
            "ttl": {"TimeToLiveStatus": "ENABLED", "AttributeName": "expiration"},
            "recovery": "ENABLED",
            "function": {
                "FunctionName": "worker", "Timeout": 20, "Role": "arn:aws:iam::123456789012:role/worker",
                "Environment": {"Variables": {"IDEMPOTENCY_TABLE": "idempotency"}},
            },
            "reserved": 10,
            "destination": arn("sqs", "worker-failed"),
            "mappings": [
                {
                    "UUID": "11111111", "EventSourceArn": arn("sqs", "payments"), "State": "Enabled", "BatchSize": 10,
                    "MaximumBatchingWindowInSeconds": 0, "FunctionResponseTypes": ["ReportBatchItemFailures"],
                    "ScalingConfig": {"MaximumConcurrency": 5},
                },
                {
                    "UUID": "22222222", "EventSourceArn": arn("kinesis", "stream/movements"), "State": "Enabled",
                    "FunctionResponseTypes": ["ReportBatchItemFailures"], "BisectBatchOnFunctionError": true,
                    "MaximumRetryAttempts": 100, "MaximumRecordAgeInSeconds": 21600,
                    "DestinationConfig": {"OnFailure": {"Destination": arn("sqs", "discarded")}},
                },
            ],
            "queues": {
                "payments": {
                    "VisibilityTimeout": "120", "MessageRetentionPeriod": "345600",
                    "RedrivePolicy": json!({"deadLetterTargetArn": arn("sqs", "payments-dead"), "maxReceiveCount": 5}).to_string(),
                },
                "payments-dead": {"VisibilityTimeout": "30", "MessageRetentionPeriod": "1209600"},
                "worker-failed": {"VisibilityTimeout": "30", "MessageRetentionPeriod": "1209600"},
            },
            "denied": [], "forbidden": null, "missing": null, "date": null,
        });
        let deployment = Arc::new(Mutex::new(deployment));
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&deployment));
        Self {
            url: serve(router).await,
            deployment,
            plays_dynamodb,
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn plays_dynamodb(&self) -> bool {
        self.plays_dynamodb
    }

    /// Changes the deployment.
    pub(super) fn change(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.deployment.lock().unwrap());
    }
}

/// The name of the call: from the target, the path, or the form.
fn call(uri: &Uri, headers: &HeaderMap, body: &str) -> String {
    if let Some(target) = headers.get("x-amz-target") {
        let target = target.to_str().unwrap();
        return target.rsplit('.').next().unwrap().to_owned();
    }
    let path = uri.path();
    let by_path = [
        ("/configuration", "GetFunctionConfiguration"),
        ("/concurrency", "GetFunctionConcurrency"),
        ("/event-invoke-config", "GetFunctionEventInvokeConfig"),
        ("/event-source-mappings", "ListEventSourceMappings"),
        ("/event-source-mappings/", "ListEventSourceMappings"),
    ];
    if let Some((_, call)) = by_path.iter().find(|(end, _)| path.ends_with(end)) {
        return (*call).to_owned();
    }
    let mut form = body.split('&').filter_map(|pair| pair.split_once('='));
    let action = form.find(|(name, _)| *name == "Action");
    action.map_or_else(|| panic!("{uri} {body}"), |(_, action)| action.to_owned())
}

fn error(status: u16, code: &str, call: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    if call == "SimulatePrincipalPolicy" {
        let text = format!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"
        );
        return (status, text).into_response();
    }
    let body = json!({"__type": code, "message": "no"}).to_string();
    (status, [("x-amzn-errortype", code.to_owned())], body).into_response()
}

async fn answer(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let call = call(&uri, &headers, &body);
    let it = shared.lock().unwrap().clone();
    if it["forbidden"] == json!(call) {
        let code = if call == "SimulatePrincipalPolicy" {
            "AccessDenied"
        } else {
            "AccessDeniedException"
        };
        return error(403, code, &call);
    }
    if it["missing"] == json!(call) {
        return error(404, "ResourceNotFoundException", &call);
    }
    let asked: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
    let reply = match call.as_str() {
        "DescribeTable" => json!({"Table": it["table"]}),
        "DescribeTimeToLive" => json!({"TimeToLiveDescription": it["ttl"]}),
        "DescribeContinuousBackups" => json!({"ContinuousBackupsDescription": {
            "ContinuousBackupsStatus": "ENABLED",
            "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": it["recovery"]},
        }}),
        "GetFunctionConfiguration" => it["function"].clone(),
        // Of a function alone.
        "GetFunctionConcurrency" if uri.path().contains("live") => {
            return error(400, "InvalidParameterValueException", &call);
        }
        "GetFunctionConcurrency" => json!({"ReservedConcurrentExecutions": it["reserved"]}),
        "ListEventSourceMappings" => json!({"EventSourceMappings": it["mappings"]}),
        "GetFunctionEventInvokeConfig" => match &it["destination"] {
            Value::Null => return error(404, "ResourceNotFoundException", &call),
            destination => {
                json!({"DestinationConfig": {"OnFailure": {"Destination": destination}}})
            }
        },
        "GetQueueUrl" => {
            json!({"QueueUrl": format!("http://queues/123456789012/{}", asked["QueueName"].as_str().unwrap())})
        }
        "GetQueueAttributes" => {
            let name = asked["QueueUrl"]
                .as_str()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap();
            json!({"Attributes": it["queues"][name]})
        }
        "SimulatePrincipalPolicy" => return simulation(&it, &body),
        "AssumeRole" => return credentials(&it, &headers),
        other => panic!("{other} is not in the table above"),
    };
    let mut response = reply.to_string().into_response();
    if let Some(date) = it["date"].as_str() {
        response.headers_mut().insert("date", date.parse().unwrap());
    }
    response
}

/// The XML of <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html>.
fn credentials(it: &Value, headers: &HeaderMap) -> Response {
    let signed = headers["authorization"].to_str().unwrap();
    let region = it["assumed_in"].as_str().unwrap();
    assert!(signed.contains(&format!("/{region}/sts/")), "{signed}");
    "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>\
     <AccessKeyId>test</AccessKeyId><SecretAccessKey>test</SecretAccessKey><SessionToken>test</SessionToken>\
     <Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
        .into_response()
}

/// The XML of <https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html>.
fn simulation(it: &Value, body: &str) -> Response {
    let actions = body
        .split('&')
        .filter(|pair| pair.starts_with("ActionNames.member."));
    let results = actions.map(|pair| {
        let action = pair.split_once('=').unwrap().1.replace("%3A", ":");
        let denied = it["denied"].as_array().unwrap().contains(&json!(action));
        let decision = if denied { "implicitDeny" } else { "allowed" };
        format!("<member><EvalActionName>{action}</EvalActionName><EvalDecision>{decision}</EvalDecision></member>")
    });
    let results: String = results.collect();
    assert!(results.contains("dynamodb:PutItem"), "{body}");
    format!(
        "<SimulatePrincipalPolicyResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><SimulatePrincipalPolicyResult>\
         <IsTruncated>false</IsTruncated><EvaluationResults>{results}</EvaluationResults>\
         </SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
    )
    .into_response()
}
