//! A cluster of three servers, as `redis-cli --cluster create` makes one.

use std::ops::RangeInclusive;
use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;

use lambda_idempotency::protocol::record::{NewClaim, Owner, RecordWrite};
use lambda_idempotency::store::{Answer, Store};
use lambda_idempotency::{
    EpochMillis, EpochSeconds, Error, Idempotency, Key, OnStoreUnavailable, RecordId, StoreError,
};
use lambda_idempotency_redis::{Durability, RedisStore};
use tokio::time::Instant;

use crate::server::{MINUTE, Server};

pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(Server::node().await);
        }
        let bounds = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];
        for (server, (first, last)) in servers.iter().zip(bounds) {
            let (first, last) = (first.to_string(), last.to_string());
            let words = ["CLUSTER", "ADDSLOTSRANGE", &first, &last];
            server.ask::<String>(&words).await;
        }
        for (epoch, server) in servers.iter().enumerate() {
            let epoch = (epoch + 1).to_string();
            server
                .ask::<String>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])
                .await;
        }
        for server in &servers[1..] {
            let port = server.port.to_string();
            servers[0]
                .ask::<String>(&["CLUSTER", "MEET", "127.0.0.1", &port])
                .await;
        }
        for server in &servers {
            server.until(&["CLUSTER", "INFO"], "cluster_state:ok").await;
            server
                .until(&["CLUSTER", "INFO"], "cluster_known_nodes:3")
                .await;
        }
        Self { servers }
    }

    /// Starts one in which each server has a replica.
    pub(crate) async fn with_replicas() -> Self {
        let mut cluster = Self::start().await;
        for number in 0..3 {
            let (primary, replica) = (&cluster.servers[number], Server::node().await);
            let id = primary.ask::<String>(&["CLUSTER", "MYID"]).await;
            let port = primary.port.to_string();
            replica
                .ask::<String>(&["CLUSTER", "MEET", "127.0.0.1", &port])
                .await;
            replica.until(&["CLUSTER", "NODES"], &id).await;
            replica.ask::<String>(&["CLUSTER", "REPLICATE", &id]).await;
            replica
                .until(&["INFO", "replication"], "master_link_status:up")
                .await;
            cluster.servers.push(replica);
        }
        cluster
    }

    pub(crate) async fn connection(&self) -> ClusterConnection {
        let addresses = self.servers.iter().map(Server::address);
        let client = ClusterClient::new(addresses).unwrap();
        client.get_async_connection().await.unwrap()
    }

    pub(crate) async fn store(&self) -> RedisStore<ClusterConnection> {
        RedisStore::new(self.connection().await)
    }

    /// A claim on a record of the server with these slots.
    async fn claim(&self, slots: RangeInclusive<u32>) -> RecordWrite {
        let mut number = 0;
        loop {
            let id = RecordId::stored(format!("mail-{number}")).unwrap();
            let key = format!("idempotency:{{{}}}", id.as_str());
            let slot: u32 = self.servers[0].ask(&["CLUSTER", "KEYSLOT", &key]).await;
            if slots.contains(&slot) {
                let (now, later) = (EpochMillis(1), EpochSeconds(4_102_444_800));
                let owner = Owner::from_stored("me");
                return NewClaim::new(id, owner, now, EpochMillis(9), later).into();
            }
            number += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_found_when_its_slot_moves_to_another_node() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let verified = store.verify().await.unwrap();
    assert_eq!(verified.eviction.as_deref(), Some("noeviction"));
    let once = Idempotency::builder(store)
        .namespace("moves")
        .build()
        .unwrap();
    let run = async |number: u32| {
        let key = Key::new("mail", number.to_string());
        let outcome = once
            .run(key, None, async |_| Ok::<_, std::io::Error>(number))
            .await
            .unwrap();
        outcome.is_replayed()
    };
    for number in 0..50 {
        assert!(!run(number).await);
    }
    // The slots of the records on the first server go to the second, while the client knows the old places.
    let (from, to) = (&cluster.servers[0], &cluster.servers[1]);
    let (from_id, to_id) = (
        from.ask::<String>(&["CLUSTER", "MYID"]).await,
        to.ask::<String>(&["CLUSTER", "MYID"]).await,
    );
    let keys: Vec<String> = from.ask(&["KEYS", "*"]).await;
    assert!(!keys.is_empty());
    for key in &keys {
        let slot = from
            .ask::<i64>(&["CLUSTER", "KEYSLOT", key])
            .await
            .to_string();
        to.ask::<String>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])
            .await;
        from.ask::<String>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])
            .await;
        let port = to.port.to_string();
        from.ask::<String>(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"])
            .await;
        // In mid-move the old node sends its clients on, for this request alone.
        for number in 0..50 {
            assert!(run(number).await, "{number} in mid-move of {key}");
        }
        for server in &cluster.servers[..2] {
            server
                .ask::<String>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id])
                .await;
        }
    }
    for number in 0..50 {
        assert!(run(number).await, "{number}");
    }
    let left: Vec<String> = from.ask(&["KEYS", "*"]).await;
    assert!(left.is_empty());
    let id = once.record_id(&Key::new("mail", "7")).unwrap();
    let found = once
        .store()
        .load(&id, Instant::now() + MINUTE)
        .await
        .unwrap();
    assert!(found.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_records_of_a_route_with_braces_are_on_all_nodes() {
    let cluster = Cluster::start().await;
    let builder = Idempotency::builder(cluster.store().await);
    let once = builder.namespace("shop").build().unwrap();
    for number in 0..50 {
        let key = Key::new("PUT /orders/{id}", number.to_string());
        let handler = async |_| Ok::<_, std::io::Error>(());
        once.run(key, None, handler).await.unwrap();
    }
    for server in &cluster.servers {
        assert!(server.ask::<i64>(&["DBSIZE"]).await > 0);
    }
}

/// The client repeats requests by itself: what a node refuses in the end may have applied before.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_full_or_down_may_have_applied_a_write() {
    let mut cluster = Cluster::start().await;
    let addresses = cluster.servers.iter().map(Server::address);
    let client = ClusterClient::builder(addresses).retries(1).build();
    let connection = client.unwrap().get_async_connection().await.unwrap();
    let store = RedisStore::new(connection);
    // Of the server that stays.
    let claim = cluster.claim(10_923..=16_383).await;
    cluster.servers[2].set("maxmemory", "1").await;
    let full = store.write(&claim, Instant::now() + MINUTE).await;
    let full = full.unwrap_err();
    assert_matches!(full, StoreError::Throttled(_));
    assert!(full.may_have_applied(), "{full:?}");
    for server in &cluster.servers {
        server.set("cluster-node-timeout", "500").await;
    }
    cluster.servers[0].kill();
    cluster.servers[1].kill();
    let left = &cluster.servers[2];
    left.until(&["CLUSTER", "INFO"], "cluster_state:fail").await;
    // `FailOpen` opens for `Unavailable`.
    let refused = store.write(&claim, Instant::now() + MINUTE).await;
    let refused = refused.unwrap_err();
    assert_matches!(refused, StoreError::Throttled(_));
    assert!(refused.may_have_applied(), "{refused:?}");
}

/// Another `WAIT` may hold up its node, of which the others' answers say nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_must_be_on_replicas_does_not_run_where_its_node_is_silent() {
    let cluster = Cluster::start().await;
    let durability = Durability::Replicas(1, MINUTE);
    let builder = Idempotency::builder(cluster.store().await.durability(durability));
    let once = builder
        .namespace("silent")
        .on_store_unavailable(OnStoreUnavailable::FailOpen)
        .settings(|settings| settings.store_timeout = Duration::from_secs(2));
    let once = once.build().unwrap();
    for server in &cluster.servers {
        server.signal("-STOP");
    }
    let handler = async |_| Ok::<_, std::io::Error>(());
    let done = once.run(Key::new("mail", "1"), None, handler).await;
    assert_matches!(done, Err(Error::Store(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_silent_holds_up_no_answer_of_another_one() {
    let cluster = Cluster::start().await;
    let store = cluster.store().await;
    let claims = [
        cluster.claim(0..=5_460).await,
        cluster.claim(10_923..=16_383).await,
    ];
    let ids = claims.each_ref().map(|claim| claim.id().clone());
    cluster.servers[2].signal("-STOP");
    let began = Instant::now();
    let written = store.write_all(&claims, began + MINUTE).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    let [Ok(Answer::Applied(_)), Err(left)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert!(left.may_have_applied(), "{left:?}");
    let began = Instant::now();
    let read = store.load_all(&ids, began + MINUTE).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_matches!(read.as_slice(), [Ok(Some(_)), Err(StoreError::NotSent)]);
}
