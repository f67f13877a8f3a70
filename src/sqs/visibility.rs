//! Hides messages that are in flight elsewhere until the lease of the other attempt is over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lambda_events::event::sqs::SqsMessage;
use aws_sdk_sqs::Client;
use tokio::time::{Instant, timeout_at};

use crate::batch::Deferral;
use crate::protocol::clock::{Clock, EpochMillis, SystemClock};
use crate::sqs::{BatchLayer, code_of};

#[cfg(test)]
mod tests;

/// Keeps a message that is in flight elsewhere hidden until the other attempt's lease is over.
///
/// Such a message is reported, and comes back when the queue's visibility timeout is over: too
/// early, it is reported once more, and each receive counts towards the `maxReceiveCount` after
/// which it is moved to the dead-letter queue. With this, its visibility timeout is changed to the
/// end of the lease: one [`ChangeMessageVisibility`][api] request for each, in whole seconds,
/// rounded up, and never beyond the 12 hours that SQS allows from the receive on.
///
/// Off by default, best effort: a request that fails is logged, and the message comes back as
/// without it. The function needs `sqs:ChangeMessageVisibility` on the queue. Give the client the
/// region of the queue, and short timeouts.
///
/// ```no_run
/// use std::time::Duration;
///
/// use lambda_idempotency::{Idempotency, sqs, store::MemoryStore};
///
/// # fn start(config: aws_sdk_sqs::Config) -> Result<(), Box<dyn std::error::Error>> {
/// let once = Idempotency::builder(MemoryStore::new()).namespace("payments").build()?;
/// let worker = sqs::BatchLayer::new(once)
///     .visibility(aws_sdk_sqs::Client::from_conf(config), |visibility| {
///         visibility.limit = Duration::from_secs(60);
///     })
///     .handler(|message: sqs::Message<u64>| async move { Ok::<_, std::io::Error>(()) });
/// # Ok(()) }
/// ```
///
/// Leave it out where handlers outlive their deadline ([`AtDeadline::GoOn`](crate::AtDeadline)):
/// their leases are renewed for a minute at a time, so that the message comes back each minute.
///
/// `aws-sdk-sqs` comes without its default features, which pull a second TLS stack: an HTTPS client
/// is there where the feature `dynamodb` is on, or where you switch on `default-https-client` of
/// `aws-sdk-sqs`.
///
/// [api]: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html
#[derive(Clone)]
pub struct Visibility {
    client: Client,
    /// The queue's URL, where it doesn't follow from a message's `eventSourceARN`: in its own
    /// partition, or on an emulator.
    pub queue_url: Option<String>,
    /// The longest time that a message stays hidden, for a queue whose `maxReceiveCount` allows
    /// more receives than one for each lease. Default: until the lease is over.
    pub limit: Duration,
}

/// Keeps what a request needs of a message, taken before its handler gets it.
struct Receipt {
    message_id: String,
    handle: Option<String>,
    queue_url: Option<String>,
    /// The time of the receive, or an earlier one.
    received_at: EpochMillis,
}

impl Visibility {
    fn new(client: Client) -> Self {
        Self {
            client,
            queue_url: None,
            limit: Duration::MAX,
        }
    }

    fn receipt(&self, message: &SqsMessage) -> Receipt {
        let of_arn = || queue_url(message.event_source_arn.as_deref()?);
        Receipt {
            message_id: message.message_id.clone().unwrap_or_default(),
            handle: message.receipt_handle.clone(),
            queue_url: self.queue_url.clone().or_else(of_arn),
            received_at: received_at(&message.attributes, SystemClock.now()),
        }
    }

    fn deferral(&self, message: &SqsMessage) -> Deferral {
        let (visibility, receipt) = (self.clone(), self.receipt(message));
        Box::new(move |free_at, until| {
            Box::pin(async move { visibility.hide(&receipt, free_at, until).await })
        })
    }

    /// Hides the message until `free_at`.
    async fn hide(&self, receipt: &Receipt, free_at: Instant, until: Instant) {
        let left = free_at.saturating_duration_since(Instant::now());
        let left = left.min(self.limit);
        let held = SystemClock.now().saturating_since(receipt.received_at);
        let Some(seconds) = seconds(left, held) else {
            return;
        };
        let message_id = &receipt.message_id;
        match self.change(receipt, seconds, until).await {
            Ok(()) => tracing::debug!(event = "hidden", message_id, seconds, "sqs"),
            Err(error) => tracing::warn!(event = "hide_failed", message_id, error, "sqs"),
        }
    }

    async fn change(&self, receipt: &Receipt, seconds: i32, until: Instant) -> Result<(), String> {
        if Instant::now() >= until {
            return Err("no time was left to ask the queue".to_owned());
        }
        let url = receipt.queue_url.as_deref();
        let url = url.ok_or("the queue's URL does not follow from its ARN: set it")?;
        let handle = receipt.handle.as_deref();
        let handle = handle.ok_or("the message has no receipt handle")?;
        let request = self
            .client
            .change_message_visibility()
            .queue_url(url)
            .receipt_handle(handle)
            .visibility_timeout(seconds)
            .send();
        // Boxed: the SDK's futures are large.
        match timeout_at(until, Box::pin(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(code_of(&error)),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }
}

impl<T, E> BatchLayer<T, E> {
    /// Keeps messages that are in flight elsewhere hidden until the other attempt's lease is over;
    /// [`Visibility`] says how, and has the settings. Default: they come back when the queue's
    /// visibility timeout is over.
    #[cfg_attr(docsrs, doc(cfg(feature = "visibility")))]
    pub fn visibility(self, client: Client, change: impl FnOnce(&mut Visibility)) -> Self {
        let mut visibility = Visibility::new(client);
        change(&mut visibility);
        self.deferring(Arc::new(move |message: &SqsMessage| {
            visibility.deferral(message)
        }))
    }
}

debug_fields!([] Visibility { queue_url });

/// The longest that SQS hides a message, from its receive on
/// ([`ChangeMessageVisibility`](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html)).
const LONGEST: u64 = 43_200;

/// The longest that Lambda gathers messages for one batch
/// ([`MaximumBatchingWindowInSeconds`](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html)).
const BATCHING_WINDOW: Duration = Duration::from_mins(5);

/// Makes the URL of `arn:aws:sqs:region:account:name`; `None` in a partition whose endpoints are
/// not known here.
fn queue_url(arn: &str) -> Option<String> {
    let mut parts = arn.split(':');
    let mut part = || parts.next().filter(|part| !part.is_empty());
    let (scheme, partition, service) = (part()?, part()?, part()?);
    let (region, account, name) = (part()?, part()?, part()?);
    if (scheme, service) != ("arn", "sqs") || part().is_some() {
        return None;
    }
    let domain = match partition {
        "aws" | "aws-us-gov" => "amazonaws.com",
        "aws-cn" => "amazonaws.com.cn",
        _ => return None,
    };
    Some(format!("https://sqs.{region}.{domain}/{account}/{name}"))
}

/// Dates the receive of a message, or gives an earlier time: the event has the time of the first
/// receive alone.
fn received_at(attributes: &HashMap<String, String>, now: EpochMillis) -> EpochMillis {
    let number = |name| {
        attributes
            .get(name)
            .and_then(|text: &String| text.parse().ok())
    };
    match (
        number("ApproximateReceiveCount"),
        number("ApproximateFirstReceiveTimestamp"),
    ) {
        (Some(1), Some(first)) => EpochMillis(first),
        _ => now - BATCHING_WINDOW,
    }
}

/// Computes the visibility timeout, in seconds from now, of a message that must stay hidden for the
/// time that is `left`, and was received `held` ago; `None` where the timeout stays as it is.
fn seconds(left: Duration, held: Duration) -> Option<i32> {
    let allowed = LONGEST.saturating_sub(whole_seconds(held));
    let seconds = whole_seconds(left).min(allowed);
    i32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
}

/// Rounds up: a message that comes back a moment too early is reported once more.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0))
}
