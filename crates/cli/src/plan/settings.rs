//! Settings that depend on each other. Pure.

use std::time::Duration;

use super::QueueArgs;
use super::report::Suggestion;
use crate::doctor::facts::{
    DeadLetters, Deployment, Destination, Function, Mapping, Queue, Source,
};
use crate::doctor::rules::{least_retention, least_visibility, minutes_beyond};
use crate::time::length;

/// The worker that the flags describe; none without its timeout.
pub(super) fn functions(args: &QueueArgs) -> Option<Function> {
    let timeout = args.function_timeout?;
    let queue = Queue {
        name: "QUEUE".to_owned(),
        fifo: args.fifo,
        visibility: args
            .visibility
            .or(Some(least_visibility(timeout, args.window).0)),
        retention: Some(args.queue_retention),
        dead_letters: Some(Some(DeadLetters {
            destination: Destination {
                name: "DEAD_LETTERS".to_owned(),
                retention: Some(args.dead_letter_retention),
            },
            max_receive_count: Some(args.max_receive_count),
        })),
    };
    let mapping = Mapping {
        id: String::new(),
        enabled: None,
        reports_item_failures: None,
        window: Some(args.window),
        maximum_concurrency: Some(args.maximum_concurrency),
        provisioned: false,
        source: Source::Queue(queue),
    };
    Some(Function {
        name: "FUNCTION".to_owned(),
        timeout: Some(timeout),
        reserved_concurrency: args.reserved_concurrency,
        mappings: vec![mapping],
        retention: Some(None),
        ..Function::default()
    })
}

/// The least that fits, for each queue.
pub(super) fn suggestions(deployment: &Deployment) -> Vec<Suggestion> {
    let mut all = Vec::new();
    for function in &deployment.functions {
        for mapping in &function.mappings {
            let Source::Queue(queue) = &mapping.source else {
                continue;
            };
            let mut suggest = |setting, least: Option<Duration>| {
                if let Some(least) = least {
                    all.push(Suggestion {
                        at: queue.name.clone(),
                        setting,
                        at_least: length(least),
                    });
                }
            };
            let times = function.timeout.zip(mapping.window);
            let visibility = times.map(|(timeout, window)| least_visibility(timeout, window).0);
            let dead_letters = queue.dead_letters.as_ref().and_then(Option::as_ref);
            let receives = dead_letters.and_then(|dead_letters| dead_letters.max_receive_count);
            let hidden = queue.visibility.or(visibility);
            suggest("visibility timeout", visibility);
            suggest("retention", least_retention(queue));
            let beyond = |(hidden, receives): (Duration, u32)| {
                let minutes = minutes_beyond(hidden.saturating_mul(receives));
                Duration::from_secs(minutes.saturating_mul(60))
            };
            suggest("failure_retention", hidden.zip(receives).map(beyond));
            // A claim lasts as long as the invocation that holds it, and the margin.
            let margin = deployment.settings.skew_margin;
            suggest("lease", function.timeout.map(|timeout| timeout + margin));
        }
    }
    all
}
