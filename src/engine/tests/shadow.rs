//! Shadow claims, as their records keep them.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::*;
use crate::idempotency::Verdict;

fn observing() -> Idempotency {
    let refusing = Replies::default()
        .on_commit(|| Err(StoreError::Rejected("no transaction is taken".into())));
    bench(refusing, |builder| builder.observe(true)).once
}

/// The error in the shadow record, which was released.
async fn last_error(once: &Idempotency) -> Option<String> {
    let record = record(once).await.unwrap();
    assert!(record.is_released());
    record.last_error
}

#[tokio::test(start_paused = true)]
async fn a_shadow_claim_that_is_released_names_the_kind_of_failure() {
    let once = observing();
    let failing = once.run(key(), payload(), async |_| Err::<i32, _>(std::fmt::Error));
    failing.await.unwrap_err();
    assert_eq!(last_error(&once).await.as_deref(), Some("core::fmt::Error"));

    let once = observing();
    let panicking = once.run(key(), payload(), async |_| -> Result<i32, Infallible> {
        panic!("in the handler")
    });
    let panicked = AssertUnwindSafe(panicking).catch_unwind().await;
    assert!(panicked.is_err());
    assert_eq!(last_error(&once).await.as_deref(), Some("panic"));

    let once = observing();
    write(&once).await.unwrap_err();
    assert_eq!(last_error(&once).await.as_deref(), Some("not committed"));

    let once = observing();
    let done = async |_| Ok::<_, Infallible>(1);
    let released = once.run_with(key(), payload(), done, |_| Verdict::Release);
    assert_eq!(released.await.unwrap(), Outcome::Unprotected(1));
    assert_eq!(last_error(&once).await, None);
}
