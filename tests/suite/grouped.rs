//! Requests that one process has under way at once leave in groups, and nothing else changes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lambda_idempotency::dynamodb::DynamoDbStore;
use lambda_idempotency::{Error, Idempotency, InFlight, Key, Outcome};
use tokio::task::JoinHandle;

use crate::on_each_server;
use crate::support::{Fault, Proxy, Server, builder_on};

/// A process that has many requests at once, and the effects that it had by key.
#[derive(Clone)]
struct Process {
    proxy: Proxy,
    once: Idempotency,
    effects: Arc<Mutex<BTreeMap<u32, u32>>>,
}

type Charged = Result<Outcome<u32>, Error<Infallible>>;

impl Process {
    async fn on(server: &Server) -> Self {
        let proxy = Proxy::before(server).await;
        let table = server.idempotency_table().await;
        let store = DynamoDbStore::new(proxy.server().client(), table);
        let once = builder_on(store, "grouped")
            .in_flight(InFlight::WaitUpTo(Duration::from_mins(1)))
            .settings(|settings| settings.group_requests = true)
            .build()
            .unwrap();
        Self {
            proxy,
            once,
            effects: Arc::default(),
        }
    }

    fn charge(&self, order: u32) -> JoinHandle<Charged> {
        let process = self.clone();
        tokio::spawn(async move {
            let key = Key::new("charge", order.to_string());
            let charge = async |_| {
                *process.effects.lock().unwrap().entry(order).or_default() += 1;
                Ok(order)
            };
            process.once.run(key, None, charge).await
        })
    }

    /// All of them at once; each is answered with its own outcome.
    async fn charge_all(&self, orders: impl IntoIterator<Item = u32>) {
        let tasks: Vec<_> = orders
            .into_iter()
            .map(|order| (order, self.charge(order)))
            .collect();
        for (order, task) in tasks {
            assert_eq!(task.await.unwrap().unwrap().into_inner(), order);
        }
    }

    fn effects(&self) -> Vec<(u32, u32)> {
        let effects = self.effects.lock().unwrap();
        effects
            .iter()
            .map(|(order, times)| (*order, *times))
            .collect()
    }
}

fn once_each(orders: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
    orders.into_iter().map(|order| (order, 1)).collect()
}

on_each_server!(requests_at_once_leave_in_groups_and_each_has_its_effect_once);
async fn requests_at_once_leave_in_groups_and_each_has_its_effect_once(server: Server) {
    let process = Process::on(&server).await;
    process.charge_all(0..100).await;
    assert_eq!(process.effects(), once_each(0..100));
    let new = process.proxy.take_total();
    assert!(
        new <= 50,
        "{new} requests, where each by itself would be 200"
    );

    process.charge_all(0..100).await;
    assert_eq!(process.effects(), once_each(0..100));
    let replays = process.proxy.take_total();
    assert!(
        replays <= 50,
        "{replays} requests, where each by itself would be 100"
    );
}

on_each_server!(duplicates_at_once_have_one_effect);
async fn duplicates_at_once_have_one_effect(server: Server) {
    let process = Process::on(&server).await;
    process.charge_all((0..50).chain(0..50).chain(0..50)).await;
    assert_eq!(process.effects(), once_each(0..50));
}

on_each_server!(a_request_by_itself_takes_what_it_takes_without_groups);
async fn a_request_by_itself_takes_what_it_takes_without_groups(server: Server) {
    let process = Process::on(&server).await;
    process.charge_all([1]).await;
    let counts = process.proxy.take_counts();
    assert_eq!((counts["PutItem"], counts["UpdateItem"]), (1, 1));
    assert_eq!(counts.len(), 2, "{counts:?}");
}

on_each_server!(without_the_permission_for_groups_requests_leave_alone);
async fn without_the_permission_for_groups_requests_leave_alone(server: Server) {
    let process = Process::on(&server).await;
    process.proxy.inject("BatchExecuteStatement", Fault::DENY);
    process.proxy.inject("BatchExecuteStatement", Fault::DENY);
    process.charge_all(0..10).await;
    process.proxy.take_counts();
    process.charge_all(10..20).await;
    assert_eq!(process.effects(), once_each(0..20));
    let counts = process.proxy.take_counts();
    assert_eq!((counts["PutItem"], counts["UpdateItem"]), (10, 10));
    // Where no completions went as a group before, the first group of them is refused now.
    let groups = counts.get("BatchExecuteStatement").copied();
    assert!(groups.unwrap_or_default() <= 1, "{counts:?}");
}

on_each_server!(a_caller_that_goes_away_while_its_group_is_under_way_leaves_the_others_unharmed);
async fn a_caller_that_goes_away_while_its_group_is_under_way_leaves_the_others_unharmed(
    server: Server,
) {
    // Less than what a request waits for its group to leave.
    let pause = Duration::from_millis(200);
    for fault in [Fault::SlowReply(pause), Fault::Delay(pause)] {
        let process = Process::on(&server).await;
        // The first claim is slow, so that the others gather.
        process.proxy.inject("PutItem", Fault::SlowReply(pause));
        process.proxy.inject("BatchExecuteStatement", fault);
        let first = process.charge(0);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut others: Vec<_> = (1..=5).map(|order| process.charge(order)).collect();
        // The group has left, and has no answer yet.
        tokio::time::sleep(pause + pause / 2).await;
        others.pop().unwrap().abort();
        for (order, task) in others.into_iter().enumerate() {
            let answer = task.await.unwrap().unwrap().into_inner();
            assert_eq!(answer, u32::try_from(order).unwrap() + 1);
        }
        first.await.unwrap().unwrap();
        assert_eq!(process.effects(), once_each(0..5));
    }
}
