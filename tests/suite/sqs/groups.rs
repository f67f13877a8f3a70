//! Group commit: the writes of a batch leave together, and what a group can't settle is settled one by one.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::secrets::Log;
use crate::support::Fault;

/// So many new messages; on a later delivery SQS counts it.
fn messages(count: u64, delivery: u64) -> Vec<Value> {
    (1..=count)
        .map(|n| {
            let mut message = payment(&format!("m-{n:03}"), &format!("p-{n}"), n);
            message["attributes"]["ApproximateReceiveCount"] = json!(delivery.to_string());
            message
        })
        .collect()
}

async fn bench(server: &Server) -> (Proxy, Effects, impl Worker + use<>) {
    let proxy = Proxy::before(server).await;
    let once = engine(proxy.server()).await;
    let effects = Effects::default();
    let worker = charging(&once, &effects);
    proxy.take_total();
    (proxy, effects, worker)
}

on_each_server!(new_messages_take_two_requests_for_as_many_as_run_side_by_side);
async fn new_messages_take_two_requests_for_as_many_as_run_side_by_side(server: Server) {
    for count in [1, 2, 10, 25, 26, 100] {
        for places in [10, 25, 100] {
            let proxy = Proxy::before(&server).await;
            let once = engine(proxy.server()).await;
            let ran = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&ran);
            let mut worker = charge(&once)
                .settings(|settings| settings.concurrency = places)
                .handler(move |_| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    async { Ok(()) }
                });
            proxy.take_total();
            assert_eq!(deliver(&mut worker, messages(count, 1)).await, NOTHING);
            assert_eq!(ran.load(Ordering::SeqCst) as u64, count);
            let groups = usize::try_from(count).unwrap().div_ceil(places.min(25));
            // The completions of messages that end one by one may leave one by one.
            let total = proxy.take_total();
            let most = 2 * groups + 1;
            assert!(total <= most, "{count} messages, {places} at once: {total}");
        }
    }
}

on_each_server!(duplicates_on_a_first_delivery_take_a_group_of_claims_and_one_of_reads);
async fn duplicates_on_a_first_delivery_take_a_group_of_claims_and_one_of_reads(server: Server) {
    let (proxy, effects, mut worker) = bench(&server).await;
    deliver(&mut worker, messages(10, 1)).await;
    effects.take();
    proxy.take_total();

    assert_eq!(deliver(&mut worker, messages(10, 1)).await, NOTHING);
    assert_eq!(effects.take(), NOTHING);
    let counts = proxy.take_counts();
    assert_eq!(
        (
            counts["BatchExecuteStatement"],
            counts["BatchGetItem"],
            counts.len()
        ),
        (1, 1, 2)
    );
}

on_each_server!(a_redelivery_is_read_first);
async fn a_redelivery_is_read_first(server: Server) {
    let (proxy, effects, mut worker) = bench(&server).await;
    deliver(&mut worker, messages(10, 1)).await;
    effects.take();
    proxy.take_total();

    assert_eq!(deliver(&mut worker, messages(10, 2)).await, NOTHING);
    assert_eq!(effects.take(), NOTHING);
    let counts = proxy.take_counts();
    assert_eq!((counts["BatchGetItem"], counts.len()), (1, 1));
}

on_each_server!(a_redelivery_of_what_was_never_claimed_takes_three_requests);
async fn a_redelivery_of_what_was_never_claimed_takes_three_requests(server: Server) {
    let (proxy, effects, mut worker) = bench(&server).await;
    assert_eq!(deliver(&mut worker, messages(1, 2)).await, NOTHING);
    assert_eq!(effects.take(), ["m-001"]);
    assert_eq!(proxy.take_total(), 3);
}

on_each_server!(releases_leave_together_too);
async fn releases_leave_together_too(server: Server) {
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await;
    let mut worker = charge(&once).handler(|_| async { Err::<(), _>(PaymentError::Unreachable) });
    proxy.take_total();
    assert_eq!(deliver(&mut worker, messages(10, 1)).await.len(), 10);
    assert_eq!(proxy.take_counts()["BatchExecuteStatement"], 2);
}

on_each_server!(a_group_of_claims_whose_reply_is_lost_runs_once);
async fn a_group_of_claims_whose_reply_is_lost_runs_once(server: Server) {
    let (proxy, effects, mut worker) = bench(&server).await;
    proxy.inject("BatchExecuteStatement", Fault::LoseReply);
    assert_eq!(deliver(&mut worker, messages(5, 1)).await, NOTHING);
    assert_eq!(effects.take().len(), 5);
    assert_eq!(deliver(&mut worker, messages(5, 2)).await, NOTHING);
    assert_eq!(effects.take(), NOTHING);
}

on_each_server!(a_group_of_completions_whose_reply_is_lost_is_recorded);
async fn a_group_of_completions_whose_reply_is_lost_is_recorded(server: Server) {
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await;
    let effects = Effects::default();
    let (done, wire) = (effects.clone(), proxy.clone());
    let armed = Arc::new(AtomicUsize::new(0));
    let mut worker = charge(&once).handler(move |message| {
        done.of(&message);
        if armed.fetch_add(1, Ordering::SeqCst) == 0 {
            wire.inject("BatchExecuteStatement", Fault::LoseReply);
        }
        async { Ok(()) }
    });
    assert_eq!(deliver(&mut worker, messages(5, 1)).await, NOTHING);
    assert_eq!(effects.take().len(), 5);
    assert_eq!(deliver(&mut worker, messages(5, 2)).await, NOTHING);
    assert_eq!(effects.take(), NOTHING);
}

on_each_server!(a_throttled_read_is_tried_again);
async fn a_throttled_read_is_tried_again(server: Server) {
    let (proxy, effects, mut worker) = bench(&server).await;
    deliver(&mut worker, messages(3, 1)).await;
    effects.take();
    proxy.inject("BatchGetItem", Fault::THROTTLE);
    assert_eq!(deliver(&mut worker, messages(3, 2)).await, NOTHING);
    assert_eq!(effects.take(), NOTHING);
}

on_each_server!(without_the_permission_for_groups_requests_go_out_one_by_one);
async fn without_the_permission_for_groups_requests_go_out_one_by_one(server: Server) {
    let (log, _capture) = Log::capture();
    let proxy = Proxy::before(&server).await;
    let once = engine(proxy.server()).await;
    let effects = Effects::default();
    let mut worker = charging_together(&once, &effects, 4);
    proxy.take_total();
    // Claims and completions each ask once.
    proxy.repeat("BatchExecuteStatement", Fault::DENY, 2);
    assert_eq!(deliver(&mut worker, messages(4, 1)).await, NOTHING);
    assert_eq!(effects.take().len(), 4);
    let counts = proxy.take_counts();
    let [asked, claims, ends] =
        ["BatchExecuteStatement", "PutItem", "UpdateItem"].map(|name| counts[name]);
    assert_eq!((asked, claims, ends), (2, 4, 4), "{counts:?}");
    let said = log.text();
    assert!(said.contains("DynamoDB names: injected"), "{said}");

    let more: Vec<_> = (11..=14)
        .map(|n| payment(&format!("m-{n}"), &format!("p-{n}"), n))
        .collect();
    assert_eq!(deliver(&mut worker, more).await, NOTHING);
    let counts = proxy.take_counts();
    assert_eq!(
        (counts["PutItem"], counts["UpdateItem"], counts.len()),
        (4, 4, 2),
        "{counts:?}"
    );
}

on_each_server!(a_group_that_never_arrives_is_reported_and_runs_nothing);
async fn a_group_that_never_arrives_is_reported_and_runs_nothing(server: Server) {
    let (proxy, effects, mut worker) = bench(&server).await;
    proxy.repeat("BatchExecuteStatement", Fault::LoseRequest, 3);
    assert_eq!(deliver(&mut worker, messages(3, 1)).await.len(), 3);
    assert_eq!(effects.take(), NOTHING);
}

on_each_server!(a_large_batch_is_decoded_as_it_runs);
async fn a_large_batch_is_decoded_as_it_runs(server: Server) {
    let once = engine(&server).await;
    let [decoded, started, most] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let (taken, seen, furthest) = (
        Arc::clone(&decoded),
        Arc::clone(&decoded),
        Arc::clone(&most),
    );
    let mut worker = charge(&once)
        .settings(|settings| settings.concurrency = 5)
        .key(move |payment: &Payment| {
            taken.fetch_add(1, Ordering::SeqCst);
            payment.payment_id.clone()
        })
        .handler(move |_| {
            let ahead = seen.load(Ordering::SeqCst) - started.fetch_add(1, Ordering::SeqCst);
            furthest.fetch_max(ahead, Ordering::SeqCst);
            async { Ok(()) }
        });
    assert_eq!(deliver(&mut worker, messages(500, 1)).await, NOTHING);
    assert_eq!(decoded.load(Ordering::SeqCst), 500);
    // A decoded message is claimed next: no message is claimed ahead of its turn.
    assert_eq!(most.load(Ordering::SeqCst), 5);
}

on_each_server!(a_large_batch_takes_as_many_requests_as_computed);
async fn a_large_batch_takes_as_many_requests_as_computed(server: Server) {
    let (proxy, effects, mut worker) = bench(&server).await;
    assert_eq!(deliver(&mut worker, messages(500, 1)).await, NOTHING);
    assert_eq!(effects.take().len(), 500);
    assert!(proxy.take_total() <= 2 * 50);
}
