//! Messages in flight elsewhere, and how long they stay hidden.

use std::time::SystemTime;

use lambda_idempotency::{Fingerprint, Key};

use crate::secrets::Log;
use crate::support::QueueApi;

use super::*;

/// Delivers these messages while somebody else works on the payments `p-1` and `p-2` (amount 5) for as long as `lease` says;
/// what the queue was asked, and what was reported.
async fn while_in_flight(
    server: &Server,
    lease: Duration,
    layer: impl Fn(BatchLayer<Payment, PaymentError>) -> BatchLayer<Payment, PaymentError>,
    messages: Vec<Value>,
) -> Vec<String> {
    let store = server.store().await;
    let elsewhere = builder(store.clone())
        .lease(lease)
        .settings(|settings| settings.skew_margin = Duration::ZERO)
        .build()
        .unwrap();
    let once = builder(store).build().unwrap();
    let mut worker = layer(charge(&once)).handler(|_| async { Ok::<_, PaymentError>(()) });
    let work = |payment_id: &'static str| {
        let fingerprint = Fingerprint::json(body(payment_id, 5).as_bytes());
        let key = Key::new("charge", payment_id);
        (key, fingerprint)
    };
    let ((key_1, print_1), (key_2, print_2)) = (work("p-1"), work("p-2"));
    let reported = elsewhere.run(key_1, print_1, |_| async {
        let inner = elsewhere.run(key_2, print_2, |_| async {
            Ok::<_, PaymentError>(deliver(&mut worker, messages).await)
        });
        Ok::<_, PaymentError>(Box::pin(inner).await.unwrap().into_inner())
    });
    Box::pin(reported).await.unwrap().into_inner()
}

/// Received just now, for the first time.
fn fresh(mut message: Value) -> Value {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    message["attributes"]["ApproximateFirstReceiveTimestamp"] =
        json!(since_epoch.as_millis().to_string());
    message
}

fn seconds(request: &Value) -> i64 {
    request["VisibilityTimeout"].as_i64().unwrap()
}

on_each_server!(a_message_in_flight_elsewhere_stays_hidden_until_the_lease_is_over);
async fn a_message_in_flight_elsewhere_stays_hidden_until_the_lease_is_over(server: Server) {
    let queue = QueueApi::answering(None).await;
    let messages = vec![
        payment("m-1", "p-1", 5),
        payment("m-2", "p-2", 5),
        payment("done", "p-3", 5),
        payment("follows", "p-1", 5),
        payment("differs", "p-1", 6),
        message("garbled", "not JSON"),
    ];
    let messages = messages.into_iter().map(fresh).collect();
    let lease = Duration::from_secs(90);
    let reported = while_in_flight(
        &server,
        lease,
        |layer| layer.visibility(queue.client(), |_| {}),
        messages,
    )
    .await;
    assert_eq!(reported, ["m-1", "m-2", "follows", "differs", "garbled"]);

    let mut requests = queue.take();
    requests.sort_by_key(|(_, request)| request["ReceiptHandle"].to_string());
    let handles: Vec<_> = requests
        .iter()
        .map(|(_, request)| request["ReceiptHandle"].clone())
        .collect();
    assert_eq!(
        handles,
        ["handle-of-follows", "handle-of-m-1", "handle-of-m-2"]
    );
    for (operation, request) in requests {
        assert_eq!(operation, "ChangeMessageVisibility");
        let url = "https://sqs.eu-central-1.amazonaws.com/123456789012/payments";
        assert_eq!(request["QueueUrl"], url);
        assert!((80..=90).contains(&seconds(&request)), "{request}");
    }
}

on_each_server!(a_lease_of_days_hides_for_no_longer_than_sqs_allows);
async fn a_lease_of_days_hides_for_no_longer_than_sqs_allows(server: Server) {
    let queue = QueueApi::answering(None).await;
    // Received a second time: nobody knows when, so that the longest batching window is taken off.
    let mut again = payment("m-1", "p-1", 5);
    again["attributes"]["ApproximateReceiveCount"] = json!("2");
    for (limit, expected) in [(None, 42_800..=42_900), (Some(7), 7..=7)] {
        while_in_flight(
            &server,
            Duration::from_hours(48),
            |layer| {
                layer.visibility(queue.client(), |visibility| {
                    visibility.queue_url = Some("http://queue/payments".to_owned());
                    visibility.limit = limit.map_or(visibility.limit, Duration::from_secs);
                })
            },
            vec![again.clone()],
        )
        .await;
        let requests = queue.take();
        assert_eq!(requests.len(), 1);
        let (_, request) = &requests[0];
        assert_eq!(request["QueueUrl"], "http://queue/payments");
        assert!(expected.contains(&seconds(request)), "{request}");
    }
}

on_each_server!(a_queue_that_refuses_is_a_line_in_the_log);
async fn a_queue_that_refuses_is_a_line_in_the_log(server: Server) {
    let (log, _capture) = Log::capture();
    let queue = QueueApi::answering(Some("ReceiptHandleIsInvalid")).await;
    let mut nameless = payment("m-2", "p-2", 5);
    nameless["eventSourceARN"] = json!("payments");
    let messages = vec![
        fresh(payment("m-1", "p-1", 5)),
        fresh(nameless),
        payment("good", "p-3", 5),
    ];
    let lease = Duration::from_secs(90);
    let reported = while_in_flight(
        &server,
        lease,
        |layer| layer.visibility(queue.client(), |_| {}),
        messages,
    )
    .await;
    assert_eq!(reported, ["m-1", "m-2"]);
    assert_eq!(queue.take().len(), 1);
    let log = log.text();
    for said in [
        "hide_failed",
        "ReceiptHandleIsInvalid",
        "does not follow from its ARN",
    ] {
        assert!(log.contains(said), "{said} in {log}");
    }
    assert!(!log.contains("handle-of"), "{log}");
}

on_each_server!(without_the_setting_the_queue_is_asked_nothing);
async fn without_the_setting_the_queue_is_asked_nothing(server: Server) {
    let queue = QueueApi::answering(None).await;
    let messages = vec![fresh(payment("m-1", "p-1", 5))];
    let reported = while_in_flight(&server, Duration::from_secs(90), |layer| layer, messages).await;
    assert_eq!(reported, ["m-1"]);
    assert_eq!(queue.take(), []);
}
