//! Asks Lambda for a function and its mappings.

use std::time::Duration;

use aws_sdk_lambda::Client;
use aws_sdk_lambda::error::ProvideErrorMetadata;
use aws_sdk_lambda::types::{EventSourceMappingConfiguration, FunctionResponseType};
use lambda_idempotency::Builder;

use super::{Asking, queue, role, service};
use crate::doctor::facts::{
    Destination, EXECUTIONS_OF_A_POLLER, Function, Mapping, POLLERS, Source, Stream, qualified,
};
use crate::doctor::{Adapter, Args};
use crate::failure::Failure;

/// The time for which a stream of DynamoDB keeps its records.
const DYNAMODB_STREAM: Duration = Duration::from_hours(24);

pub(super) async fn ask(
    asking: &mut Asking,
    args: &Args,
    name: &str,
    table: Option<&str>,
) -> Result<Function, Failure> {
    let client = Client::new(&asking.config);
    let configuration = client
        .get_function_configuration()
        .function_name(name)
        .send()
        .await;
    let configuration = configuration.map_err(|error| match error.code() {
        Some("ResourceNotFoundException") => Failure::service(
            format!("there is no function `{name}`: look at --function, --region and --profile"),
            &error,
        ),
        Some(code) if code.contains("AccessDenied") => Failure::service(
            format!("allow your role lambda:GetFunctionConfiguration on `{name}`"),
            &error,
        ),
        _ => Failure::service("lambda:GetFunctionConfiguration", &error),
    })?;
    let (variables, error) = configuration
        .environment
        .map(|environment| (environment.variables, environment.error))
        .unwrap_or_default();
    if let Some(error) = &error {
        let code = error.error_code().unwrap_or_default();
        let message = error.message().unwrap_or_default();
        let why = format!(
            "{code}: {message}: with a KMS key of your own, allow your role kms:Decrypt on it"
        );
        asking.not_asked(format!("variables of {name}"), why);
    }
    let (is_read, variables) = (error.is_none(), variables.unwrap_or_default());
    let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty());
    let mut function = Function {
        name: name.to_owned(),
        arn: configuration.function_arn,
        timeout: configuration.timeout.and_then(seconds),
        table: is_read.then(|| variable("IDEMPOTENCY_TABLE").cloned()),
        disabled: is_read.then(|| {
            variable("IDEMPOTENCY_DISABLED")
                .is_some_and(|word| Builder::disabled_by(word) == Some(true))
        }),
        retention: Some(None),
        ..Function::default()
    };
    // An alias has no concurrency.
    let (alone, qualifier) = qualified(name);
    let asked = client.get_function_concurrency().function_name(alone);
    let (what, answer) = (format!("concurrency of {name}"), asked.send().await);
    let reply = asking.answered(what, "lambda:GetFunctionConcurrency", answer);
    function.reserved_concurrency =
        reply.and_then(|reply| count(reply.reserved_concurrent_executions));
    if args.asynchronous {
        let dead_letters = configuration.dead_letter_config;
        let dead_letters = dead_letters.and_then(|queue| queue.target_arn);
        function.asynchronous = destination(asking, &client, name, dead_letters).await;
    } else if args.adapter == Adapter::Invoke {
        asking.not_asked(
            format!("destinations of {name}"),
            "invoked asynchronously? give --asynchronous",
        );
    }
    let mappings = client.list_event_source_mappings().function_name(name);
    let mappings: Result<Vec<_>, _> = mappings.into_paginator().items().send().collect().await;
    let what = format!("mappings of {name}");
    let mappings = asking.answered(&what, "lambda:ListEventSourceMappings", mappings);
    match mappings {
        Some(mappings) if mappings.is_empty() && qualifier.is_none() => {
            asking.not_asked(
                format!("aliases of {name}"),
                "it has no mappings: an alias has its own, and a version's variables: name it, --function NAME:ALIAS",
            );
        }
        Some(mappings) if mappings.is_empty() && args.adapter == Adapter::Batch => {
            asking.not_asked(what, "it has none");
        }
        mappings => {
            for mapping in mappings.into_iter().flatten() {
                function.mappings.push(read(asking, mapping).await);
            }
        }
    }
    if let (Some(role), Some(table)) = (configuration.role, table) {
        function.missing_actions = role::missing(asking, args.adapter, name, &role, table).await;
    }
    Ok(function)
}

/// A count that is there; -1 is without end.
fn count(number: Option<i32>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok())
}

fn seconds(count: i32) -> Option<Duration> {
    u64::try_from(count).ok().map(Duration::from_secs)
}

/// Events without a destination go to the function's dead-letter queue.
async fn destination(
    asking: &mut Asking,
    client: &Client,
    name: &str,
    dead_letters: Option<String>,
) -> Option<Option<Destination>> {
    let asked = client.get_function_event_invoke_config();
    let named = match asked.function_name(name).send().await {
        // It has none.
        Err(error) if error.code() == Some("ResourceNotFoundException") => None,
        answer => {
            let (what, action) = (
                format!("destinations of {name}"),
                "lambda:GetFunctionEventInvokeConfig",
            );
            let reply = asking.answered(what, action, answer)?;
            let failure = reply.destination_config.and_then(|to| to.on_failure);
            failure.and_then(|failure| failure.destination)
        }
    };
    match named.or(dead_letters) {
        Some(arn) => Some(Some(queue::destination(asking, &arn).await)),
        None => Some(None),
    }
}

async fn read(asking: &mut Asking, mapping: EventSourceMappingConfiguration) -> Mapping {
    let reports = mapping
        .function_response_types
        .as_deref()
        .unwrap_or_default();
    let scaling = mapping.scaling_config.as_ref();
    let concurrency = count(scaling.and_then(|scaling| scaling.maximum_concurrency));
    let pollers = mapping.provisioned_poller_config.as_ref();
    let pollers = pollers.and_then(|pollers| {
        let least = count(pollers.minimum_pollers);
        count(pollers.maximum_pollers).or(least.map(|_| POLLERS))
    });
    let of_pollers = pollers.map(|most| most.saturating_mul(EXECUTIONS_OF_A_POLLER));
    let arn = mapping.event_source_arn.clone().unwrap_or_default();
    let state = mapping.state.as_deref().unwrap_or_default();
    Mapping {
        id: mapping.uuid.clone().unwrap_or_default(),
        enabled: (!state.is_empty()).then(|| !state.starts_with("Disabl")),
        // Amazon MQ has no such reply.
        reports_item_failures: (service(&arn) != "mq")
            .then(|| reports.contains(&FunctionResponseType::ReportBatchItemFailures)),
        window: Some(
            mapping
                .maximum_batching_window_in_seconds
                .and_then(seconds)
                .unwrap_or_default(),
        ),
        maximum_concurrency: Some(of_pollers.or(concurrency)),
        provisioned: of_pollers.is_some(),
        source: source(asking, &arn, &mapping).await,
    }
}

async fn source(
    asking: &mut Asking,
    arn: &str,
    mapping: &EventSourceMappingConfiguration,
) -> Source {
    let service = service(arn);
    match service {
        "sqs" => Source::Queue(queue::ask(asking, arn).await),
        "kinesis" | "dynamodb" => {
            let retention = (service == "dynamodb").then_some(DYNAMODB_STREAM);
            if retention.is_none() {
                let why = format!(
                    "compare its retention with --retention: {} kinesis describe-stream-summary",
                    asking.aws
                );
                asking.not_asked(format!("retention of {arn}"), why);
            }
            Source::Stream(stream(arn, mapping, retention))
        }
        // The brokers of a Kafka of one's own have no ARN.
        _ if arn.is_empty() => Source::Other(mapping.uuid.clone().unwrap_or_default()),
        _ => Source::Other(arn.to_owned()),
    }
}

/// The name in an ARN that ends with `stream/NAME`, with `table/NAME/stream/TIME`, or with a consumer
/// behind the first.
fn stream_name(arn: &str) -> &str {
    let resource = arn.splitn(6, ':').nth(5).unwrap_or(arn);
    resource.split('/').nth(1).unwrap_or(resource)
}

fn stream(
    arn: &str,
    mapping: &EventSourceMappingConfiguration,
    retention: Option<Duration>,
) -> Stream {
    let destination = mapping.destination_config.as_ref();
    let failure = destination.and_then(|to| to.on_failure.as_ref());
    Stream {
        name: stream_name(arn).to_owned(),
        retention,
        tumbling_window: Some(
            mapping
                .tumbling_window_in_seconds
                .and_then(seconds)
                .unwrap_or_default(),
        ),
        bisects: Some(mapping.bisect_batch_on_function_error.unwrap_or(false)),
        retries: Some(count(mapping.maximum_retry_attempts)),
        max_age: Some(mapping.maximum_record_age_in_seconds.and_then(seconds)),
        on_failure: Some(failure.and_then(|failure| failure.destination.clone())),
    }
}
