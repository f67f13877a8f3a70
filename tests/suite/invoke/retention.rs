//! The retention of an event's answer, by the event's source.

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::sqs;

use super::sources::{BUS, SNS, parsed};
use super::*;
use crate::secrets::Log;
use crate::support::events::{batch, message};
use crate::support::retention::{days, for_days};

fn any(layer: InvokeLayer<Value, SettleError>) -> impl Function + use<> {
    layer.handler(|_| async { Ok(()) })
}

on_each_server!(answers_are_kept_as_long_as_their_source_may_deliver_again);
async fn answers_are_kept_as_long_as_their_source_may_deliver_again(server: Server) {
    let table = server.idempotency_table().await;
    let once = builder(DynamoDbStore::new(server.client(), &table));
    let once = once.build().unwrap();
    invoke(&any(InvokeLayer::sns(once.clone())), &parsed(SNS))
        .await
        .unwrap();
    invoke(&any(InvokeLayer::event_bridge(once.clone())), &parsed(BUS))
        .await
        .unwrap();
    let direct = settling(&once, &Runs::default());
    invoke(&direct, &settlement("s-1", 5)).await.unwrap();
    let own = settle(&once)
        .retention(|settlement: &Settlement| (settlement.amount > 100).then(|| for_days(90)));
    let own = counting(own, &Runs::default());
    invoke(&own, &settlement("s-2", 500)).await.unwrap();
    invoke(&own, &settlement("s-3", 5)).await.unwrap();
    assert_eq!(days(&server, &table).await, [7, 7, 7, 30, 90]);
}

on_each_server!(a_retention_of_the_engines_own_counts_before_the_sources);
async fn a_retention_of_the_engines_own_counts_before_the_sources(server: Server) {
    let table = server.idempotency_table().await;
    let once = builder(DynamoDbStore::new(server.client(), &table)).retention(for_days(2));
    let once = once.build().unwrap();
    invoke(&any(InvokeLayer::sns(once)), &parsed(SNS))
        .await
        .unwrap();
    assert_eq!(days(&server, &table).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_declared_retention_of_the_source_that_is_longer_is_warned_about_once() {
    for (kept, declared, warnings) in [(None, 14, 1), (None, 7, 0), (Some(30), 14, 0)] {
        let (log, _capture) = Log::capture();
        let once = match kept {
            Some(days) => engine().retention(for_days(days)),
            None => engine(),
        };
        let layer =
            settle(&once).settings(|settings| settings.source_retention = Some(for_days(declared)));
        let function = counting(layer, &Runs::default());
        for id in ["s-1", "s-2"] {
            invoke(&function, &settlement(id, 5)).await.unwrap();
        }
        let text = log.text();
        assert_eq!(
            text.matches("retention_too_short").count(),
            warnings,
            "{text}"
        );
        let words = "for 14 days, and its outcome is kept for 7 days";
        assert_eq!(text.matches(words).count(), warnings, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_warned_about_in_the_same_way() {
    let (log, _capture) = Log::capture();
    let mut worker = sqs::BatchLayer::new(engine())
        .settings(|settings| settings.source_retention = Some(for_days(28)))
        .handler(|_: sqs::Message<u64>| async { Ok::<_, SettleError>(()) });
    for id in ["m-1", "m-2"] {
        worker.call(batch([message(id, "7")])).await.unwrap();
    }
    let text = log.text();
    assert_eq!(text.matches("retention_too_short").count(), 1, "{text}");
    assert!(
        text.contains("for 28 days, and its outcome is kept for 7 days"),
        "{text}"
    );
}
