use std::sync::atomic::{AtomicUsize, Ordering};

use lambda_idempotency::testing::TestRecord;
use lambda_idempotency::{Idempotency, kinesis, store::MemoryStore};
use lambda_runtime::Error;
use tower::Service;

#[tokio::test]
async fn what_was_booked_after_a_failure_is_not_booked_again() -> Result<(), Error> {
    static BOOKED: AtomicUsize = AtomicUsize::new(0);
    async fn book(message: kinesis::Message<i64>) -> Result<(), &'static str> {
        if message.body == 0 {
            return Err("nothing to book");
        }
        BOOKED.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    let once = Idempotency::builder(MemoryStore::new())
        .namespace("stock")
        .build()?;
    let mut worker = kinesis::BatchLayer::new(once).handler(book);

    let records = [
        TestRecord::json(1, &0)?.key("mate"),
        TestRecord::json(2, &7)?.key("tea"),
    ];
    // Lambda delivers all from the failure on again.
    for _ in 0..2 {
        let event = TestRecord::kinesis(records.clone())?;
        let failures = worker.call(event).await?.batch_item_failures;
        assert_eq!(failures, ["1"]);
    }
    assert_eq!(BOOKED.load(Ordering::SeqCst), 1);
    Ok(())
}
