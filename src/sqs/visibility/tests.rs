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
async fn a_queue_that_does_not_answer_holds_a_batch_up_for_two_seconds_within_its_time() {
    let visibility = on_a_silent_queue();
    let receipt = Receipt {
        message_id: "m-1".to_owned(),
        handle: Some("handle".to_owned()),
        queue_url: Some("http://127.0.0.1:1/payments".into()),
        received_at: EpochMillis(0),
    };
    let seconds = Duration::from_secs;
    for (left, expected) in [
        (None, seconds(2)),
        (Some(seconds(60)), seconds(2)),
        (Some(seconds(1)), seconds(1)),
    ] {
        let began = Instant::now();
        let until = left.map(|left| began + left);
        let answer = visibility.change(&receipt, 7, until).await;
        assert_eq!(answer, Err("no answer in time".to_owned()));
        assert_eq!(began.elapsed(), expected, "{left:?}");
    }
}
