//! Asks SQS for a queue and its dead-letter queue.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use serde::Deserialize;

use super::{Asking, service};
use crate::doctor::facts::{DeadLetters, Destination, Queue};

type Attributes = HashMap<Name, String>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RedrivePolicy {
    dead_letter_target_arn: String,
    /// A number, or its text.
    max_receive_count: serde_json::Value,
}

pub(super) async fn ask(asking: &mut Asking, arn: &str) -> Queue {
    let name = arn.rsplit(':').next().unwrap_or(arn).to_owned();
    let mut queue = Queue {
        fifo: name.to_ascii_lowercase().ends_with(".fifo"),
        name,
        ..Queue::default()
    };
    let Some(attributes) = attributes(asking, arn).await else {
        return queue;
    };
    queue.visibility = seconds(&attributes, &Name::VisibilityTimeout);
    queue.retention = seconds(&attributes, &Name::MessageRetentionPeriod);
    let policy = attributes
        .get(&Name::RedrivePolicy)
        .filter(|text| !text.is_empty());
    queue.dead_letters = match policy.map(|text| serde_json::from_str::<RedrivePolicy>(text)) {
        None => Some(None),
        Some(Ok(policy)) => Some(Some(dead_letters(asking, policy).await)),
        Some(Err(error)) => {
            asking.not_asked(
                format!("redrive policy of {}", queue.name),
                error.to_string(),
            );
            None
        }
    };
    queue
}

async fn dead_letters(asking: &mut Asking, policy: RedrivePolicy) -> DeadLetters {
    let destination = destination(asking, &policy.dead_letter_target_arn).await;
    let count = policy.max_receive_count;
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok());
    DeadLetters {
        destination,
        max_receive_count: count.and_then(|count| u32::try_from(count).ok()),
    }
}

/// Asks for the time for which a destination keeps what is sent there, where it is a queue.
pub(super) async fn destination(asking: &mut Asking, arn: &str) -> Destination {
    let attributes = match service(arn) {
        "sqs" => attributes(asking, arn).await.unwrap_or_default(),
        _ => Attributes::default(),
    };
    Destination {
        name: arn.rsplit(':').next().unwrap_or(arn).to_owned(),
        retention: seconds(&attributes, &Name::MessageRetentionPeriod),
    }
}

async fn attributes(asking: &mut Asking, arn: &str) -> Option<Attributes> {
    let client = Client::new(&asking.config);
    let mut parts = arn.rsplit(':');
    let (name, account) = (parts.next()?, parts.next()?);
    let what = format!("queue {name}");
    let find = client.get_queue_url().queue_name(name);
    let found = find.queue_owner_aws_account_id(account).send().await;
    let found = asking.answered(&what, "sqs:GetQueueUrl", found)?;
    let read = client.get_queue_attributes().queue_url(found.queue_url?);
    let read = read.attribute_names(Name::All).send().await;
    asking
        .answered(what, "sqs:GetQueueAttributes", read)?
        .attributes
}

fn seconds(attributes: &Attributes, name: &Name) -> Option<Duration> {
    let count = attributes.get(name)?.parse().ok()?;
    Some(Duration::from_secs(count))
}
