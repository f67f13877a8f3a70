//! Rules of a function and of its mappings.

use std::time::Duration;

use super::{Verdict, danger, keep_for, kept, warning};
use crate::doctor::facts::{
    Deployment, EXECUTIONS_OF_A_POLLER, Function, Mapping, Source, Table, qualified,
};
use crate::time::length;

/// The longest that an event is retried: by EventBridge, Scheduler or CloudWatch Logs for 24 hours, then
/// [by Lambda](https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html) for 6.
const LONGEST_RETRIES: Duration = Duration::from_hours(24 + 6);
/// The longest that an event of SNS is retried: by SNS for 23 days, then by Lambda.
const LONGEST_RETRIES_OF_SNS: Duration = Duration::from_hours(23 * 24 + 6);

/// One verdict for each function that says enough.
fn each(deployment: &Deployment, rule: impl Fn(&Function) -> Option<Verdict>) -> Vec<Verdict> {
    deployment.functions.iter().filter_map(rule).collect()
}

/// One verdict for each mapping that says enough.
pub(super) fn each_mapping(
    deployment: &Deployment,
    rule: impl Fn(&Function, &Mapping) -> Option<Verdict>,
) -> Vec<Verdict> {
    let mappings = deployment.functions.iter().flat_map(|function| {
        let mappings = function.mappings.iter();
        mappings.map(move |mapping| (function, mapping))
    });
    mappings
        .filter_map(|(function, mapping)| rule(function, mapping))
        .collect()
}

/// The command that changes a mapping.
pub(super) fn update(deployment: &Deployment, mapping: &Mapping, flags: &str) -> String {
    let (aws, id) = (&deployment.aws, &mapping.id);
    format!("{aws} lambda update-event-source-mapping --uuid {id} {flags}")
}

/// The region and the account of an ARN.
fn home(arn: &str) -> Vec<&str> {
    arn.split(':').skip(3).take(2).collect()
}

/// Returns whether the value of a function's variable names the table: by its ARN, or by its name.
fn names(value: &str, table: &Table, function: &Function) -> bool {
    let is_of = |arn: &str| match arn.rsplit_once(":table/") {
        // A name is one of the function's own account and region.
        Some((_, name)) if !value.starts_with("arn:") => {
            let own = function.arn.as_deref();
            name == value && own.is_none_or(|own| home(own) == home(arn))
        }
        _ => value == arn,
    };
    value == table.name || table.arn.as_deref().is_some_and(is_of)
}

pub(super) fn table_variable(deployment: &Deployment) -> Vec<Verdict> {
    let tables = &deployment.tables;
    each(deployment, |function| {
        let table = tables.first()?;
        let variable = function.table.as_ref()?;
        let is_known = |value: &String| tables.iter().any(|table| names(value, table, function));
        Some((!variable.as_ref().is_some_and(is_known)).then(|| {
            let what = match variable {
                Some(other) => format!("IDEMPOTENCY_TABLE is `{other}`, not `{}`", table.name),
                None => "IDEMPOTENCY_TABLE is not set".to_owned(),
            };
            let why = "The records are in another table than the one that you look at, or the function doesn't start.";
            let fix = format!(
                "Environment: {{ Variables: {{ IDEMPOTENCY_TABLE: {} }} }}",
                table.name
            );
            danger(&function.name, what, why, fix)
        }))
    })
}

pub(super) fn kill_switch(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |function| {
        Some(function.disabled?.then(|| {
            let why = "Handlers run unprotected: each duplicate takes effect again.";
            let (name, qualifier) = qualified(&function.name);
            let aws = &deployment.aws;
            let fix = format!(
                "{aws} lambda get-function-configuration --function-name {name} --query '{{Variables: Environment.Variables}}' --output json > variables.json\n\
                 $EDITOR variables.json      # remove \"IDEMPOTENCY_DISABLED\"\n\
                 {aws} lambda update-function-configuration --function-name {name} --environment file://variables.json"
            );
            // An alias runs a version, which keeps its variables.
            let qualifier = qualifier.filter(|qualifier| *qualifier != "$LATEST");
            let publish = qualifier.map(|qualifier| {
                let then = if qualifier.bytes().all(|byte| byte.is_ascii_digit()) {
                    format!("echo $version      # invoke the new version, not {qualifier}")
                } else {
                    format!("{aws} lambda update-alias --function-name {name} --name {qualifier} --function-version $version")
                };
                format!(
                    "\n{aws} lambda wait function-updated --function-name {name}\n\
                     version=$({aws} lambda publish-version --function-name {name} --query Version --output text)      # with the code of $LATEST\n\
                     {then}"
                )
            });
            let fix = fix + &publish.unwrap_or_default();
            danger(&function.name, "IDEMPOTENCY_DISABLED is on", why, fix)
        }))
    })
}

pub(super) fn missing_action(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |function| {
        let missing = function.missing_actions.as_ref()?;
        Some((!missing.is_empty()).then(|| {
            let what = format!("its role may not {} the table", missing.join(", "));
            let why = "Without a completion, the effect repeats with each delivery; without a group's action, each record takes its own request.";
            let fix = "Attach infra/policy.yaml with the function's adapter to its role. Of one that is confined to a namespace, \
                        give --namespace here";
            danger(&function.name, what, why, fix)
        }))
    })
}

pub(super) fn async_destination(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |function| {
        let destination = function.asynchronous.as_ref()?;
        Some(destination.is_none().then(|| {
            let why = "An event is dropped after its last retry, and nothing tells what it was.";
            let (aws, name) = (&deployment.aws, &function.name);
            let fix = format!(
                "{aws} lambda update-function-event-invoke-config --function-name {name} \
                 --destination-config 'OnFailure={{Destination=QUEUE_ARN}}'      # put-function-event-invoke-config where it has none"
            );
            warning(name, "asynchronous events that fail go nowhere", why, fix)
        }))
    })
}

pub(super) fn async_retention(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |function| {
        let (kept, words) = kept(deployment, function)?;
        let destination = function.asynchronous.as_ref()?.as_ref()?;
        let theirs = destination.retention?;
        let longest = theirs + LONGEST_RETRIES;
        Some((kept < longest).then(|| {
            let what = format!(
                "outcomes are kept for {words}, and {} keeps failed events for {} after retries of up to {}",
                destination.name,
                length(theirs),
                length(LONGEST_RETRIES)
            );
            let why =
                "An event that is sent again from there after its outcome has expired runs again.";
            let fix = format!(
                "{}\nWhere its events come from SNS, which tries for 23 days: {}",
                keep_for(longest),
                keep_for(theirs + LONGEST_RETRIES_OF_SNS)
            );
            danger(&function.name, what, why, fix)
        }))
    })
}

pub(super) fn mapping_disabled(deployment: &Deployment) -> Vec<Verdict> {
    each_mapping(deployment, |function, mapping| {
        Some((!mapping.enabled?).then(|| {
            let why = "Nothing is read from its source, until the source forgets it.";
            let what = format!("its mapping of {} is disabled", name(mapping));
            let fix = update(deployment, mapping, "--enabled");
            warning(&function.name, what, why, fix)
        }))
    })
}

pub(super) fn item_failures(deployment: &Deployment) -> Vec<Verdict> {
    each_mapping(deployment, |function, mapping| {
        Some((!mapping.reports_item_failures?).then(|| {
            let what = format!(
                "its mapping of {} doesn't read batchItemFailures",
                name(mapping)
            );
            let why = "Lambda takes the reply for a success: messages that failed are deleted.";
            let fix = if matches!(mapping.source, Source::Other(_)) {
                "FunctionResponseTypes: [ReportBatchItemFailures], which Kafka has in provisioned mode alone; or \
                 settings.without_item_failures in the code, and --ignore item-failures here, with this --function alone"
                    .to_owned()
            } else {
                let types = "--function-response-types ReportBatchItemFailures";
                update(deployment, mapping, types)
            };
            danger(&function.name, what, why, fix)
        }))
    })
}

/// The least bound of a queue's mapping that Lambda takes, whether of executions or of pollers.
const LEAST_BOUND: u32 = 2;

/// The executions that a queue's mapping takes by that bound.
fn least(mapping: &Mapping) -> u32 {
    if mapping.provisioned {
        LEAST_BOUND * EXECUTIONS_OF_A_POLLER
    } else {
        LEAST_BOUND
    }
}

pub(super) fn concurrency(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |function| {
        let reserved = function.reserved_concurrency?;
        let is_queue = |mapping: &&Mapping| matches!(mapping.source, Source::Queue(_));
        let mappings: Vec<&Mapping> = function.mappings.iter().filter(is_queue).collect();
        let is_unbounded = |mapping: &&Mapping| mapping.maximum_concurrency == Some(None);
        let is_unbounded = mappings.iter().any(is_unbounded);
        let bound = |mapping: &&Mapping| mapping.maximum_concurrency.flatten().map(u64::from);
        let total = if is_unbounded {
            u64::MAX
        } else {
            mappings.iter().map(bound).sum::<Option<u64>>()?
        };
        // One that is unbounded before the largest bound.
        let size = |mapping: &&&Mapping| {
            let bound = mapping.maximum_concurrency;
            (bound == Some(None), bound.flatten())
        };
        let largest = mappings.iter().max_by_key(size)?;
        let share = reserved / u32::try_from(mappings.len()).unwrap_or(u32::MAX);
        Some((total > u64::from(reserved)).then(|| {
            let names: Vec<&str> = mappings.iter().map(|mapping| name(mapping)).collect();
            let takes = match (is_unbounded, names.len()) {
                (true, _) => "as many as they can".to_owned(),
                (false, 1) => total.to_string(),
                (false, _) => format!("{total} together"),
            };
            let what = format!(
                "{reserved} executions are reserved, and its queues ({}) take {takes}",
                names.join(", ")
            );
            let why = "Messages that are throttled use up their receives, and land in the dead-letter queue without a run.";
            let share = share.max(least(largest));
            // Lambda refuses a bound of executions beside one of pollers.
            let bound = if largest.provisioned {
                let pollers = share / EXECUTIONS_OF_A_POLLER;
                format!("--provisioned-poller-config MaximumPollers={pollers}")
            } else {
                format!("--scaling-config MaximumConcurrency={share}")
            };
            let together: u32 = mappings.iter().map(|mapping| least(mapping)).sum();
            let rest = if reserved < together {
                format!("Reserve {together} or more: no bounds of its queues are less")
            } else {
                "The bounds of all its queues together: at most what is reserved".to_owned()
            };
            let fix = format!("{}\n{rest}", update(deployment, largest, &bound));
            warning(&function.name, what, why, fix)
        }))
    })
}

fn name(mapping: &Mapping) -> &str {
    match &mapping.source {
        Source::Queue(queue) => &queue.name,
        Source::Stream(stream) => &stream.name,
        Source::Other(name) => name,
    }
}
