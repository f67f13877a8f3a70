//! Rules of a queue, its dead-letter queue, and the times that must fit together.

use std::time::Duration;

use super::function::each_mapping;
use super::{Verdict, danger, keep_for, kept, minutes_beyond, warning};
use crate::doctor::facts::{Deployment, Destination, Function, Mapping, Queue, Source};
use crate::time::length;

/// The longest that SQS keeps a message.
const LONGEST: Duration = Duration::from_hours(14 * 24);
/// [What AWS asks for](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html).
const TIMEOUTS: u32 = 6;
/// The longest timeout but on [Managed Instances](https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html).
const LONGEST_TIMEOUT: Duration = Duration::from_mins(15);
/// The library's `failure_retention`, unless the code sets another.
const FAILURE_RETENTION: Duration = Duration::from_hours(1);
/// Room for a crash, a deployment and a throttle.
const RECEIVES: u32 = 5;

/// One verdict for each mapping of a queue that says enough.
fn each(
    deployment: &Deployment,
    rule: impl Fn(&Function, &Mapping, &Queue) -> Option<Verdict>,
) -> Vec<Verdict> {
    each_mapping(deployment, |function, mapping| match &mapping.source {
        Source::Queue(queue) => rule(function, mapping, queue),
        _ => None,
    })
}

fn set(deployment: &Deployment, queue: &str, attribute: &str, seconds: u64) -> String {
    let aws = &deployment.aws;
    format!(
        "{aws} sqs set-queue-attributes --queue-url $({aws} sqs get-queue-url --queue-name {queue} --query QueueUrl --output text) \
         --attributes {attribute}={seconds}"
    )
}

/// Returns the least visibility timeout for a function's timeout and a batch window, and how many
/// timeouts are in it. Six times 90 minutes would hide the message of a process that died for 9 hours:
/// on Managed Instances one timeout is enough, and a message that comes back early is in flight.
pub(crate) fn least_visibility(timeout: Duration, window: Duration) -> (Duration, u32) {
    let times = if timeout > LONGEST_TIMEOUT {
        1
    } else {
        TIMEOUTS
    };
    (timeout * times + window, times)
}

pub(super) fn visibility_timeout(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |function, mapping, queue| {
        let (visibility, timeout) = (queue.visibility?, function.timeout?);
        let (least, times) = least_visibility(timeout, mapping.window?);
        Some((visibility < least).then(|| {
            let times = if times == 1 { "" } else { "six times " };
            let what = format!(
                "its visibility timeout is {}, less than {times}the timeout of {} and the batch window: {}",
                length(visibility),
                function.name,
                length(least)
            );
            let why = "A message comes back while its first attempt runs: it uses up a receive, and nothing is done.";
            let name = &queue.name;
            let fix = set(deployment, name, "VisibilityTimeout", least.as_secs());
            warning(name, what, why, fix)
        }))
    })
}

pub(super) fn dead_letter_queue(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |_, _, queue| {
        let dead_letters = queue.dead_letters.as_ref()?;
        Some(dead_letters.is_none().then(|| {
            let why = "A message that can't be done comes again until the queue forgets it; in a FIFO group it stops all others.";
            let fix = format!(
                "RedrivePolicy: {{ deadLetterTargetArn: !GetAtt DeadLetters.Arn, maxReceiveCount: {RECEIVES} }}"
            );
            danger(&queue.name, "it has no dead-letter queue", why, fix)
        }))
    })
}

pub(super) fn receive_count(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |_, _, queue| {
        let dead_letters = queue.dead_letters.as_ref()?.as_ref()?;
        let receives = dead_letters.max_receive_count?;
        Some((receives < RECEIVES).then(|| {
            let what = format!("a message goes to the dead-letter queue after {receives} receives");
            let why = "A crash costs a receive or two until the dead attempt's lease is over: work that would succeed is given up.";
            let fix = format!("RedrivePolicy: {{ …, maxReceiveCount: {RECEIVES} }}");
            warning(&queue.name, what, why, fix)
        }))
    })
}

/// A standard queue counts a message's age from when it was first sent, also in the dead-letter queue;
/// a FIFO queue anew
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html>).
pub(super) fn dead_letter_retention(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |_, _, queue| {
        let dead_letters = queue.dead_letters.as_ref()?.as_ref()?;
        let Destination { name, retention } = &dead_letters.destination;
        let (own, theirs) = (queue.retention?, (*retention)?);
        let is_short = !queue.fifo && theirs <= own && theirs < LONGEST;
        Some(is_short.then(|| {
            let what = format!(
                "its dead-letter queue {name} keeps messages for {}, and the queue itself for {}",
                length(theirs),
                length(own)
            );
            let why = "A standard queue counts from when the message was first sent: one that was moved late is lost at once.";
            let longest = LONGEST.as_secs();
            let fix = set(deployment, name, "MessageRetentionPeriod", longest);
            danger(&queue.name, what, why, fix)
        }))
    })
}

/// Returns the time for which outcomes have to be kept: as long as the queue keeps a message; with a
/// dead-letter queue, twice what both keep (docs/choose.md), since a redrive begins both again.
pub(crate) fn least_retention(queue: &Queue) -> Option<Duration> {
    let own = queue.retention?;
    let Some(dead_letters) = queue.dead_letters.as_ref()? else {
        return Some(own);
    };
    Some(2 * (own + dead_letters.destination.retention?))
}

pub(super) fn retention(deployment: &Deployment) -> Vec<Verdict> {
    each(deployment, |function, _, queue| {
        let (kept, words) = kept(deployment, function)?;
        let least = least_retention(queue)?;
        Some((kept < least).then(|| {
            let what = format!(
                "outcomes are kept for {words}, less than {}: what it keeps, or with a dead-letter queue twice what both keep (docs/choose.md)",
                length(least)
            );
            let why = "A duplicate that comes after its record has expired runs again.";
            danger(&queue.name, what, why, keep_for(least))
        }))
    })
}

pub(super) fn failure_retention(deployment: &Deployment) -> Vec<Verdict> {
    let kept = deployment.settings.failure_retention;
    let kept = kept.unwrap_or(FAILURE_RETENTION);
    each(deployment, |_, _, queue| {
        let dead_letters = queue.dead_letters.as_ref()?.as_ref()?;
        let receives = dead_letters.max_receive_count?;
        let longest = queue.visibility?.saturating_mul(receives);
        Some((kept <= longest).then(|| {
            let what = format!(
                "permanent failures are kept for {}, and {receives} receives take {}",
                length(kept),
                length(longest)
            );
            let why =
                "A message that failed permanently runs again within its queue's own retries.";
            let minutes = minutes_beyond(longest);
            let fix = format!(
                "settings.failure_retention = Duration::from_mins({minutes}) in the code, and --failure-retention {minutes}min here"
            );
            warning(&queue.name, what, why, fix)
        }))
    })
}
