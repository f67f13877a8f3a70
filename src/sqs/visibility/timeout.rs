//! Computes the queue's URL and the visibility timeout. Pure.

use std::collections::HashMap;
use std::time::Duration;

use crate::protocol::clock::EpochMillis;

/// The longest that SQS hides a message, from its receive on
/// ([`ChangeMessageVisibility`](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html)).
const LONGEST: u64 = 43_200;

/// The longest that Lambda gathers messages for one batch
/// ([`MaximumBatchingWindowInSeconds`](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html)).
const BATCHING_WINDOW: Duration = Duration::from_mins(5);

/// Makes the URL of `arn:aws:sqs:region:account:name`; `None` in a partition whose endpoints are
/// not known here.
pub(super) fn queue_url(arn: &str) -> Option<String> {
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
pub(super) fn received_at(attributes: &HashMap<String, String>, now: EpochMillis) -> EpochMillis {
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
pub(super) fn seconds(left: Duration, held: Duration) -> Option<i32> {
    let allowed = LONGEST.saturating_sub(whole_seconds(held));
    let seconds = whole_seconds(left).min(allowed);
    i32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
}

/// Rounds up: a message that comes back a moment too early is reported once more.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_follows_from_the_arn() {
        for (arn, url) in [
            (
                "arn:aws:sqs:eu-central-1:123456789012:payments",
                Some("https://sqs.eu-central-1.amazonaws.com/123456789012/payments"),
            ),
            (
                "arn:aws-cn:sqs:cn-north-1:123456789012:payments.fifo",
                Some("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/payments.fifo"),
            ),
            ("arn:aws-iso:sqs:us-iso-east-1:123456789012:payments", None),
            ("arn:aws:sns:eu-central-1:123456789012:payments", None),
            ("arn:aws:sqs:eu-central-1:123456789012", None),
            ("arn:aws:sqs:eu-central-1:123456789012:a:b", None),
            ("arn:aws:sqs::123456789012:payments", None),
            ("payments", None),
            ("", None),
        ] {
            assert_eq!(queue_url(arn).as_deref(), url, "{arn}");
        }
    }

    #[test]
    fn seconds_are_rounded_up_and_bounded() {
        let hours = Duration::from_hours;
        for (left, held, expected) in [
            (Duration::ZERO, Duration::ZERO, None),
            (Duration::from_nanos(1), Duration::ZERO, Some(1)),
            (Duration::from_millis(1_001), Duration::ZERO, Some(2)),
            (Duration::from_mins(15), Duration::from_mins(1), Some(900)),
            (hours(13), Duration::ZERO, Some(43_200)),
            (hours(13), Duration::from_millis(500), Some(43_199)),
            (hours(2), hours(11), Some(3_600)),
            (hours(2), hours(12), None),
            (Duration::MAX, Duration::MAX, None),
        ] {
            assert_eq!(seconds(left, held), expected, "{left:?} {held:?}");
        }
    }

    #[test]
    fn the_receive_is_dated_by_the_event_where_it_was_the_first() {
        let now = EpochMillis(1_763_640_300_000);
        let at = |count: &str| {
            let attributes = [
                ("ApproximateReceiveCount", count),
                ("ApproximateFirstReceiveTimestamp", "1763640000150"),
            ];
            received_at(
                &attributes.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
                now,
            )
        };
        assert_eq!(at("1"), EpochMillis(1_763_640_000_150));
        assert_eq!(at("2"), EpochMillis(1_763_640_000_000));
        assert_eq!(
            received_at(&HashMap::new(), now),
            EpochMillis(1_763_640_000_000)
        );
    }
}
