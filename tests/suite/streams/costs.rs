//! Requests to the table for a batch of records, with and without the memory of what was met.

use lambda_idempotency::window::Window;

use super::*;

async fn bench(server: &Server) -> (Proxy, Ledger, Idempotency) {
    let proxy = Proxy::before(server).await;
    let once = engine(proxy.server()).await;
    proxy.take_total();
    (proxy, Ledger::default(), once)
}

/// So many records, each of its own partition key.
fn of_many_keys(count: usize) -> Vec<Value> {
    let of_key = |n| record(n, &format!("sku-{n}"), &format!("m-{n:03}"));
    (1..=count).map(of_key).collect()
}

on_each_server!(new_records_of_many_keys_take_two_requests_for_as_many_as_run_side_by_side);
async fn new_records_of_many_keys_take_two_requests_for_as_many_as_run_side_by_side(
    server: Server,
) {
    for (count, groups) in [(1, 1), (10, 1), (25, 3), (26, 3), (100, 10)] {
        let (proxy, ledger, once) = bench(&server).await;
        let mut worker = booking(&once, &ledger);
        assert_eq!(deliver(&mut worker, of_many_keys(count)).await, None);
        assert_eq!(ledger.take().len(), count);
        let total = proxy.take_total();
        assert!(total <= 2 * groups, "{count} records: {total}");
    }
}

on_each_server!(records_of_one_key_take_two_requests_each_and_one_when_they_come_again);
async fn records_of_one_key_take_two_requests_each_and_one_when_they_come_again(server: Server) {
    for count in [1_usize, 10, 25, 26, 60] {
        let (proxy, ledger, once) = bench(&server).await;
        let mut worker = booking(&once, &ledger);
        let records = || (1..=count).map(|n| record(n, "tea", &format!("m-{n:03}")));
        assert_eq!(deliver(&mut worker, records()).await, None);
        assert_eq!(ledger.take().len(), count);
        // Each is claimed when the one before it has ended.
        assert!(proxy.take_total() <= 2 * count, "{count} records");
        // It is read, or its claim is refused, when the one before it has ended.
        for mut again in [worker, booking(&once, &ledger)] {
            assert_eq!(deliver(&mut again, records()).await, None);
            assert_eq!(ledger.take(), NOTHING);
            assert_eq!(proxy.take_total(), count);
        }
    }
}

on_each_server!(what_this_process_has_met_is_read_first);
async fn what_this_process_has_met_is_read_first(server: Server) {
    let (proxy, ledger, once) = bench(&server).await;
    let mut worker = booking(&once, &ledger);
    ledger.fail_only(["m-001"]);
    let first = deliver(&mut worker, of_many_keys(10)).await;
    assert_eq!(first, Some(number(1)));
    assert_eq!(ledger.take().len(), 9);
    proxy.take_total();

    ledger.fail_only([]);
    assert_eq!(deliver(&mut worker, of_many_keys(10)).await, None);
    assert_eq!(ledger.take(), ["m-001"]);
    let counts = proxy.take_counts();
    let total: usize = counts.values().sum();
    // The read of all ten; claim and completion of the one that failed.
    assert_eq!((counts["BatchGetItem"], total), (1, 3), "{counts:?}");
}

on_each_server!(what_a_window_has_met_is_read_first_by_every_layer_that_shares_it);
async fn what_a_window_has_met_is_read_first_by_every_layer_that_shares_it(server: Server) {
    let (proxy, ledger, once) = bench(&server).await;
    let window = Window::new(100_000);
    let worker = || {
        let ledger = ledger.clone();
        kinesis::BatchLayer::new(once.clone())
            .operation("book")
            .key(|movement: &Movement| movement.movement_id.clone())
            .settings(|settings| {
                let own = format!("{:?}", settings.window);
                assert!(own.contains("keys: 32768"), "{own}");
                settings.window = window.clone();
            })
            .handler(move |message: kinesis::Message<Movement>| {
                let booked = ledger.book(&message.body.movement_id);
                async move { booked }
            })
    };
    assert_eq!(deliver(&mut worker(), of_many_keys(100)).await, None);
    assert_eq!(ledger.take().len(), 100);
    proxy.take_total();
    // The function ran out of time after its last handler, so that the whole batch comes again.
    assert_eq!(deliver(&mut worker(), of_many_keys(100)).await, None);
    assert_eq!(ledger.take(), NOTHING);
    let counts = proxy.take_counts();
    assert_eq!(
        counts.keys().collect::<Vec<_>>(),
        ["BatchGetItem"],
        "{counts:?}"
    );
    assert_eq!(counts["BatchGetItem"], 10, "{counts:?}");
}

on_each_server!(without_that_memory_the_refused_claims_come_first);
async fn without_that_memory_the_refused_claims_come_first(server: Server) {
    let (proxy, ledger, once) = bench(&server).await;
    let first = deliver(&mut booking(&once, &ledger), of_many_keys(10)).await;
    assert_eq!(first, None);
    assert_eq!(ledger.take().len(), 10);
    proxy.take_total();

    let mut elsewhere = booking(&once, &ledger);
    assert_eq!(deliver(&mut elsewhere, of_many_keys(10)).await, None);
    assert_eq!(ledger.take(), NOTHING);
    let counts = proxy.take_counts();
    let of = |operation: &str| counts.get(operation).copied().unwrap_or_default();
    let seen = (
        of("BatchExecuteStatement"),
        of("BatchGetItem"),
        counts.len(),
    );
    assert_eq!(seen, (1, 1, 2), "{counts:?}");
}
