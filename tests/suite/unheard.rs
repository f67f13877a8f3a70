//! A process without a `tracing` subscriber: its first error reaches stderr, once.

use std::convert::Infallible;

use lambda_idempotency::store::MemoryStore;
use lambda_idempotency::testing::{Call, Fault, FaultyStore};
use lambda_idempotency::{Idempotency, Key, sqs};
use tower::Service;

use crate::secrets::Log;
use crate::support::alone;
use crate::support::events::{batch, message};

const TEST: &str = concat!(
    module_path!(),
    "::without_a_subscriber_the_first_error_alone_reaches_stderr"
);

type Engine = Idempotency<FaultyStore<MemoryStore>>;

/// A request that meets a store that is down.
async fn fail(once: &Engine) {
    once.store().inject(Call::Create, Fault::RequestLost);
    let run = once.run(Key::new("charge", "1"), None, |_| async {
        Ok::<_, Infallible>(())
    });
    run.await.unwrap_err();
}

/// A message whose body doesn't decode.
async fn report(once: &Engine) {
    let mut worker = sqs::BatchLayer::new(once.clone())
        .handler(|_: sqs::Message<u64>| async { Ok::<_, Infallible>(()) });
    let reply = worker.call(batch([message("m-1", "seven")])).await.unwrap();
    assert_eq!(reply.batch_item_failures.len(), 1);
}

/// The lines of this library on the stderr of this child.
fn lines_of(child: &str) -> Vec<String> {
    let output = alone::run(TEST, child, &[]);
    let printed = String::from_utf8(output.stderr).unwrap();
    let lines = printed.lines();
    lines
        .filter(|line| line.starts_with("lambda-idempotency: "))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn without_a_subscriber_the_first_error_alone_reaches_stderr() {
    let once = Idempotency::builder(FaultyStore::new(MemoryStore::new())).namespace("shop");
    let once = once.build().unwrap();
    match alone::child().as_deref() {
        None => {}
        Some("engine") => {
            fail(&once).await;
            fail(&once).await;
            return report(&once).await;
        }
        Some("batch") => {
            report(&once).await;
            return fail(&once).await;
        }
        // A process that sets one later hears what comes then, there alone.
        Some("later") => {
            fail(&once).await;
            let (log, _capture) = Log::capture();
            fail(&once).await;
            return assert_eq!(log.text().matches("store_failed").count(), 1);
        }
        Some(_) => {
            let (log, _capture) = Log::capture();
            fail(&once).await;
            return assert_eq!(log.text().matches("store_failed").count(), 1);
        }
    }
    for (child, first) in [
        ("engine", "store_failed: the store could not be reached"),
        ("batch", "reported: m-1: undecodable_body: "),
        ("later", "store_failed: the store could not be reached"),
    ] {
        let lines = lines_of(child);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains(first), "{lines:?}");
        assert!(lines[1].contains("tracing_subscriber::fmt().init()"));
    }
    assert_eq!(lines_of("heard"), [""; 0]);
}
