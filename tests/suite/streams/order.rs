//! Records of one partition key run in their order, keys side by side; a failure stops its key alone.

use std::time::Duration;

use tokio::sync::Barrier;
use tokio::time::timeout;

use super::*;

on_each_store!(records_of_a_key_run_in_order_and_keys_side_by_side);
async fn records_of_a_key_run_in_order_and_keys_side_by_side(once: Idempotency) {
    let ledger = Ledger::default();
    let (booked, meeting) = (ledger.clone(), Arc::new(Barrier::new(2)));
    let mut worker = kinesis::BatchLayer::new(once).operation("book").handler(
        move |message: kinesis::Message<Movement>| {
            let (booked, meeting) = (booked.clone(), Arc::clone(&meeting));
            async move {
                let id = message.body.movement_id;
                // The first of each key wait for each other. Later ones are quicker: only an order that is kept keeps them in order.
                if id.ends_with('1') {
                    let met = timeout(Duration::from_secs(20), meeting.wait()).await;
                    met.map_err(|_| Closed)?;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                booked.book(&id)
            }
        },
    );
    let records = [
        record(1, "tea", "tea-1"),
        record(2, "milk", "milk-1"),
        record(3, "tea", "tea-2"),
        record(4, "milk", "milk-2"),
        record(5, "tea", "tea-3"),
    ];
    assert_eq!(deliver(&mut worker, records).await, None);
    let booked = ledger.booked.lock().unwrap();
    let of = |key: &str| -> Vec<_> {
        booked
            .iter()
            .filter(|id| id.starts_with(key))
            .cloned()
            .collect()
    };
    assert_eq!(of("tea"), ["tea-1", "tea-2", "tea-3"]);
    assert_eq!(of("milk"), ["milk-1", "milk-2"]);
}

on_each_store!(a_key_stops_at_its_first_failure_and_what_succeeded_is_replayed);
async fn a_key_stops_at_its_first_failure_and_what_succeeded_is_replayed(once: Idempotency) {
    let ledger = Ledger::default();
    let mut worker = booking(&once, &ledger);
    let records = [
        record(1, "tea", "tea-1"),
        record(2, "milk", "milk-1"),
        record(3, "tea", "tea-2"),
        record(4, "milk", "milk-2"),
        record(5, "rice", "rice-1"),
        record(6, "tea", "tea-3"),
    ];
    ledger.fail_only(["milk-1", "rice-1"]);
    assert_eq!(deliver(&mut worker, records.clone()).await, Some(number(2)));
    assert_eq!(ledger.take(), ["tea-1", "tea-2", "tea-3"]);

    ledger.fail_only(["rice-1"]);
    let from_checkpoint = |n: usize| records[n - 1..].to_vec();
    assert_eq!(
        deliver(&mut worker, from_checkpoint(2)).await,
        Some(number(5))
    );
    assert_eq!(ledger.take(), ["milk-1", "milk-2"]);

    ledger.fail_only([]);
    // Another execution environment, which remembers nothing.
    let mut worker = booking(&once, &ledger);
    assert_eq!(deliver(&mut worker, from_checkpoint(5)).await, None);
    assert_eq!(ledger.take(), ["rice-1"]);
}

on_each_store!(a_duplicate_of_what_is_done_takes_no_later_record_past_a_failure);
async fn a_duplicate_of_what_is_done_takes_no_later_record_past_a_failure(once: Idempotency) {
    let ledger = Ledger::default();
    let mut worker = booking(&once, &ledger);
    assert_eq!(
        deliver(&mut worker, [record(1, "tea", "tea-1")]).await,
        None
    );
    assert_eq!(ledger.take(), ["tea-1"]);

    let records = [
        record(2, "tea", "tea-2"),
        // The producer's second send of the first: replayed at once.
        record(3, "tea", "tea-1"),
        record(4, "tea", "tea-3"),
    ];
    ledger.fail_only(["tea-2"]);
    assert_eq!(deliver(&mut worker, records.clone()).await, Some(number(2)));
    assert_eq!(ledger.take(), NOTHING);
    ledger.fail_only([]);
    assert_eq!(deliver(&mut worker, records).await, None);
    let booked = ledger.booked.lock().unwrap();
    assert_eq!(*booked, ["tea-2", "tea-3"], "in their order");
}

on_each_store!(a_producers_second_send_is_recognised_by_a_key_of_the_work_alone);
async fn a_producers_second_send_is_recognised_by_a_key_of_the_work_alone(once: Idempotency) {
    let ledger = Ledger::default();
    let mut by_work = booking(&once, &ledger);
    assert_eq!(deliver(&mut by_work, [record(1, "tea", "m-1")]).await, None);
    assert_eq!(deliver(&mut by_work, [record(2, "tea", "m-1")]).await, None);
    assert_eq!(ledger.take(), ["m-1"]);

    let mut by_default = booking_by_default_key(&once, &ledger);
    for n in [3, 4, 3, 4] {
        assert_eq!(
            deliver(&mut by_default, [record(n, "tea", "m-2")]).await,
            None
        );
    }
    assert_eq!(ledger.take(), ["m-2", "m-2"]);
}

on_each_store!(equal_sequence_numbers_of_two_streams_are_two_records);
async fn equal_sequence_numbers_of_two_streams_are_two_records(once: Idempotency) {
    let ledger = Ledger::default();
    let mut worker = booking_by_default_key(&once, &ledger);
    let mut other = record(1, "tea", "m-2");
    other["eventSourceARN"] = json!(format!("{STREAM}-of-another-shop"));
    assert_eq!(deliver(&mut worker, [record(1, "tea", "m-1")]).await, None);
    assert_eq!(deliver(&mut worker, [other]).await, None);
    assert_eq!(ledger.take(), ["m-1", "m-2"]);
}

/// As the Kinesis Producer Library packs `m-1` and `m-2` of `tea` and `m-3` of `salt`.
const AGGREGATE: &[u8] = b"84mawgoDdGVhCgRzYWx0GhoIABoWeyJtb3ZlbWVudF9pZCI6ICJtLTEifRoaCAAaFnsibW92ZW1lbnRfaWQiOiAibS0yIn0aGggBGhZ7Im1vdmVtZW50X2lkIjogIm0tMyJ9/zW2xeWI00nD5et5ku866w==";

on_each_store!(a_failure_in_an_aggregate_stops_its_key_and_reports_the_aggregate);
async fn a_failure_in_an_aggregate_stops_its_key_and_reports_the_aggregate(once: Idempotency) {
    let ledger = Ledger::default();
    let mut worker = booking_by_default_key(&once, &ledger);
    let aggregate = BASE64.decode(AGGREGATE).unwrap();
    let records = || {
        [
            record_of(1, "any", &aggregate),
            record(2, "tea", "m-4"),
            record(3, "milk", "m-5"),
        ]
    };
    ledger.fail_only(["m-2"]);
    assert_eq!(deliver(&mut worker, records()).await, Some(number(1)));
    assert_eq!(ledger.take(), ["m-1", "m-3", "m-5"]);
    ledger.fail_only([]);
    assert_eq!(deliver(&mut worker, records()).await, None);
    assert_eq!(*ledger.booked.lock().unwrap(), ["m-2", "m-4"]);
}

on_each_store!(a_taken_record_of_an_aggregate_lets_the_next_of_its_key_run);
async fn a_taken_record_of_an_aggregate_lets_the_next_of_its_key_run(once: Idempotency) {
    let ledger = Ledger::default();
    ledger.fail_only(["m-1"]);
    let booked = ledger.clone();
    let mut worker = kinesis::BatchLayer::new(once)
        .key(|movement: &Movement| movement.movement_id.clone())
        .permanent(|_: &Closed| true)
        .on_rejected(|_, _| async { Ok::<_, Closed>(()) })
        .handler(move |message: kinesis::Message<Movement>| {
            let booked = booked.book(&message.body.movement_id);
            async move { booked }
        });
    let aggregate = BASE64.decode(AGGREGATE).unwrap();
    let records = [record_of(1, "any", &aggregate)];
    assert_eq!(deliver(&mut worker, records).await, None);
    assert_eq!(ledger.take(), ["m-2", "m-3"]);
}
