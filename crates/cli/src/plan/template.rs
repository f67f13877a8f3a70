//! Reads a deployment from a template.
#![allow(
    clippy::indexing_slicing,
    reason = "of a JSON value, a member that is not there is null"
)]
#![allow(
    clippy::option_option,
    reason = "unknown, known to be absent, and known are three"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use lambda_idempotency::Builder;
use serde_json::{Value, json};

use super::intrinsic::{Template, intrinsic, members, text};
use crate::args::Layout;
use crate::doctor::facts::{
    DeadLetters, Destination, EXECUTIONS_OF_A_POLLER, Function, Mapping, POLLERS, Queue, Source,
    Stream, Table,
};
use crate::failure::Failure;

/// The seconds for which SQS keeps messages where a template doesn't say.
const QUEUE_RETENTION: u64 = 4 * 86_400;
/// The seconds for which SQS hides a received message where a template doesn't say.
const VISIBILITY: u64 = 30;
/// The hours for which a stream keeps records where a template doesn't say; one of DynamoDB, always.
const STREAM_HOURS: u32 = 24;
/// A mapping names a function, or one alias or version of it.
const QUALIFIERS: usize = 1;
const QUEUE: &str = "AWS::SQS::Queue";
const STREAM: &str = "AWS::Kinesis::Stream";
const CONSUMER: &str = "AWS::Kinesis::StreamConsumer";
const SIMPLE_TABLE: &str = "AWS::Serverless::SimpleTable";
const GLOBAL_TABLE: &str = "AWS::DynamoDB::GlobalTable";
const TABLES: [&str; 3] = ["AWS::DynamoDB::Table", SIMPLE_TABLE, GLOBAL_TABLE];
/// The types of SAM's events that invoke a function asynchronously.
const ASYNCHRONOUS: [&str; 6] = [
    "SNS",
    "S3",
    "EventBridgeRule",
    "CloudWatchEvent",
    "CloudWatchLogs",
    "IoTRule",
];
/// Lambda's timeout where a template doesn't say.
const TIMEOUT: u64 = 3;

/// The functions that name a table of records, those tables, and what could not be read.
type Read = (Vec<Function>, Vec<Table>, Vec<String>);

/// Reads the functions of a template: those that are named, or all. `layout` names the tables' keys
/// and attributes.
pub(super) fn read(
    path: &Path,
    parameters: &[(String, String)],
    named: &[String],
    layout: &Layout,
) -> Result<Read, Failure> {
    let template = Template::read(path, parameters)?;
    let mut reading = Reading {
        template: &template,
        named,
        not_read: template.unread(),
    };
    let mut functions = reading.functions();
    let is_read = |name: &&String| functions.iter().any(|function| function.name == **name);
    let missing = named.iter().find(|name| !is_read(name));
    if functions.is_empty() || missing.is_some() {
        let name = missing.map(|name| format!(" `{name}`")).unwrap_or_default();
        let mut told = vec![format!(
            "{} has no such function{name} with the variable IDEMPOTENCY_TABLE: nothing to look at",
            path.display()
        )];
        told.extend(reading.not_read);
        return Err(Failure::usage(told.join("; ")));
    }
    let written = functions
        .iter()
        .filter_map(|function| function.table.clone());
    let written: BTreeSet<String> = written.flatten().collect();
    let tables = written
        .iter()
        .filter_map(|name| reading.table(name, layout));
    let tables: Vec<Table> = tables.collect();
    for function in &mut functions {
        // A table outside of the template may be the right one.
        let is_read = |name: &String| tables.iter().any(|table| table.name == *name);
        function.table = function
            .table
            .take()
            .filter(|name| name.as_ref().is_some_and(is_read));
    }
    Ok((functions, tables, reading.not_read))
}

struct Reading<'a> {
    template: &'a Template,
    /// The functions to look at; all, where none is named.
    named: &'a [String],
    not_read: Vec<String>,
}

impl Reading<'_> {
    fn functions(&mut self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (template, name, resource) in self.template.every() {
            let globals = match resource["Type"].as_str().unwrap_or_default() {
                "AWS::Serverless::Function" => &template.root["Globals"]["Function"],
                "AWS::Lambda::Function" => &Value::Null,
                _ => continue,
            };
            if !(self.named.is_empty() || self.named.contains(&name)) {
                continue;
            }
            let own = merged(globals, resource["Properties"].clone());
            let properties = self.with_destination(&name, template.resolve(&own));
            let Some(function) = self.function(&name, &properties) else {
                continue;
            };
            let declared = resolved(template, resource, "Metadata");
            let days = |value: &Value| {
                let days = count(value)?;
                Some(Some(Duration::from_hours(24 * u64::from(days))))
            };
            let retention = self.known(&name, &declared, "Idempotency.RetentionDays", None, days);
            functions.push(Function {
                retention,
                ..function
            });
        }
        functions
    }

    /// Adds the destination of failed asynchronous invocations that a resource of its own gives a function.
    fn with_destination(&self, function: &str, properties: Value) -> Value {
        let every = self.template.every().into_iter();
        let mut configs = every
            .filter(|(_, _, resource)| resource["Type"] == "AWS::Lambda::EventInvokeConfig")
            .map(|(template, _, resource)| template.resolve(&resource["Properties"]));
        let own = configs.find(|config| {
            at(config, "DestinationConfig.OnFailure.Destination").is_some()
                && self.function_of(&config["FunctionName"]).as_deref() == Some(function)
        });
        match own {
            Some(config) => merged(&json!({ "EventInvokeConfig": config }), properties),
            None => properties,
        }
    }

    fn function(&mut self, name: &str, properties: &Value) -> Option<Function> {
        let table = at(properties, "Environment.Variables.IDEMPOTENCY_TABLE")?;
        if !table.is_string() {
            self.unknown::<()>(name, "IDEMPOTENCY_TABLE");
        }
        let mut mappings: Vec<Mapping> = Vec::new();
        let mut is_asynchronous = at(properties, "EventInvokeConfig").is_some();
        for (event, declared) in members(&properties["Events"]) {
            let (kind, source) = source_of_event(declared);
            is_asynchronous |= ASYNCHRONOUS.contains(&kind);
            mappings.extend(self.mapping(event, kind, &source));
        }
        mappings.extend(self.separate_mappings(name));
        let is_on = |value: &Value| Some(Builder::disabled_by(&text(value)?) == Some(true));
        let disabled = "Environment.Variables.IDEMPOTENCY_DISABLED";
        let reserved = "ReservedConcurrentExecutions";
        let some_count = |value: &Value| count(value).map(Some);
        Some(Function {
            name: name.to_owned(),
            arn: None,
            timeout: self.time(name, properties, "Timeout", TIMEOUT),
            table: table.as_str().map(|table| Some(table.to_owned())),
            disabled: self.known(name, properties, disabled, false, is_on),
            reserved_concurrency: self
                .known(name, properties, reserved, None, some_count)
                .flatten(),
            mappings,
            asynchronous: is_asynchronous
                .then(|| self.destination(name, properties))
                .flatten(),
            missing_actions: None,
            retention: None,
        })
    }

    /// The destination of failed asynchronous invocations. SAM makes the queue or the topic of a `Type`
    /// without a `Destination`. Where there is none, events go to the dead-letter queue.
    fn destination(&mut self, name: &str, properties: &Value) -> Option<Option<Destination>> {
        let named = "EventInvokeConfig.DestinationConfig.OnFailure.Destination";
        let kind = "EventInvokeConfig.DestinationConfig.OnFailure.Type";
        let made = |kind: &Value| {
            let kind = kind.as_str()?;
            Some(["SQS", "SNS"].contains(&kind).then(|| kind.to_owned()))
        };
        let destination = if at(properties, named).is_some() {
            self.known(name, properties, named, None, some_text)
        } else {
            self.known(name, properties, kind, None, made)
        };
        let dead_letters = "DeadLetterQueue.TargetArn";
        let destination = match destination {
            Some(None) => self.known(name, properties, dead_letters, None, some_text),
            known => known,
        };
        destination.map(|named| named.map(|named| self.keeping(named)))
    }

    /// A destination with the time for which it keeps events, where it is a queue of the template, or the
    /// one that SAM makes.
    fn keeping(&mut self, name: String) -> Destination {
        let found = self.template.resource(&name);
        let properties = match found.filter(|(_, resource)| resource["Type"] == QUEUE) {
            Some((template, resource)) => Some(resolved(template, resource, "Properties")),
            None => (name == "SQS").then(|| json!({})),
        };
        let retention = properties.and_then(|properties| {
            self.time(
                &name,
                &properties,
                "MessageRetentionPeriod",
                QUEUE_RETENTION,
            )
        });
        Destination { name, retention }
    }

    /// The mappings that are their own resources.
    fn separate_mappings(&mut self, function: &str) -> Vec<Mapping> {
        let mut mappings = Vec::new();
        for (template, name, resource) in self.template.every() {
            if resource["Type"] != "AWS::Lambda::EventSourceMapping" {
                continue;
            }
            let properties = template.resolve(&resource["Properties"]);
            let Some(named) = self.function_of(&properties["FunctionName"]) else {
                self.not_in_template(&name, "function");
                continue;
            };
            if named != function {
                continue;
            }
            let arn = self.source_of(&properties["EventSourceArn"]);
            let source = arn.as_str().and_then(|name| self.template.resource(name));
            let kind = match source.and_then(|(_, source)| source["Type"].as_str()) {
                Some(QUEUE) => "SQS",
                Some(STREAM) => "Kinesis",
                Some("AWS::DynamoDB::Table" | GLOBAL_TABLE) => "DynamoDB",
                Some("AWS::MSK::Cluster") => "MSK",
                Some("AWS::AmazonMQ::Broker") => "MQ",
                _ => {
                    self.not_in_template(&name, "source");
                    continue;
                }
            };
            let sources = json!({ "Queue": arn, "Stream": arn });
            let properties = merged(&sources, properties);
            mappings.extend(self.mapping(&name, kind, &properties));
        }
        mappings
    }

    /// The function that a mapping names, by itself or by an alias or a version of it.
    fn function_of(&self, named: &Value) -> Option<String> {
        let mut named = named.clone();
        for _ in 0..=QUALIFIERS {
            let (template, resource) = self.template.resource(named.as_str()?)?;
            match resource["Type"].as_str()? {
                "AWS::Serverless::Function" | "AWS::Lambda::Function" => {
                    return named.as_str().map(str::to_owned);
                }
                "AWS::Lambda::Alias" | "AWS::Lambda::Version" => {
                    named = template.resolve(&resource["Properties"]["FunctionName"]);
                }
                _ => return None,
            }
        }
        None
    }

    /// The source that a mapping names, by itself or, of a stream, by a consumer of it.
    fn source_of(&self, named: &Value) -> Value {
        match named.as_str().and_then(|name| self.template.resource(name)) {
            Some((template, consumer)) if consumer["Type"] == CONSUMER => {
                template.resolve(&consumer["Properties"]["StreamARN"])
            }
            _ => named.clone(),
        }
    }

    fn mapping(&mut self, name: &str, kind: &str, properties: &Value) -> Option<Mapping> {
        let source = match kind {
            "SQS" => Source::Queue(self.queue(name, properties["Queue"].as_str())),
            "Kinesis" | "DynamoDB" => Source::Stream(self.stream(name, kind, properties)),
            "MSK" | "SelfManagedKafka" | "MQ" => Source::Other(name.to_owned()),
            _ => return None,
        };
        let reports = |value: &Value| {
            let types = value.as_array()?;
            let reports = types.contains(&json!("ReportBatchItemFailures"));
            (reports || !types.contains(&Value::Null)).then_some(reports)
        };
        let (responses, window) = ("FunctionResponseTypes", "MaximumBatchingWindowInSeconds");
        let provisioned = at(properties, "ProvisionedPollerConfig").is_some();
        let maximum_concurrency = if provisioned {
            let pollers = "ProvisionedPollerConfig.MaximumPollers";
            let pollers = self.known(name, properties, pollers, POLLERS, count);
            pollers.map(|most| Some(most.saturating_mul(EXECUTIONS_OF_A_POLLER)))
        } else {
            let concurrency = "ScalingConfig.MaximumConcurrency";
            let some_count = |value: &Value| count(value).map(Some);
            self.known(name, properties, concurrency, None, some_count)
        };
        Some(Mapping {
            id: String::new(),
            enabled: self.known(name, properties, "Enabled", true, truth),
            // Amazon MQ has no such reply.
            reports_item_failures: (kind != "MQ")
                .then(|| self.known(name, properties, responses, false, reports))
                .flatten(),
            window: self.time(name, properties, window, 0),
            maximum_concurrency,
            provisioned,
            source,
        })
    }

    /// The properties of a source, or of a table; `None` where the template has none of these types under
    /// the name: what makes it may be there.
    fn properties(&mut self, name: Option<&str>, types: &[&str], of: &str) -> Option<Value> {
        let found = name.and_then(|name| self.template.resource(name));
        let is_one = |kind: &str| types.contains(&kind);
        let found = found.filter(|(_, resource)| resource["Type"].as_str().is_some_and(is_one));
        let Some((template, resource)) = found else {
            self.not_in_template(of, "source");
            return None;
        };
        Some(resolved(template, resource, "Properties"))
    }

    fn not_in_template(&mut self, of: &str, what: &str) {
        let unread = format!("{of}: its {what} is not in the template");
        if !self.not_read.contains(&unread) {
            self.not_read.push(unread);
        }
    }

    /// Reads the property at a path of names: `default`, where the template has none.
    fn known<T>(
        &mut self,
        of: &str,
        properties: &Value,
        path: &str,
        default: T,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        match at(properties, path) {
            Some(value) => read(value).or_else(|| self.unknown(of, path)),
            None => Some(default),
        }
    }

    /// A time in seconds; AWS's default, where the template has none.
    fn time(&mut self, of: &str, properties: &Value, name: &str, default: u64) -> Option<Duration> {
        let default = Duration::from_secs(default);
        self.known(of, properties, name, default, seconds)
    }

    /// Adds a value that a template alone doesn't tell to what could not be read.
    fn unknown<T>(&mut self, of: &str, name: &str) -> Option<T> {
        self.not_read.push(format!(
            "{of}: {name} is computed by what a template alone doesn't tell"
        ));
        None
    }

    fn queue(&mut self, event: &str, name: Option<&str>) -> Queue {
        let mut queue = Queue {
            name: name.unwrap_or(event).to_owned(),
            ..Queue::default()
        };
        let Some(properties) = self.properties(name, &[QUEUE], event) else {
            return queue;
        };
        let fifo = self.known(event, &properties, "FifoQueue", false, truth);
        let kept = "MessageRetentionPeriod";
        let retention = self.time(event, &properties, kept, QUEUE_RETENTION);
        queue.fifo = fifo.unwrap_or_default();
        // What its retention means depends on the kind of the queue.
        queue.retention = fifo.and(retention);
        queue.visibility = self.time(event, &properties, "VisibilityTimeout", VISIBILITY);
        queue.dead_letters = match properties.get("RedrivePolicy") {
            None => Some(None),
            Some(Value::Null) => self.unknown(event, "RedrivePolicy"),
            Some(policy) => Some(Some(self.dead_letters(event, policy))),
        };
        queue
    }

    fn dead_letters(&mut self, event: &str, policy: &Value) -> DeadLetters {
        let target = policy["deadLetterTargetArn"].as_str();
        let theirs = self.properties(target, &[QUEUE], event);
        let receives = count(&policy["maxReceiveCount"]);
        let kept = "MessageRetentionPeriod";
        DeadLetters {
            max_receive_count: receives.or_else(|| self.unknown(event, "maxReceiveCount")),
            destination: Destination {
                name: target.unwrap_or_default().to_owned(),
                retention: theirs
                    .and_then(|theirs| self.time(event, &theirs, kept, QUEUE_RETENTION)),
            },
        }
    }

    fn stream(&mut self, event: &str, kind: &str, properties: &Value) -> Stream {
        let source = self.source_of(&properties["Stream"]);
        let name = source.as_str();
        let hours = match kind {
            "DynamoDB" => Some(STREAM_HOURS),
            _ => self.properties(name, &[STREAM], event).and_then(|stream| {
                self.known(event, &stream, "RetentionPeriodHours", STREAM_HOURS, count)
            }),
        };
        let mut bounded = |path| self.known(event, properties, path, None, bounded);
        let retries = bounded("MaximumRetryAttempts");
        let max_age = bounded("MaximumRecordAgeInSeconds");
        let destination = "DestinationConfig.OnFailure.Destination";
        Stream {
            name: name.unwrap_or(event).to_owned(),
            retention: hours.map(|hours| Duration::from_hours(hours.into())),
            tumbling_window: self.time(event, properties, "TumblingWindowInSeconds", 0),
            bisects: self.known(
                event,
                properties,
                "BisectBatchOnFunctionError",
                false,
                truth,
            ),
            retries,
            max_age: max_age.map(|age| age.map(|age| Duration::from_secs(age.into()))),
            on_failure: self.known(event, properties, destination, None, some_text),
        }
    }

    fn table(&mut self, name: &str, layout: &Layout) -> Option<Table> {
        let properties = self.properties(Some(name), &TABLES, "the table of the records")?;
        let resource = self.template.resource(name);
        let properties = match resource.and_then(|(_, resource)| resource["Type"].as_str()) {
            Some(SIMPLE_TABLE) => merged(&key_of_simple(&properties), properties),
            Some(GLOBAL_TABLE) => merged(&settings_of_all(&properties), properties),
            _ => properties,
        };
        let keys = |schema: &Value| {
            let mut keys: Vec<&Value> = schema.as_array()?.iter().collect();
            keys.sort_by_key(|key| key["KeyType"] != "HASH");
            let name = |key: &Value| text(&key["AttributeName"]);
            keys.into_iter().map(name).collect()
        };
        let mut known = |path, read: fn(&Value) -> Option<bool>| {
            self.known(name, &properties, path, false, read)
        };
        let ttl = match known("TimeToLiveSpecification.Enabled", truth) {
            Some(true) => {
                let attribute = "TimeToLiveSpecification.AttributeName";
                let attribute = self.known(name, &properties, attribute, String::new(), text);
                attribute.map(Some)
            }
            is_on => is_on.map(|_| None),
        };
        Some(Table {
            name: name.to_owned(),
            ttl,
            keys: self.known(name, &properties, "KeySchema", Vec::new(), keys),
            point_in_time_recovery: self.known(name, &properties, RECOVERY, false, truth),
            deletion_protection: self.known(name, &properties, PROTECTION, false, truth),
            ..Table::expected(layout)
        })
    }
}

const RECOVERY: &str = "PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled";
const PROTECTION: &str = "DeletionProtectionEnabled";

/// The key of a `SimpleTable`, as another table has it.
fn key_of_simple(properties: &Value) -> Value {
    let id = json!("id");
    let name = at(properties, "PrimaryKey.Name").unwrap_or(&id);
    json!({ "KeySchema": [{ "AttributeName": name, "KeyType": "HASH" }] })
}

/// Returns the settings of a global table's replicas in the form of a single table's. A protection is on
/// where each replica has it: records are lost in one that has not.
fn settings_of_all(properties: &Value) -> Value {
    let of_all = |path| {
        let replicas = properties["Replicas"].as_array()?;
        let is_on = |replica| at(replica, path).map_or(Some(false), truth);
        let are_on: Vec<_> = replicas.iter().map(is_on).collect();
        if are_on.contains(&Some(false)) {
            return Some(false);
        }
        are_on
            .into_iter()
            .all(|is_on| is_on.is_some())
            .then_some(true)
    };
    json!({
        "PointInTimeRecoverySpecification": { "PointInTimeRecoveryEnabled": of_all(RECOVERY) },
        "DeletionProtectionEnabled": of_all(PROTECTION),
    })
}

/// The type of an event's source, and the properties of its mapping. With `SqsSubscription`, a queue takes what
/// a topic sends: the one that it names, or one that SAM makes.
fn source_of_event(event: &Value) -> (&str, Value) {
    let (kind, properties) = (&event["Type"], &event["Properties"]);
    match &properties["SqsSubscription"] {
        Value::Null | Value::Bool(false) => (kind.as_str().unwrap_or_default(), properties.clone()),
        own => (
            "SQS",
            merged(&json!({ "Queue": own["QueueArn"] }), own.clone()),
        ),
    }
}

/// A part of a resource; an empty one, where the resource has none.
fn resolved(template: &Template, resource: &Value, part: &str) -> Value {
    let part = resource.get(part).map(|part| template.resolve(part));
    part.unwrap_or_else(|| json!({}))
}

/// The property at a path of names; `null` where it, or a part that it would be in, can't be known.
fn at<'a>(properties: &'a Value, path: &str) -> Option<&'a Value> {
    let member = |value: &'a Value, name| match value {
        Value::Null => Some(value),
        _ => value.get(name),
    };
    path.split('.').try_fold(properties, member)
}

/// Puts a function's own values over those of `Globals`. Maps are merged, as SAM does; an intrinsic
/// function is none.
fn merged(globals: &Value, own: Value) -> Value {
    if intrinsic(globals).is_some() || intrinsic(&own).is_some() {
        return own;
    }
    match (globals, own) {
        (Value::Object(globals), Value::Object(mut own)) => {
            for (name, value) in globals {
                let own_value = own.remove(name).map(|own| merged(value, own));
                own.insert(name.clone(), own_value.unwrap_or_else(|| value.clone()));
            }
            Value::Object(own)
        }
        (globals, Value::Null) => globals.clone(),
        (_, own) => own,
    }
}

/// `true` or `false`, or its text.
fn truth(value: &Value) -> Option<bool> {
    text(value)?.to_ascii_lowercase().parse().ok()
}

/// A number, or its text: a parameter's value is often one.
fn count(value: &Value) -> Option<u32> {
    text(value)?.parse().ok()
}

/// The same; `Some(None)` of a negative number, which sets no bound.
fn bounded(value: &Value) -> Option<Option<u32>> {
    let number: i64 = text(value)?.parse().ok()?;
    Some(u32::try_from(number).ok())
}

fn seconds(value: &Value) -> Option<Duration> {
    count(value).map(|seconds| Duration::from_secs(seconds.into()))
}

fn some_text(value: &Value) -> Option<Option<String>> {
    value.as_str().map(|text| Some(text.to_owned()))
}
