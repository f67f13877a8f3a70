//! Tests of the module above.

use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

use super::*;

/// A queue that answers no request.
#[derive(Clone, Debug)]
struct Silent;

impl HttpConnector for Silent {
    fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(std::future::pending())
    }
}

fn on_a_silent_queue() -> Visibility {
    let connector = SharedHttpConnector::new(Silent);
    let http =
        http_client_fn(move |_: &HttpConnectorSettings, _: &RuntimeComponents| connector.clone());
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .endpoint_url("http://127.0.0.1:1")
        .region(Region::from_static("eu-central-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
        .retry_config(RetryConfig::disabled())
        .http_client(http);
    Visibility::new(Client::from_conf(config.build()))
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_does_not_answer_is_given_up_in_time() {
    let visibility = on_a_silent_queue();
    let receipt = Receipt {
        message_id: "m-1".to_owned(),
        handle: Some("handle".to_owned()),
        queue_url: Some("http://127.0.0.1:1/payments".into()),
        received_at: EpochMillis(0),
    };
    let (began, left) = (Instant::now(), Duration::from_secs(2));
    let answer = visibility.change(&receipt, 7, began + left).await;
    assert_eq!(answer, Err("no answer in time".to_owned()));
    assert_eq!(began.elapsed(), left);
    let not_asked = visibility.change(&receipt, 7, began + left).await;
    let expected = "no time was left to ask the queue";
    assert_eq!(not_asked, Err(expected.to_owned()));
}

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
