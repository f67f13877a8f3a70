//! Reads a deployment from a template.
#![allow(
    clippy::indexing_slicing,
    reason = "of a JSON value, a member that is not there is null"
)]

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::intrinsic::{Template, members};
use crate::doctor::facts::{DeadLetters, Function, Mapping, Queue, Source, Stream, Table};
use crate::failure::Failure;

/// The seconds for which SQS keeps messages where a template doesn't say.
const QUEUE_RETENTION: u64 = 4 * 86_400;
/// The seconds for which SQS hides a received message where a template doesn't say.
const VISIBILITY: u64 = 30;
/// Lambda's timeout where a template doesn't say.
const TIMEOUT: u64 = 3;

/// The functions that name a table of records, that table, and what could not be read.
type Read = (Vec<Function>, Option<Table>, Vec<String>);

/// Reads the functions of a template: those that are named, or all.
pub(super) fn read(
    path: &Path,
    parameters: &[(String, String)],
    named: &[String],
) -> Result<Read, Failure> {
    let template = Template::read(path, parameters)?;
    let mut reading = Reading {
        template: &template,
        named,
        not_read: Vec::new(),
    };
    let functions = reading.functions();
    if functions.is_empty() {
        return Err(Failure::usage(format!(
            "{} has no such function with the variable IDEMPOTENCY_TABLE: nothing to look at",
            path.display()
        )));
    }
    let table = functions
        .iter()
        .find_map(|function| function.table.clone().flatten());
    let table = table.and_then(|name| reading.table(&name));
    Ok((functions, table, reading.not_read))
}

struct Reading<'a> {
    template: &'a Template,
    /// The functions to look at; all, where none is named.
    named: &'a [String],
    not_read: Vec<String>,
}

impl Reading<'_> {
    fn functions(&mut self) -> Vec<Function> {
        let template = self.template;
        let globals = template.resolve(&template.root["Globals"]["Function"]);
        let mut functions = Vec::new();
        for (name, resource) in template.resources() {
            let kind = resource["Type"].as_str().unwrap_or_default();
            let is_function =
                ["AWS::Serverless::Function", "AWS::Lambda::Function"].contains(&kind);
            if !is_function || !(self.named.is_empty() || self.named.contains(name)) {
                continue;
            }
            let own = template.resolve(&resource["Properties"]);
            let declared = template.resolve(&resource["Metadata"]["Idempotency"]);
            let function = self.function(name, kind, &merged(&globals, own));
            functions.extend(function.map(|function| {
                Function {
                    retention: count(&declared["RetentionDays"])
                        .map(|days| Duration::from_hours(24 * u64::from(days))),
                    ..function
                }
            }));
        }
        functions
    }

    fn function(&mut self, name: &str, kind: &str, properties: &Value) -> Option<Function> {
        let variables = &properties["Environment"]["Variables"];
        let table = variables.get("IDEMPOTENCY_TABLE")?;
        if !table.is_string() {
            self.unknown::<()>(name, "IDEMPOTENCY_TABLE");
        }
        let mut mappings: Vec<Mapping> = Vec::new();
        for (event, declared) in members(&properties["Events"]) {
            let source = declared["Type"].as_str().unwrap_or_default();
            if let Some(mapping) = self.mapping(event, source, &declared["Properties"]) {
                mappings.push(mapping);
            }
        }
        if kind == "AWS::Lambda::Function" {
            mappings.extend(self.separate_mappings(name));
        }
        let asynchronous = ["SNS", "S3", "EventBridgeRule", "CloudWatchEvent"];
        let mut events =
            members(&properties["Events"]).filter_map(|(_, event)| event["Type"].as_str());
        let is_asynchronous = !properties["EventInvokeConfig"].is_null()
            || events.any(|kind| asynchronous.contains(&kind));
        let destination = &properties["EventInvokeConfig"]["DestinationConfig"]["OnFailure"];
        let disabled = match variables.get("IDEMPOTENCY_DISABLED").map(text) {
            Some(Some(set)) => {
                Some(["true", "1", "yes", "on"].contains(&set.to_ascii_lowercase().as_str()))
            }
            Some(None) => self.unknown(name, "IDEMPOTENCY_DISABLED"),
            None => Some(false),
        };
        Some(Function {
            name: name.to_owned(),
            timeout: self.time(name, properties, "Timeout", TIMEOUT),
            table: table.as_str().map(|table| Some(table.to_owned())),
            disabled,
            reserved_concurrency: count(&properties["ReservedConcurrentExecutions"]),
            mappings,
            asynchronous: is_asynchronous.then(|| present(destination)),
            missing_actions: None,
            retention: None,
        })
    }

    /// The mappings that are their own resources.
    fn separate_mappings(&mut self, function: &str) -> Vec<Mapping> {
        let template = self.template;
        let mut mappings = Vec::new();
        for (name, resource) in template.resources() {
            if resource["Type"] != "AWS::Lambda::EventSourceMapping" {
                continue;
            }
            let properties = template.resolve(&resource["Properties"]);
            if properties["FunctionName"] != json!(function) {
                continue;
            }
            let arn = properties["EventSourceArn"].clone();
            let source = arn.as_str().and_then(|name| template.resource(name));
            let kind = match source.and_then(|(_, source)| source["Type"].as_str()) {
                Some("AWS::SQS::Queue") => "SQS",
                Some("AWS::Kinesis::Stream") => "Kinesis",
                Some("AWS::DynamoDB::Table") => "DynamoDB",
                _ => "",
            };
            let sources = json!({ "Queue": arn, "Stream": arn });
            let properties = merged(&sources, properties);
            mappings.extend(self.mapping(name, kind, &properties));
        }
        mappings
    }

    fn mapping(&mut self, name: &str, kind: &str, properties: &Value) -> Option<Mapping> {
        let source = match kind {
            "SQS" => Source::Queue(self.queue(name, properties["Queue"].as_str())?),
            "Kinesis" | "DynamoDB" => Source::Stream(self.stream(name, kind, properties)),
            "MSK" | "SelfManagedKafka" | "MQ" => Source::Other(name.to_owned()),
            _ => return None,
        };
        let reports = match properties.get("FunctionResponseTypes") {
            // Amazon MQ has no such reply.
            _ if kind == "MQ" => None,
            Some(Value::Array(types)) => Some(types.contains(&json!("ReportBatchItemFailures"))),
            Some(_) => self.unknown(name, "FunctionResponseTypes"),
            None => Some(false),
        };
        let enabled = match properties.get("Enabled").map(text) {
            Some(Some(enabled)) => Some(!enabled.eq_ignore_ascii_case("false")),
            Some(None) => self.unknown(name, "Enabled"),
            None => Some(true),
        };
        Some(Mapping {
            id: "UUID".to_owned(),
            enabled,
            reports_item_failures: reports,
            window: seconds(&properties["MaximumBatchingWindowInSeconds"]).unwrap_or_default(),
            maximum_concurrency: count(&properties["ScalingConfig"]["MaximumConcurrency"]),
            source,
        })
    }

    fn properties(&mut self, name: Option<&str>, of: &str) -> Option<Value> {
        let found = name.and_then(|name| self.template.resource(name));
        let Some((template, resource)) = found else {
            self.not_read
                .push(format!("{of}: its source is not in the template"));
            return None;
        };
        Some(template.resolve(&resource["Properties"]))
    }

    /// A time in seconds; AWS's default, where the template has none.
    fn time(&mut self, of: &str, properties: &Value, name: &str, default: u64) -> Option<Duration> {
        let Some(value) = properties.get(name) else {
            return Some(Duration::from_secs(default));
        };
        seconds(value).or_else(|| self.unknown(of, name))
    }

    /// Notes a value that a template alone doesn't tell.
    fn unknown<T>(&mut self, of: &str, name: &str) -> Option<T> {
        self.not_read.push(format!(
            "{of}: {name} is computed by what a template alone doesn't tell"
        ));
        None
    }

    fn queue(&mut self, event: &str, name: Option<&str>) -> Option<Queue> {
        let properties = self.properties(name, event)?;
        let policy = &properties["RedrivePolicy"];
        let dead_letters = if policy.is_null() {
            None
        } else {
            let target = policy["deadLetterTargetArn"].as_str();
            let theirs = self.properties(target, event);
            let max_receive_count = count(&policy["maxReceiveCount"]);
            if max_receive_count.is_none() {
                self.unknown::<()>(event, "maxReceiveCount");
            }
            let retention = theirs.and_then(|theirs| {
                self.time(event, &theirs, "MessageRetentionPeriod", QUEUE_RETENTION)
            });
            Some(DeadLetters {
                name: target.unwrap_or_default().to_owned(),
                max_receive_count,
                retention,
            })
        };
        Some(Queue {
            name: name.unwrap_or_default().to_owned(),
            fifo: properties["FifoQueue"] == json!(true)
                || properties["FifoQueue"] == json!("true"),
            visibility: self.time(event, &properties, "VisibilityTimeout", VISIBILITY),
            retention: self.time(
                event,
                &properties,
                "MessageRetentionPeriod",
                QUEUE_RETENTION,
            ),
            dead_letters: Some(dead_letters),
        })
    }

    fn stream(&mut self, event: &str, kind: &str, properties: &Value) -> Stream {
        let name = properties["Stream"].as_str();
        let hours = match kind {
            "DynamoDB" => Some(24),
            _ => self
                .properties(name, event)
                .map(|stream| count(&stream["RetentionPeriodHours"]).unwrap_or(24)),
        };
        let bounded = |value: &Value| value.as_i64().is_none_or(|number| number >= 0);
        Stream {
            name: name.unwrap_or(event).to_owned(),
            retention: hours.map(|hours| Duration::from_hours(hours.into())),
            bisects: Some(properties["BisectBatchOnFunctionError"] == json!(true)),
            retries: Some(
                count(&properties["MaximumRetryAttempts"])
                    .filter(|_| bounded(&properties["MaximumRetryAttempts"])),
            ),
            max_age: Some(seconds(&properties["MaximumRecordAgeInSeconds"])),
            on_failure: Some(present(&properties["DestinationConfig"]["OnFailure"])),
        }
    }

    fn table(&mut self, name: &str) -> Option<Table> {
        let properties = self.properties(Some(name), "the table of the records")?;
        let mut keys: Vec<&Value> = properties["KeySchema"]
            .as_array()
            .into_iter()
            .flatten()
            .collect();
        keys.sort_by_key(|key| key["KeyType"] != "HASH");
        let keys = keys
            .iter()
            .filter_map(|key| key["AttributeName"].as_str().map(str::to_owned));
        let ttl = &properties["TimeToLiveSpecification"];
        let on = is(&ttl["Enabled"])
            .then(|| ttl["AttributeName"].as_str().unwrap_or_default().to_owned());
        Some(Table {
            name: name.to_owned(),
            ttl: Some(on),
            expected_ttl: "expiration".to_owned(),
            keys: Some(keys.collect()),
            expected_keys: vec!["id".to_owned()],
            point_in_time_recovery: Some(is(
                &properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"],
            )),
            deletion_protection: Some(is(&properties["DeletionProtectionEnabled"])),
        })
    }
}

/// Puts a function's own values over those of `Globals`. Maps are merged, as SAM does.
fn merged(globals: &Value, own: Value) -> Value {
    match (globals, own) {
        (Value::Object(globals), Value::Object(mut own)) => {
            for (name, value) in globals {
                let theirs = own.remove(name).unwrap_or(Value::Null);
                own.insert(name.clone(), merged(value, theirs));
            }
            Value::Object(own)
        }
        (globals, Value::Null) => globals.clone(),
        (_, own) => own,
    }
}

/// A scalar's text, as `CloudFormation` passes it on.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

fn is(value: &Value) -> bool {
    *value == json!(true) || *value == json!("true")
}

/// A number, or its text: a parameter's value is often one.
fn count(value: &Value) -> Option<u32> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u32::try_from(number).ok()
}

fn seconds(value: &Value) -> Option<Duration> {
    count(value).map(|seconds| Duration::from_secs(seconds.into()))
}

fn present(destination: &Value) -> Option<String> {
    destination["Destination"].as_str().map(str::to_owned)
}
