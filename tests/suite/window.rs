//! A window of keys as its own store: cheap, and lossy by its name.

use std::fmt;
use std::io::Error as HandlerError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lambda_idempotency::sqs::{BatchLayer, Order};
use lambda_idempotency::store::Store;
use lambda_idempotency::window::Window;
use lambda_idempotency::{Error, Fingerprint, Idempotency, Key, Omission, Outcome};
use tower::Service;

use crate::metrics::Counted;
use crate::support::events::{batch, message};

fn engine(store: &(impl Store + Clone)) -> Idempotency {
    let builder = Idempotency::builder(store.clone()).namespace("lossy");
    builder.build().unwrap()
}

fn lossy() -> impl Store + Clone + fmt::Debug {
    Window::lossy(10_000, 0.001).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_succeeded_runs_once_and_what_failed_runs_again() {
    let once = engine(&lossy());
    let run = async |payload: &'static [u8], result: Result<u8, HandlerError>| {
        let key = Key::new("count", "1");
        let work = async move |_| result;
        once.run(key, Fingerprint::bytes(payload), work).await
    };
    let failed = run(b"a", Err(HandlerError::other("down"))).await;
    assert_matches!(failed, Err(Error::Handler(_)));
    let done = run(b"a", Ok(7)).await.unwrap();
    assert_matches!(done, Outcome::Executed(7));
    for payload in [b"a", b"b"] {
        let again = run(payload, Ok(8)).await;
        let Err(Error::OutcomeOmitted { reason, .. }) = again else {
            panic!("{again:?}")
        };
        assert_eq!(reason, Omission::Forgotten);
    }
}

#[tokio::test(start_paused = true)]
async fn two_at_once_run_once() {
    let once = engine(&lossy());
    let ran = AtomicUsize::new(0);
    let run = || {
        once.run(Key::new("count", "1"), None, async |_| {
            ran.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            Ok::<_, HandlerError>(())
        })
    };
    let (first, second) = tokio::join!(run(), run());
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_takes_what_is_known_for_done() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let mut worker = BatchLayer::new(engine(&lossy()))
        .operation("count")
        .key(|number: &u64| number.to_string())
        .handler(move |message: lambda_idempotency::sqs::Message<u64>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let is_down = message.body == 2 && counted.load(Ordering::SeqCst) < 4;
            async move {
                if is_down {
                    return Err(HandlerError::other("down"));
                }
                Ok(())
            }
        });
    let mut reported = Vec::new();
    for _ in 0..3 {
        let numbers = (1..=3).map(|number| message(&format!("m-{number}"), number.to_string()));
        let reply = worker.call(batch(numbers)).await.unwrap();
        let failures = reply.batch_item_failures.into_iter();
        reported.extend(failures.map(|failure| failure.item_identifier));
    }
    assert_eq!(reported, ["m-2"]);
    assert_eq!(ran.load(Ordering::SeqCst), 4, "three, and the second again");
}

#[tokio::test(start_paused = true)]
async fn another_payload_of_a_key_is_a_duplicate_in_one_batch_too() {
    for order in [Order::Unordered, Order::Batch] {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let runs = Arc::clone(&ran);
        let mut worker = BatchLayer::new(engine(&lossy()))
            .key(|number: &u64| (number / 4).to_string())
            .settings(|settings| settings.order = order)
            .handler(move |message: lambda_idempotency::sqs::Message<u64>| {
                runs.lock().unwrap().push(message.body);
                async { Ok::<_, HandlerError>(()) }
            });
        let numbers = (1..=4).map(|number| message(&format!("m-{number}"), number.to_string()));
        let reply = worker.call(batch(numbers)).await.unwrap();
        assert_eq!(reply.batch_item_failures.len(), 0, "{order:?}");
        let mut ran = ran.lock().unwrap().clone();
        ran.sort_unstable();
        assert_eq!(ran, [1, 4], "the first of each key");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_failed_for_good_is_reported_at_each_delivery() {
    let mut worker = BatchLayer::new(engine(&lossy()))
        .key(|number: &u64| number.to_string())
        .permanent(|_: &HandlerError| true)
        .handler(|_: lambda_idempotency::sqs::Message<u64>| async {
            Err::<(), _>(HandlerError::other("no such line"))
        });
    for delivery in 1..=3 {
        let reply = worker
            .call(batch([message("m-1", "1".to_owned())]))
            .await
            .unwrap();
        assert_eq!(reply.batch_item_failures.len(), 1, "delivery {delivery}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_loses_no_more_than_its_rate_and_counts_what_it_was_not_certain_of() {
    let counted = Counted::new();
    let keys = 4_000;
    let rate = 0.01;
    let store = Window::lossy(keys, rate).unwrap();
    let once = engine(&store);
    let mut lost = 0_usize;
    let messages = 5 * keys;
    for message in 0..messages {
        let ran = once.run(Key::new("count", message.to_string()), None, async |_| {
            Ok::<_, HandlerError>(())
        });
        match ran.await {
            Ok(_) => {}
            Err(Error::OutcomeOmitted { .. }) => lost += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(lost > 0, "it is lossy");
    assert!(lost <= messages / 60, "{lost} of {messages}");
    let counts = counted.take();
    let lost = u64::try_from(lost).unwrap();
    assert_eq!(counts["lossy_drops"], lost);
    assert_eq!(counts["replays"], lost, "{counts:?}");
    assert!(counts.contains_key("lossy_rate"));
    assert!(format!("{store:?}").contains("claims: 0"), "{store:?}");
}
